// ── matrix: the pair matrix of the chosen walk; zoom, pan, heads ────────────────────────────────

const HEAD_WIDTH = 76; // room for the rows' heads, at the left
const HEAD_HEIGHT = 62; // room for the columns' heads, at the top
const CELL_MOST = 96;
const CELLS_FROM = 7; // pixels of a cell below which pairs are drawn as density
const BAR = 16; // height of the bars that count reads

/** What can be seen: pixels of a cell, and where the first page begins. */
class View {
  constructor() {
    this.cell = 1;
    this.left = HEAD_WIDTH;
    this.top = HEAD_HEIGHT;
  }

  x(column) {
    return this.left + column * this.cell;
  }

  y(row) {
    return this.top + row * this.cell;
  }

  /** The pages that can be seen, both ends included. */
  aim(walk, width, height) {
    const last = [Math.max(walk.left.length - 1, 0), Math.max(walk.right.length - 1, 0)];
    this.c0 = clamp(Math.floor((HEAD_WIDTH - this.left) / this.cell), 0, last[0]);
    this.r0 = clamp(Math.floor((HEAD_HEIGHT - this.top) / this.cell), 0, last[1]);
    this.c1 = clamp(Math.floor((width - this.left) / this.cell), 0, last[0]);
    this.r1 = clamp(Math.floor((height - this.top) / this.cell), 0, last[1]);
  }

  fit(walk, width, height) {
    const wide = (width - HEAD_WIDTH - 8) / Math.max(walk.left.length, 1);
    const high = (height - HEAD_HEIGHT - 8) / Math.max(walk.right.length, 1);
    this.cell = Math.min(wide, high, CELL_MOST);
    this.fitted = this.cell;
    this.left = HEAD_WIDTH;
    this.top = HEAD_HEIGHT;
  }

  zoom(factor, x, y) {
    const cell = clamp(this.cell * factor, Math.min(this.fitted * 0.8, CELL_MOST), CELL_MOST);
    this.left = x - ((x - this.left) * cell) / this.cell;
    this.top = y - ((y - this.top) * cell) / this.cell;
    this.cell = cell;
  }

  /** Some of the matrix stays on the screen. */
  hold(walk, width, height) {
    const wide = walk.left.length * this.cell;
    const high = walk.right.length * this.cell;
    this.left = clamp(this.left, Math.min(width - wide - 8, HEAD_WIDTH), HEAD_WIDTH);
    this.top = clamp(this.top, Math.min(height - high - 8, HEAD_HEIGHT), HEAD_HEIGHT);
  }
}

class Matrix {
  constructor(app) {
    this.app = app;
    this.canvas = byId("matrix");
    this.view = new View();
    this.isFollowing = true;
    listenToMatrix(this);
  }

  /** Begins anew with the walk that was chosen. */
  takeWalk() {
    this.density = new Density(this.app.model, this.app.walk);
    this.reads = new ReadCounts(this.app.model, this.app.walk);
    this.fit();
  }

  fit() {
    this.view.fit(this.app.walk, this.canvas.clientWidth, this.canvas.clientHeight);
    this.app.refresh("matrix");
  }

  zoom(factor, x, y) {
    this.view.zoom(factor, x, y);
    this.app.refresh("matrix");
  }

  /** Zooms about the pair being visited while that is in sight, else about the middle. */
  zoomAboutNow(factor) {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const now = this.nowPlace();
    const isInSight = now && now.x >= HEAD_WIDTH && now.x <= width && now.y >= HEAD_HEIGHT && now.y <= height;
    this.zoom(factor, isInSight ? now.x : width / 2, isInSight ? now.y : height / 2);
  }

  /** Where the pair that is being visited, or was last, lies on the canvas. */
  nowPlace() {
    const { walk, cursor } = this.app;
    const last = visitedBy(walk, cursor) - 1;
    if (last < 0) return null;
    const half = this.view.cell / 2;
    return { x: this.view.x(walk.column[last]) + half, y: this.view.y(walk.row[last]) + half };
  }

  draw() {
    const { app, view } = this;
    const context = app.walk && freshContext(this.canvas);
    if (!context) return;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    view.hold(app.walk, width, height);
    view.aim(app.walk, width, height);
    if (app.walk.left.length > 0 && app.walk.right.length > 0) {
      this.drawInside(context, width, height);
      this.drawHeads(context, width, height);
    }
    drawSideNames(context, app);
    this.canvas.dataset.view = [view.cell, view.left, view.top].join(" ");
  }

  /** Brings the pair being visited into sight.  Not at every drawing: that would fight the wheel. */
  follow() {
    const now = this.isFollowing && this.nowPlace();
    if (!now) return;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (now.x < HEAD_WIDTH || now.x > width) this.view.left += (HEAD_WIDTH + width) / 2 - now.x;
    if (now.y < HEAD_HEIGHT || now.y > height) this.view.top += (HEAD_HEIGHT + height) / 2 - now.y;
  }

  drawInside(context, width, height) {
    const { app, view } = this;
    context.save();
    context.beginPath();
    context.rect(HEAD_WIDTH, HEAD_HEIGHT, width - HEAD_WIDTH, height - HEAD_HEIGHT);
    context.clip();
    drawBands(context, app, view);
    if (view.cell >= CELLS_FROM) drawCells(context, app, view, app.cursor);
    else this.density.draw(context, view, app.cursor);
    drawNow(context, app, view, app.cursor);
    context.restore();
  }

