// ── cells: the matrix from nearby, pair by pair, loads marked as in the paper's figures ─────────
//
//   oval, single hatch    the left page was loaded for this pair      diamond instead of oval:
//   oval, double hatch    the right page was loaded for this pair     it had been read before

const HATCHED_FROM = 15; // pixels of a cell from which a hatch can be seen
const NUMBERED_FROM = 30;

/** Draws the pairs of the visible pages at a moment. */
function drawCells(context, app, view, moment) {
  drawReach(context, app.walk, view);
  drawVisited(context, app, view, moment);
  drawGrid(context, app.walk, view);
  eachVisible(app.walk, view, (visit, x, y) => drawLoads(context, app, view, moment, visit, x, y));
}

function drawReach(context, walk, view) {
  context.fillStyle = palette.ink.reach;
  eachReach(walk, view, (x, y, height) => context.fillRect(x, y, view.cell, height));
}

function drawGrid(context, walk, view) {
  context.strokeStyle = palette.ink.grid;
  context.lineWidth = 1;
  context.beginPath();
  eachReach(walk, view, (x, y, height) => {
    for (let top = y; top < y + height - 0.5; top += view.cell) {
      context.rect(sharp(x), sharp(top), view.cell, view.cell);
    }
  });
  context.stroke();
}

function sharp(x) {
  return Math.round(x) + 0.5;
}

/** Calls back with the rectangle of each interval of rows that can be seen. */
function eachReach(walk, view, draw) {
  const { starts, first, limit } = walk.reach;
  for (let column = view.c0; column <= view.c1; column++) {
    for (let at = starts[column]; at < starts[column + 1]; at++) {
      const top = Math.max(first[at], view.r0);
      const bottom = Math.min(limit[at], view.r1 + 1);
      if (top < bottom) draw(view.x(column), view.y(top), (bottom - top) * view.cell);
    }
  }
}

/** Calls back with each visit, past or to come, whose cell can be seen. */
function eachVisible(walk, view, draw) {
  const { starts, rows, visits } = walk.byColumn;
  for (let column = view.c0; column <= view.c1; column++) {
    let at = upperBound(rows, view.r0 - 1, starts[column], starts[column + 1]);
    for (; at < starts[column + 1] && rows[at] <= view.r1; at++) {
      draw(visits[at], view.x(column), view.y(rows[at]));
    }
  }
}

function drawVisited(context, app, view, moment) {
  const { walk, model } = app;
  const inks = ["plain", ...model.modeNames.map(modeInk)].map((name) => palette.ink[name]);
  eachVisible(walk, view, (visit, x, y) => {
    if (walk.visitAt[visit] > moment) return;
    context.fillStyle = inks[walk.mode[visit]];
    context.fillRect(x, y, view.cell, view.cell);
    if (view.cell >= HATCHED_FROM) drawModeSign(context, app, view, visit, x, y);
    if (view.cell >= NUMBERED_FROM) drawNumber(context, view, visit, x, y);
  });
}

/** A corner for crabstep, a dot for lookahead: the colour of a mode is not its only sign. */
function drawModeSign(context, app, view, visit, x, y) {
  const mode = app.model.modeNames[app.walk.mode[visit] - 1];
  const size = clamp(view.cell / 7, 3, 8);
  const right = x + view.cell - 1;
  context.fillStyle = palette.ink.muted;
  context.beginPath();
  if (mode === "crabstep") {
    context.moveTo(right, y + 1);
    context.lineTo(right, y + 1 + size);
    context.lineTo(right - size, y + 1);
  } else if (mode === "lookahead") {
    context.arc(right - size / 2 - 2, y + size / 2 + 3, size / 2.6, 0, 7);
  }
  context.fill();
}

function drawNumber(context, view, visit, x, y) {
  context.font = textFont(clamp(view.cell / 4.6, 8, 13));
  context.textAlign = "left";
  context.textBaseline = "top";
  context.fillStyle = palette.ink.muted;
  context.fillText(visit + 1, x + 4, y + 4, view.cell - 12);
}

function drawLoads(context, app, view, moment, visit, x, y) {
  const left = loadedBy(app.walk.leftLoad[visit], moment);
  const right = loadedBy(app.walk.rightLoad[visit], moment);
  if (left < 0 && right < 0) return;
  const isBoth = left >= 0 && right >= 0;
  const middle = view.cell < NUMBERED_FROM ? 0.5 : isBoth ? 0.6 : 0.58;
  const shape = { width: view.cell * 0.36, height: view.cell * (isBoth ? 0.155 : 0.25) };
  const apart = isBoth ? shape.height + 0.8 : 0;
  const [centreX, centreY] = [x + view.cell / 2, y + view.cell * middle];
  if (left >= 0) drawLoad(context, app, view, left, "left", centreX, centreY - apart, shape);
  if (right >= 0) drawLoad(context, app, view, right, "right", centreX, centreY + apart, shape);
}

function loadedBy(load, moment) {
  return load <= moment ? load : NOWHERE;
}

function drawLoad(context, app, view, load, side, x, y, shape) {
  const isAgain = app.model.readNumber[load] > 1;
  markShape(context, x, y, shape.width, shape.height, isAgain);
  context.fillStyle = palette.ink.panel;
  context.fill();
  fillMark(context, side, view.cell);
  context.strokeStyle = palette.ink[isAgain ? "reread" : side];
  context.lineWidth = isAgain ? clamp(view.cell / 16, 1.5, 3) : 1.4;
  context.stroke();
}

/** A hatch where there is room for one; else left marks are hollow and right ones are full. */
function fillMark(context, side, cell) {
  if (cell >= HATCHED_FROM) {
    const gap = cell > 40 ? 6 : 4;
    context.fillStyle = hatch(context, side === "left" ? "single" : "double", palette.ink[side], gap);
    context.fill();
  } else if (side === "right") {
    context.fillStyle = palette.ink.right;
    context.fill();
  }
}

function markShape(context, x, y, width, height, isDiamond) {
  context.beginPath();
  if (isDiamond) {
    context.moveTo(x - width * 1.12, y);
    context.lineTo(x, y - height * 1.3);
    context.lineTo(x + width * 1.12, y);
    context.lineTo(x, y + height * 1.3);
    context.closePath();
  } else context.ellipse(x, y, width, height, 0, 0, 7);
}

/** Frames the pair that is being visited, or the last one that was. */
function drawNow(context, app, view, moment) {
  const last = visitedBy(app.walk, moment) - 1;
  if (last < 0 || moment >= app.walk.end) return;
  const dashes = isRunning(app.model, app.walk, last, moment) ? [] : [4, 3];
  const x = view.x(app.walk.column[last]);
  const y = view.y(app.walk.row[last]);
  const size = Math.max(view.cell, 7);
  const shift = (size - view.cell) / 2;
  context.strokeStyle = palette.ink.panel;
  context.lineWidth = 5;
  context.strokeRect(x - shift, y - shift, size, size);
  context.setLineDash(dashes);
  context.strokeStyle = palette.ink.now;
  context.lineWidth = 2.5;
  context.strokeRect(x - shift, y - shift, size, size);
  context.setLineDash([]);
}
