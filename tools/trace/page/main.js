// ── main: puts it together; one redraw a frame, however much has changed ────────────────────────

class App {
  constructor(model) {
    this.model = model;
    this.axis = new Axis(model);
    this.cursor = 0;
    this.dirty = new Set();
    this.windowRank = rankWindows(model);
    this.walk = null;
    this.matrix = new Matrix(this);
    this.log = new Log(this);
  }

  /** Asks for a redraw of "matrix", "axis" or "cursor". */
  refresh(part) {
    if (this.dirty.size === 0) requestAnimationFrame(() => this.draw());
    this.dirty.add(part);
  }

  draw() {
    const dirty = new Set(this.dirty);
    this.dirty.clear();
    if (dirty.has("axis")) {
      drawTimeline(this);
      drawLanes(this);
      drawPlots(this);
    }
    if (this.walk && dirty.has("cursor")) this.matrix.follow();
    if (this.walk) this.matrix.draw();
    if (dirty.has("axis") || dirty.has("cursor")) this.drawCursor();
  }

  drawCursor() {
    const width = byId("timeline").clientWidth;
    const x = this.axis.toX(this.axis.middleOf(this.cursor), width);
    const line = byId("cursor-line");
    line.hidden = x < 0 || x > width;
    line.style.transform = `translateX(${x}px)`;
    drawLaneHeads(this);
    tellFrames(this);
    tellPlots(this);
    tellTiles(this);
    tellMoment(this);
    tellPosition(this);
    this.help?.tell();
    this.log.follow();
  }

  /** Goes to the moment after an event. */
  seek(at) {
    const cursor = clamp(Math.round(at), 0, this.model.count - 1);
    if (cursor === this.cursor) return;
    this.cursor = cursor;
    byId("scrubber").value = cursor;
    const { version } = this.axis;
    this.axis.follow(cursor);
    this.address?.follow();
    if (this.axis.version !== version) this.refresh("axis");
    this.refresh("cursor");
  }

  /** Goes to a moment that Back comes back from. */
  jump(at) {
    this.jumpBy(() => this.seek(at));
  }

  jumpBy(move) {
    const before = this.cursor;
    move();
    if (this.cursor !== before) this.address.add(before);
  }

  /** Goes to a moment, and to the walk that it is part of. */
  goTo(at) {
    const isInside = this.walk && at >= this.walk.start && at < this.walk.end;
    const number = isInside ? NOWHERE : walkOfMoment(this.model, at);
    if (number === NOWHERE) this.seek(at);
    else this.takeWalk(number, at);
  }

  /** How far Page Up and Page Down go. */
  stride() {
    return Math.max(Math.round(this.model.count / 40), 1);
  }

  /** Shows a walk, at a moment or at its last visit. */
  takeWalk(number, at = null) {
    this.walk = makeWalk(this.model, number);
    byId("walk").value = String(number);
    this.matrix.takeWalk();
    tellWalk(this);
    this.showWalk();
    this.seek(at ?? this.walk.visitAt.at(-1) ?? this.walk.end - 1);
    this.refresh("cursor");
  }

  setFollowing(isFollowing) {
    this.matrix.isFollowing = isFollowing;
    byId("follow").checked = isFollowing;
    this.refresh(isFollowing ? "cursor" : "matrix");
  }

  setTime(isTime) {
    this.axis.setTime(isTime);
    this.refresh("axis");
  }

  showWalk() {
    if (!this.walk) return this.showAll();
    this.axis.show(this.walk.start, this.walk.end);
    chooseLanes(this, this.walk.start, this.walk.end);
    return this.refresh("axis");
  }

  showAll() {
    this.axis.show(0, this.model.count);
    chooseLanes(this, 0, this.model.count);
    this.refresh("axis");
  }

  zoomAxis(factor) {
    this.axis.zoom(factor, this.axis.middleOf(this.cursor));
    this.refresh("axis");
  }

  /** Plus and minus zoom the matrix while it has the focus, else the axis. */
  zoomFocused(factor) {
    if (this.isMatrixFocused()) this.matrix.zoomAboutNow(factor);
    else this.zoomAxis(1 / factor);
  }

  fitFocused() {
    if (this.isMatrixFocused()) this.matrix.fit();
    else this.showWalk();
  }

  isMatrixFocused() {
    return this.walk !== null && document.activeElement === this.matrix.canvas;
  }

  repaint() {
    readPalette();
    for (const part of ["matrix", "axis", "cursor"]) this.refresh(part);
  }
}

/** Windows in the order of their first event: the first is drawn as left, the second as right. */
function rankWindows(model) {
  const rank = new Array(model.windows.length).fill(Infinity);
  let next = 0;
  for (let at = 0; at < model.count && next < 2; at++) {
    const window = model.keyWindow[model.key[at]];
    const isNew = model.keyPage[model.key[at]] >= 0 && rank[window] === Infinity;
    if (isNew) rank[window] = next++;
  }
  return rank;
}

