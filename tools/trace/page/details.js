// ── details: what happened, in words: under the pointer and at the cursor ───────────────────────

function momentText(model, at) {
  return `event ${whole(model.seq[at])}, ${timed(model.time[at], 6)}`;
}

/** Everything about a load: its reason first. */
function loadLines(model, at) {
  const number = model.readNumber[at];
  const began = model.fetchOf[at];
  const lines = [
    ["why", shown(reasonOf(model, at)) || "no reason told"],
    ["load", `${pageName(model, model.key[at])}, its ${ordinal(number)} read${number > 1 ? " ◆" : ""}`],
    ["at", momentText(model, at)],
    ["into", `frame ${model.frame[at]}, ${sized(model.bytes[at])}`],
  ];
  if (began >= 0 && began < at) lines.push(["took", timed(model.time[at] - model.time[began])]);
  return lines;
}

/** Everything about any event. */
function eventLines(model, at) {
  if (model.event[at] === model.code.read) return loadLines(model, at);
  const lines = [["at", momentText(model, at)]];
  const why = shown(reasonOf(model, at));
  if (why) lines.unshift(["why", why]);
  if (model.frame[at] >= 0) lines.push(["frame", String(model.frame[at])]);
  if (model.bytes[at] > 0) lines.push(["size", sized(model.bytes[at])]);
  const epoch = epochAt(model, at);
  if (epoch) lines.push(["epoch", whole(epoch.epoch)]);
  lines.push(["step", whole(model.epoch[at])]);
  return lines;
}

function eventTitle(model, at) {
  const kind = shown(model.kinds[model.event[at]]);
  const page = pageName(model, model.key[at]);
  const mate = model.keyPage[model.mate[at]] >= 0 ? ` × ${pageName(model, model.mate[at])}` : "";
  return `${kind} ${page}${mate}`.trim();
}

function fillLines(list, lines) {
  list.replaceChildren(...lines.flatMap(([label, text]) => [
    element("dt", "", label), element("dd", label === "why" ? "why" : "", text),
  ]));
}

// ── the tip under the pointer ───────────────────────────────────────────────────────────────────

function showTip(event, title, lines) {
  const tip = byId("tip");
  setText(byId("tip-title"), title);
  fillLines(byId("tip-lines"), lines);
  tip.hidden = false;
  const { offsetWidth: width, offsetHeight: height } = tip;
  const x = event.clientX + 16 + width > innerWidth ? event.clientX - width - 12 : event.clientX + 16;
  const y = Math.min(event.clientY + 14, innerHeight - height - 8);
  tip.style.transform = `translate(${Math.max(x, 4)}px, ${Math.max(y, 4)}px)`;
}

function hideTip() {
  byId("tip").hidden = true;
}

// ── the panel that follows the cursor ───────────────────────────────────────────────────────────

/** The event at the cursor, for eyes and for screen readers: the panel is a live region. */
function tellMoment(app) {
  const { model, cursor } = app;
  setText(byId("now-title"), eventTitle(model, cursor));
  byId("now-kind").dataset.kind = model.kinds[model.event[cursor]];
  fillLines(byId("now-lines"), [...eventLines(model, cursor), ...stateLines(app)]);
  const loadAt = upperBound(model.loads, cursor) - 1;
  const isLoad = loadAt >= 0 && model.loads[loadAt] === cursor;
  byId("last-load").hidden = loadAt < 0 || isLoad;
  if (loadAt >= 0 && !isLoad) fillLines(byId("last-load-lines"), loadLines(model, model.loads[loadAt]));
}

/** What holds at the cursor, whatever the event: the mode and its reason, the frames in use. */
function stateLines(app) {
  const { model, cursor } = app;
  const stretch = stretchAt(model, cursor);
  const lines = stretch ? [["mode", `${modeText(model, cursor)}: ${shown(stretch.reason)}`]] : [];
  const held = framesInUse(model, cursor);
  const names = held.slice(0, 8).map((lane) => pageName(model, lane.keys[stayAt(lane, cursor)]));
  const more = held.length > 8 ? ` and ${held.length - 8} more` : "";
  lines.push(["frames", held.length ? `${whole(held.length)} in use: ${names.join(", ")}${more}` : "none in use"]);
  return lines;
}

