"use strict";
// The page of a running query: asks for its status once a second, and writes text, never markup.
(() => {
const PERIOD = 1000, BARS = 80, ROWS = 30, LOST_AFTER = 3;
const find = (id) => document.getElementById(id);

function made(name, text, kind) {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    if (kind) element.className = kind;
    return element;
}

// ── numbers for people ──────────────────────────────────────────────────────────────────────
const count = (value) => Math.round(value).toLocaleString("en");
function short(value) {
    for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
        if (value >= size) return (value / (unit === "k" ? 1e3 : size)).toPrecision(3) + " " + unit;
    }
    return count(value);
}
function bytes(value) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let at = 0;
    while (value >= 1024 && at < units.length - 1) { value /= 1024; at += 1; }
    return (at && value < 100 ? value.toPrecision(3) : count(value)) + " " + units[at];
}
function duration(seconds) {
    const size = Math.abs(seconds);
    if (size < 1) return (seconds * 1000).toPrecision(3).replace(/\.0+$/, "") + " ms";
    for (const [length, unit] of [[31557600, "y"], [86400, "d"], [3600, "h"], [60, "min"]]) {
        if (size >= length) return (seconds / length).toFixed(1) + " " + unit;
    }
    return seconds.toFixed(1) + " s";
}
const total = (rows) => Object.values(rows).reduce((sum, each) => sum + each, 0);

// ── parts of the page ───────────────────────────────────────────────────────────────────────
function facts(place, pairs, kind) {
    place.replaceChildren(...pairs.map(([name, value, more]) => {
        const box = made("div", undefined, kind);
        box.append(made("dt", name), made("dd", value, kind && "value"));
        if (more !== undefined) box.append(made("dd", more, "more"));
        return box;
    }));
}

function rates(told, before) {
    if (!before || told.now <= before.now) return null;
    const seconds = told.now - before.now;
    return [(told.status.rows_in - before.status.rows_in) / seconds,
            (told.status.rows_out - before.status.rows_out) / seconds];
}

// Of streams that listen: who has come and given nothing, or broken off.
function connections(status) {
    const each = Object.values(status.connections);
    if (!each.length) return [];
    const refused = total(each.map((one) => one.refused));
    const broken = total(each.map((one) => one.broken));
    return [["Connections", short(refused) + " refused", short(broken) + " broken off after rows"]];
}

function tiles(told, before) {
    const status = told.status, rate = rates(told, before);
    const each = (at) => rate ? short(Math.max(rate[at], 0)) + " a second" : "";
    const last = told.epochs[told.epochs.length - 1];
    const late = last ? total(last.late) : 0, rejected = last ? total(last.rejected) : 0;
    facts(find("tiles"), [
        ["Epoch", count(status.epoch), status.bounds],
        ["Rows in", short(status.rows_in), each(0)],
        ["Rows out", short(status.rows_out), each(1)],
        ["After the cut", status.epoch ? duration(status.seconds_after_cut) : "–",
            last ? "commit " + duration(last.seconds_commit) : ""],
        ["Lag", status.lag_seconds === null ? "–" : duration(status.lag_seconds),
            status.lag_seconds === null ? "no times to tell by" : "newest row behind the clock"],
        ["State", bytes(status.state_bytes), short(status.state_rows) + " rows"],
        ["Open chunk", short(status.open_rows) + " rows", short(status.waiting_rows) + " wait"],
        ["Left out", short(late + rejected), short(late) + " late, " + short(rejected) + " rejected"],
        ...connections(status),
    ], "tile");
}