function tellPosition(app) {
  const { model, cursor, walk } = app;
  setText(byId("position"), `event ${whole(model.seq[cursor])} · ${timed(model.time[cursor], 6)}`);
  byId("scrubber").setAttribute("aria-valuetext", `${momentText(model, cursor)}: ${eventTitle(model, cursor)}`);
  document.body.dataset.cursor = cursor;
  const stretch = stretchAt(model, cursor);
  for (const badge of document.querySelectorAll(".mode-badge")) {
    setText(badge, modeText(model, cursor));
    badge.dataset.mode = stretch ? modeInk(stretch.mode) : "";
    badge.title = stretch ? shown(stretch.reason) : "";
  }
  if (!walk) return;
  const visited = visitedBy(walk, cursor);
  setText(byId("visited"), `${whole(visited)} of ${whole(walk.pairs)} pairs visited`);
  document.body.dataset.visited = visited;
}

function tellWalk(app) {
  const { walk } = app;
  const [left, right] = walk.names.map((name) => cut(shown(name), 40));
  const sides = walk.is_self
    ? `${left} with itself: ${plural(walk.left.length, "page")}`
    : `${whole(walk.left.length)} × ${whole(walk.right.length)} pages`;
  const outcome = walk.outcome === "done" ? "" : ` · ${shown(walk.outcome) || "not finished in this trace"}`;
  setText(byId("walk-facts"), `${sides} · planned for ${plural(walk.frames, "frame")} · `
    + `${whole(walk.page_reads)} reads planned, ${whole(walk.walkLoads.length)} made${outcome}`
    + (walk.is_contested ? " · walks overlap; what they share can't be told apart" : ""));
  setText(byId("explain"), walk.explain.split("\n").map(shown).join("\n"));
  app.matrix.canvas.setAttribute("aria-label",
    `Pair matrix: columns are pages of ${left}, rows are pages of ${right}`);
}

function makeWalkOptions(app) {
  addOptions(byId("walk"), app.model.layouts.map((layout, number) => {
    const [left, right] = layout.names.map((name) => cut(shown(name), 24));
    const sides = layout.is_self ? `${left} with itself` : `${left} × ${right}`;
    return [String(number), `${number + 1}: ${sides}, ${shown(layout.mode)}, ${whole(layout.pairs)} pairs`];
  }));
}

/** Only the modes that occur are explained. */
function chooseLegend(model) {
  const found = new Set(model.modeNames.map(modeInk));
  if (found.size === 0) found.add("plain");
  for (const item of document.querySelectorAll(".legend [data-mode]")) {
    item.hidden = !found.has(item.dataset.mode);
  }
}

async function startApp(model) {
  const app = new App(model);
  readPalette();
  tellFacts(app);
  makeTiles(app);
  tellCheck(app);
  makeLogFilters(app);
  await breathe();
  byId("app").hidden = false;
  byId("loading").hidden = true;
  document.body.classList.toggle("has-walk", model.layouts.length > 0);
  makeWalkOptions(app);
  chooseLegend(model);
  byId("scrubber").max = model.count - 1;
  openMoment(app);
  app.help = new Help(app);
  app.address = new Address(app);
  app.player = new Player(app);
  listenToControls(app);
  listenToChart(app, "timeline", hoverTimeline);
  listenToChart(app, "lanes", hoverLanes);
  listenToChart(app, "hit-rate", hoverPlot);
  listenToChart(app, "bytes", hoverPlot);
  listenToSurroundings(app);
  app.repaint();
}

/** Begins where the address says, else at the end of the first walk or of the trace. */
function openMoment(app) {
  const { model } = app;
  const named = momentOfAddress(model);
  if (model.layouts.length > 0) app.takeWalk(0);
  else {
    app.showAll();
    app.seek(model.count - 1);
  }
  if (named !== NOWHERE) app.goTo(named);
}

function listenToSurroundings(app) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => app.repaint());
  const sizes = () => `${innerWidth} ${byId("app").clientWidth} ${devicePixelRatio}`;
  let before = sizes();
  new ResizeObserver(() => {
    if (sizes() === before) return; // a list that grew, or the first call
    before = sizes();
    if (app.walk) app.matrix.fit();
    app.repaint();
  }).observe(byId("app"));
}

function tellLoading(share, what) {
  byId("loading-bar").value = share;
  setText(byId("loading-text"), `Opening the trace: ${what} …`);
}

async function main() {
  const trace = await decodeTrace((share, what) => tellLoading(share * 0.6, what));
  const model = makeModel(trace);
  if (model.count === 0) {
    setText(byId("loading-text"), `${shown(model.head.name)} is a trace without events.`);
    byId("loading-bar").hidden = true;
    return "empty";
  }
  await deriveModel(model, (share, what) => tellLoading(0.6 + share * 0.4, what));
  await startApp(model);
  await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
  return "ready";
}

main().then(
  (state) => (document.body.dataset.state = state),
  (error) => {
    document.body.dataset.state = "failed";
    setText(byId("loading-text"), `This page can't be shown: ${error.message}. Write it again with matwin trace html.`);
    console.error(error);
  },
);