/** Totals, from the summary that came with the page, and how much of each there is so far. */
const TILES = [
  ["reads", "page reads", "reads", whole],
  ["rereads", "re-reads ◆", "rereads", whole],
  ["hits", "hits", "hits", whole],
  ["hit_rate", "hit rate", null, (rate) => (rate === null ? "–" : percent(rate, 1))],
  ["bytes_read", "bytes read", "bytesRead", sized],
  ["bytes_written", "bytes written", "bytesWritten", sized],
  ["visits", "pairs visited", "visits", whole],
  ["stretches", "mode spans", null, whole],
  ["expiries", "pages expired", null, whole],
  ["evictions", "evictions", null, whole],
];

function makeTiles(app) {
  const { summary } = app.model;
  const totals = { ...summary.totals, stretches: summary.modes.length };
  app.tiles = [];
  for (const [name, label, series, show] of TILES) {
    const tile = element("div", "tile");
    const value = element("dd", "tile-value", show(totals[name]));
    value.dataset.total = name;
    value.dataset.value = totals[name];
    const soFar = element("dd", "tile-now");
    const title = element("dt", "", label);
    if (name === "hit_rate") title.append(helpButton("rate"));
    tile.append(title, value, soFar);
    byId("tiles").append(tile);
    if (series) app.tiles.push({ soFar, series, show });
    if (name === "stretches") soFar.textContent = modeCounts(summary.modes);
    if (name === "hit_rate") app.rateTile = soFar;
  }
}

function modeCounts(modes) {
  const counts = new Map();
  for (const { mode } of modes) counts.set(mode, (counts.get(mode) ?? 0) + 1);
  const parts = [...counts].slice(0, 3).map(([mode, count]) => `${whole(count)} ${cut(shown(mode), 12)}`);
  return parts.join(", ");
}

function tellTiles(app) {
  const { counts } = app.model;
  const at = app.cursor + 1;
  for (const { soFar, series, show } of app.tiles) setText(soFar, `${show(counts[series][at])} so far`);
  setText(app.rateTile, `${percent(counts.hits[at], counts.hits[at] + counts.reads[at])} so far`);
}

/** The line of facts under the title. */
function tellFacts(app) {
  const { summary, windows, head } = app.model;
  const names = windows.filter((name) => name !== "").map((name) => cut(shown(name), 48));
  const facts = [
    ["windows", names.slice(0, 6).join(", ") + (names.length > 6 ? ` and ${names.length - 6} more` : "")],
    ["page size", summary.page_size ? sized(summary.page_size) : "unknown"],
    ["budget", summary.budget_bytes ? sized(summary.budget_bytes) : "unknown"],
    ["most frames in use", whole(summary.totals.frames_peak), "frames"],
    ["duration", timed(summary.duration_ns)],
    ["events", whole(summary.events)],
    ["page file", cut(shown(summary.file || "unknown"), 64)],
  ];
  setText(byId("trace-name"), shown(head.name));
  byId("facts").replaceChildren(...facts.filter(([, text]) => text).map(([label, text, topic]) => {
    const fact = element("div");
    const name = element("dt", "", label);
    if (topic) name.append(helpButton(topic));
    fact.append(name, element("dd", "", text));
    return fact;
  }));
}

/** Says whether the page's own counts agree with the summary. */
function tellCheck(app) {
  const found = discrepancies(app.model);
  const line = byId("check");
  line.dataset.differences = found.length;
  line.classList.toggle("is-bad", found.length > 0);
  line.textContent = found.length === 0
    ? "✓ counted again from the events: all totals agree with the summary"
    : `✗ the events do not add up to the summary: ${found.join("; ")}`;
}