// Bars by epoch, two series one on the other, with the largest value written beside them.
function plot(place, epochs, series, told) {
    const make = (name, values) => {
        const element = document.createElementNS("http://www.w3.org/2000/svg", name);
        for (const [key, value] of Object.entries(values)) element.setAttribute(key, value);
        return element;
    };
    const width = place.clientWidth || 600, height = 150, low = height - 18, high = 16;
    place.setAttribute("viewBox", "0 0 " + width + " " + height);
    const shown = epochs.slice(-Math.max(8, Math.min(BARS, Math.floor(width / 7))));
    const top = Math.max(...shown.map((e) => Math.max(...series.map(([, of]) => of(e)))), 1e-9);
    const step = width / Math.max(shown.length, 12), parts = [];
    parts.push(make("line", {x1: 0, x2: width, y1: low, y2: low}));
    shown.forEach((epoch, at) => {
        series.forEach(([kind, of], place) => {
            const size = (low - high) * of(epoch) / top;
            const bar = make("rect", {
                class: kind, x: at * step + step * 0.1 + place * step * 0.4, y: low - size,
                width: Math.max(step * 0.38, 1), height: size,
            });
            const title = make("title", {});
            title.textContent = "epoch " + epoch.epoch + ": " + told(of(epoch)) + " " + kind;
            bar.append(title);
            parts.push(bar);
        });
    });
    const text = (x, y, words, anchor) => {
        const element = make("text", {x, y, "text-anchor": anchor});
        element.textContent = words;
        parts.push(element);
    };
    if (shown.length) {
        text(0, 11, told(top), "start");
        text(0, height - 3, "epoch " + shown[0].epoch, "start");
        if (shown.length > 1) {
            text(shown.length * step, height - 3, String(shown[shown.length - 1].epoch), "end");
        }
    }
    place.replaceChildren(...parts);
}

function table(place, head, rows, numbers) {
    const header = made("tr");
    header.append(...head.map((name, at) => made("th", name, numbers[at] ? "number" : "")));
    const top = made("thead"), body = made("tbody");
    top.append(header);
    body.append(...rows.map((cells) => {
        const row = made("tr");
        row.append(...cells.map((cell, at) => made("td", cell, numbers[at] ? "number" : "")));
        return row;
    }));
    place.replaceChildren(top, body);
}

function epochs(told) {
    const rows = told.epochs.slice(-ROWS).reverse().map((epoch) => [
        String(epoch.epoch) + (epoch.is_partial ? " (unfinished)" : "") +
            (epoch.is_replayed ? " (again)" : ""),
        epoch.bounds,
        Object.entries(epoch.rows_in).map(([name, n]) => name + " " + count(n)).join(", "),
        count(epoch.rows_out), duration(epoch.seconds_after_cut), duration(epoch.seconds_commit),
        count(epoch.state_rows), bytes(epoch.state_bytes),
    ]);
    table(find("epochs"),
        ["Epoch", "Bounds", "Rows in", "Out", "After the cut", "Commit", "State rows", "State"],
        rows, [false, false, false, true, true, true, true, true]);
}

function results(told) {
    const place = find("results");
    if (!told.results.length) {
        place.replaceChildren(made("p", "No rows yet.", "empty"));
        return;
    }
    place.replaceChildren(...told.results.slice().reverse().map((result) => {
        const whole = made("table", undefined, "results");
        table(whole, result.columns, result.rows, []);
        const more = result.columns_left_out ? ", " + result.columns_left_out + " columns left out" : "";
        whole.prepend(made("caption", "epoch " + result.epoch + ", " + result.bounds +
            ": the first " + result.rows.length + " rows" + more));
        return whole;
    }));
}

// ── asking ──────────────────────────────────────────────────────────────────────────────────
let before = null, failures = 0;

function show(told) {
    find("job").textContent = told.about.job;
    document.title = "epoch " + told.status.epoch + " · " + told.about.job;
    facts(find("about"), [
        ["Cut", told.about.cut], ["State", told.about.state], ["Sink", told.about.sink],
        ["Process", String(told.about.process)],
        ["Running for", duration(told.now - told.status.began_at)],
    ]);
    tiles(told, before);
    plot(find("rows"), told.epochs,
        [["in", (e) => total(e.rows_in)], ["out", (e) => e.rows_out]], short);
    plot(find("times"), told.epochs,
        [["cut", (e) => e.seconds_after_cut], ["commit", (e) => e.seconds_commit]], duration);
    results(told);
    epochs(told);
    find("pulse").textContent = told.is_done ? "the query has ended" : "running";
    document.body.dataset.state = told.is_done ? "done" : "running";
    document.body.dataset.epoch = told.status.epoch;
    before = told;
}

async function ask() {
    try {
        const answer = await fetch("status.json", {cache: "no-store"});
        show(await answer.json());
        failures = 0;
    } catch (error) {
        failures += 1;
        if (failures >= LOST_AFTER) {
            find("pulse").textContent = "the query does not answer any more; this is its last status";
            document.body.dataset.state = "lost";
        }
    }
    setTimeout(ask, PERIOD);
}
ask();
})();
