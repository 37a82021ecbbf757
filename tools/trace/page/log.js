// ── log: the list of events; only the rows in sight exist ───────────────────────────────────────

const ROW = 25; // pixels, as in the style sheet
// Browsers end an element at 17 to 33 million pixels; above this the scroll bar stands for a share.
const LOG_HEIGHT_MOST = 8_000_000;
const LOG_COLUMNS = ["seq", "time", "event", "page", "frame", "bytes", "why"];

class Log {
  constructor(app) {
    this.app = app;
    this.box = byId("log");
    this.layer = byId("log-rows");
    this.rows = [];
    this.filter();
    this.box.addEventListener("scroll", () => this.draw());
    this.layer.addEventListener("click", (event) => {
      const row = event.target.closest(".log-row");
      if (row) app.jump(Number(row.dataset.at));
    });
  }

  /** Takes the events that the filters let through; null stands for all of them. */
  filter() {
    const accepts = logFilter(this.app.model);
    this.places = accepts ? Int32Array.from(placesWhere(this.app.model.count, accepts)) : null;
    this.count = this.places ? this.places.length : this.app.model.count;
    byId("log-space").style.height = `${Math.min(this.count * ROW, LOG_HEIGHT_MOST)}px`;
    setText(byId("log-count"), plural(this.count, "event"));
    this.draw();
  }

  placeOf(row) {
    return this.places ? this.places[row] : row;
  }

  /** The row of the last event up to a moment. */
  rowOf(moment) {
    return this.places ? upperBound(this.places, moment) - 1 : moment;
  }

  get rowsInSight() {
    return Math.max(Math.floor(this.box.clientHeight / ROW), 1);
  }

  /** The row at the top, with its fraction. */
  get top() {
    const space = Math.min(this.count * ROW, LOG_HEIGHT_MOST) - this.box.clientHeight;
    const hidden = this.count - this.box.clientHeight / ROW;
    return space > 0 ? (this.box.scrollTop / space) * hidden : 0;
  }

  scrollToRow(row) {
    const space = Math.min(this.count * ROW, LOG_HEIGHT_MOST) - this.box.clientHeight;
    const hidden = this.count - this.box.clientHeight / ROW;
    if (hidden > 0) this.box.scrollTop = (clamp(row, 0, hidden) / hidden) * space;
  }

  follow() {
    const row = this.rowOf(this.app.cursor);
    const isInSight = row >= this.top && row < this.top + this.rowsInSight - 1;
    if (!isInSight) this.scrollToRow(row - Math.floor(this.rowsInSight / 2));
    this.draw();
  }

  draw() {
    const top = this.top;
    const first = Math.floor(top);
    const wanted = clamp(this.count - first, 0, this.rowsInSight + 2);
    while (this.rows.length < wanted) this.addRow();
    this.layer.style.transform = `translateY(${this.box.scrollTop - (top - first) * ROW}px)`;
    const current = this.rowOf(this.app.cursor);
    this.rows.forEach((row, at) => {
      row.hidden = at >= wanted;
      if (at < wanted) fillRow(this.app.model, row, this.placeOf(first + at), first + at === current);
    });
  }

  addRow() {
    const row = element("li", "log-row");
    for (const name of LOG_COLUMNS) row.append(element("span", `log-${name}`));
    this.layer.append(row);
    this.rows.push(row);
  }
}

function fillRow(model, row, at, isCurrent) {
  const kind = model.kinds[model.event[at]];
  const isAgain = model.readNumber[at] > 1;
  const mate = model.keyPage[model.mate[at]] >= 0 ? ` × ${pageName(model, model.mate[at])}` : "";
  const texts = [
    whole(model.seq[at]),
    timed(model.time[at], 6),
    isAgain ? `${kind} ◆${model.readNumber[at]}` : shown(kind),
    pageName(model, model.key[at]) + mate,
    model.frame[at] >= 0 ? String(model.frame[at]) : "",
    model.bytes[at] > 0 ? sized(model.bytes[at]) : "",
    cut(shown(reasonOf(model, at)), 200),
  ];
  texts.forEach((text, column) => setText(row.children[column], text));
  row.dataset.at = at;
  row.dataset.kind = kind;
  row.classList.toggle("is-visit", mate !== "" && texts.slice(4).join("") === "");
  if (isCurrent) row.setAttribute("aria-current", "true");
  else row.removeAttribute("aria-current");
}

// ── filters ─────────────────────────────────────────────────────────────────────────────────────

const LOADS = "loads";
const REREADS = "re-reads";

function makeLogFilters(app) {
  const { model } = app;
  const found = new Uint8Array(model.kinds.length);
  for (const kind of model.event) found[kind] = 1;
  const kinds = model.kinds.filter((_, code) => found[code]);
  addOptions(byId("log-kind"), [["", "all events"], [LOADS, "loads"], [REREADS, "re-reads ◆"],
    ...kinds.map((kind) => [`=${kind}`, shown(kind)])]);
  addOptions(byId("log-window"), [["", "all windows"],
    ...model.windows.flatMap((name, at) => (name ? [[String(at), cut(shown(name), 40)]] : []))]);
  for (const id of ["log-kind", "log-window", "log-page"]) {
    byId(id).addEventListener("input", () => {
      app.log.filter();
      app.log.follow();
    });
  }
}

function addOptions(select, options) {
  for (const [value, text] of options) {
    const option = element("option", "", text);
    option.value = value;
    select.append(option);
  }
}

/** Whether an event is wanted, by the filters on the page; null when all are. */
function logFilter(model) {
  const kind = byId("log-kind").value;
  const window = byId("log-window").value;
  const page = byId("log-page").value;
  const tests = [];
  if (kind === LOADS) tests.push((at) => model.event[at] === model.code.read);
  else if (kind === REREADS) tests.push((at) => model.readNumber[at] > 1);
  else if (kind) tests.push((at) => model.event[at] === model.code[kind.slice(1)]);
  if (window !== "" || page !== "") tests.push(pageFilter(model, window, page));
  return tests.length ? (at) => tests.every((test) => test(at)) : null;
}

function pageFilter(model, window, page) {
  const isMeant = Uint8Array.from(model.keyPage, (number, key) =>
    Number((window === "" || model.keyWindow[key] === Number(window)) &&
      (page === "" || number === Number(page))));
  return (at) => isMeant[model.key[at]] || (model.keyPage[model.mate[at]] >= 0 && isMeant[model.mate[at]]);
}

function* placesWhere(count, accepts) {
  for (let at = 0; at < count; at++) if (accepts(at)) yield at;
}