  drawHeads(context, width, height) {
    const { app, view } = this;
    const counts = this.reads.moveTo(app.cursor);
    const held = heldKeys(app.model, app.cursor);
    const clipped = (x, y, wide, high, draw) => {
      context.save();
      context.beginPath();
      context.rect(x, y, wide, high);
      context.clip();
      draw();
      context.restore();
    };
    clipped(HEAD_WIDTH, 0, width, HEAD_HEIGHT, () => drawColumnHeads(context, app, view, counts, held));
    clipped(0, HEAD_HEIGHT, HEAD_WIDTH, height, () => drawRowHeads(context, app, view, counts, held));
  }

  /** The cell at a place on the canvas, or null outside of the matrix. */
  cellAt(x, y) {
    const { view, app } = this;
    if (!app.walk || x < HEAD_WIDTH || y < HEAD_HEIGHT) return null;
    const column = Math.floor((x - view.left) / view.cell);
    const row = Math.floor((y - view.top) / view.cell);
    const isInside = column >= 0 && row >= 0;
    if (!isInside || column >= app.walk.left.length || row >= app.walk.right.length) return null;
    return { column, row };
  }
}

/** Which pages are in frames at a moment. */
function heldKeys(model, moment) {
  const held = new Set();
  for (const lane of model.frames) {
    const stay = stayAt(lane, moment);
    if (stay >= 0) held.add(lane.keys[stay]);
  }
  return held;
}

/** Bands through the matrix for the pages of the pair that is being visited. */
function drawBands(context, app, view) {
  const last = visitedBy(app.walk, app.cursor) - 1;
  if (last < 0 || app.cursor >= app.walk.end) return;
  const size = Math.max(view.cell, 2);
  const [wide, high] = [app.walk.left.length * view.cell, app.walk.right.length * view.cell];
  context.fillStyle = faded("left", 0.09);
  context.fillRect(view.x(app.walk.column[last]), view.top, size, high);
  context.fillStyle = faded(app.walk.is_self ? "left" : "right", 0.09);
  context.fillRect(view.left, view.y(app.walk.row[last]), wide, size);
}

function drawColumnHeads(context, app, view, counts, held) {
  const most = Math.max(2, largest(counts.columns, view.c0, view.c1));
  const base = HEAD_HEIGHT - 22;
  eachHead(view.c0, view.c1, view.cell, (first, limit) => {
    const x = view.x(first);
    const size = Math.max(view.cell * (limit - first), 1);
    const isHeld = anyHeld(app.walk.left, first, limit, held);
    const height = (BAR * largest(counts.columns, first, limit - 1)) / most;
    context.fillStyle = palette.ink.left;
    context.fillRect(x + gapOf(size), base - height, size - 2 * gapOf(size), height);
    headBox(context, x, HEAD_HEIGHT - 20, size, 18, isHeld, "left");
    headText(context, app, app.walk.left[first], x + size / 2, HEAD_HEIGHT - 11, size, isHeld);
  });
}

function drawRowHeads(context, app, view, counts, held) {
  const most = Math.max(2, largest(counts.rows, view.r0, view.r1));
  const base = HEAD_WIDTH - 38;
  eachHead(view.r0, view.r1, view.cell, (first, limit) => {
    const y = view.y(first);
    const size = Math.max(view.cell * (limit - first), 1);
    const isHeld = anyHeld(app.walk.right, first, limit, held);
    const width = (BAR * largest(counts.rows, first, limit - 1)) / most;
    context.fillStyle = palette.ink[app.walk.is_self ? "left" : "right"];
    context.fillRect(base - width, y + gapOf(size), width, size - 2 * gapOf(size));
    headBox(context, HEAD_WIDTH - 36, y, 34, size, isHeld, app.walk.is_self ? "left" : "right");
    if (size >= 11) headText(context, app, app.walk.right[first], HEAD_WIDTH - 19, y + size / 2, 32, isHeld);
  });
}

/** Calls back for each page, or for each pixel's worth of them. */
function eachHead(first, last, cell, draw) {
  const step = Math.max(1, Math.ceil(1 / cell));
  for (let at = first - (first % step); at <= last; at += step) {
    draw(at, Math.min(at + step, last + 1));
  }
}

function gapOf(size) {
  return size > 8 ? Math.min(size * 0.2, 8) : 0;
}

function largest(counts, first, last) {
  let most = 0;
  for (let at = first; at <= last; at++) most = Math.max(most, counts[at]);
  return most;
}

function anyHeld(keys, first, limit, held) {
  for (let at = first; at < limit; at++) if (held.has(keys[at])) return true;
  return false;
}

function headBox(context, x, y, width, height, isHeld, side) {
  const gap = Math.min(width, height) > 6 ? 1 : 0;
  if (!isHeld && Math.min(width, height) < 4) return;
  context.fillStyle = isHeld ? palette.ink[side] : palette.ink.reach;
  context.fillRect(x + gap, y + gap, Math.max(width - 2 * gap, 1), Math.max(height - 2 * gap, 1));
}

function headText(context, app, key, x, y, room, isHeld) {
  if (room < 15) return;
  const page = String(app.model.keyPage[key]);
  context.font = textFont(room < 24 ? 9 : 11, isHeld ? 700 : 400);
  if (context.measureText(page).width > room - 3) return;
  context.fillStyle = isHeld ? palette.ink.panel : palette.ink.muted;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillText(page, x, y + 0.5);
}

function drawSideNames(context, app) {
  const [left, right] = app.walk.names.map((name) => cut(shown(name), 40));
  context.font = textFont(12, 600);
  context.textBaseline = "middle";
  context.textAlign = "left";
  context.fillStyle = palette.ink.left;
  context.fillText(`${left} →`, HEAD_WIDTH + 2, 10);
  context.save();
  context.translate(11, HEAD_HEIGHT + 4);
  context.rotate(-Math.PI / 2);
  context.textAlign = "right";
  context.fillStyle = palette.ink[app.walk.is_self ? "left" : "right"];
  context.fillText(`← ${right}`, 0, 0);
  context.restore();
}
