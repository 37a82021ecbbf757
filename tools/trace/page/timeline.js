// ── timeline: modes, reads under way, visits, loads and re-reads along the common axis ──────────

const ROWS = { mode: [4, 18], reading: [28, 9], visiting: [43, 9], loads: [60, 34], rereads: [101, 14] };
const LOAD_STEP = 3; // pixels that loads are counted together for
const DIAMOND = 5;

function drawTimeline(app) {
  const canvas = byId("timeline");
  const context = freshContext(canvas);
  if (!context) return;
  const width = canvas.clientWidth;
  drawRibbon(context, app, width);
  drawEpochs(context, app, width);
  drawSpans(context, app, width, ROWS.reading, readSpans(app.model), "left");
  drawSpans(context, app, width, ROWS.visiting, app.model.visits, "now");
  drawLoadBars(context, app, width);
  drawRereads(context, app, width);
  drawTimelineHead(app);
}

function drawTimelineHead(app) {
  const context = freshContext(byId("timeline-head"));
  const labels = { mode: hasEpochRibbon(app.model) ? "epoch" : "mode", reading: "disk reads", visiting: "visits", rereads: "re-reads" };
  for (const [name, label] of Object.entries(labels)) {
    headLabel(context, label, ROWS[name][0] + ROWS[name][1] / 2);
  }
  const [top, height] = ROWS.loads;
  headLabel(context, app.walk ? "left loads ▲" : "loads ▲", top + height * 0.25);
  if (app.walk && !app.walk.is_self) headLabel(context, "right loads ▼", top + height * 0.78);
}

function headLabel(context, text, y, ink = "muted", weight = 400) {
  const width = context.canvas.clientWidth;
  context.font = textFont(11.5, weight);
  context.textAlign = "right";
  context.textBaseline = "middle";
  context.fillStyle = palette.ink[ink];
  context.fillText(text, width - 10, y, width - 12);
}

function drawRibbon(context, app, width) {
  const [top, height] = ROWS.mode;
  context.fillStyle = faded("line", 0.5);
  context.fillRect(0, top + height / 2 - 0.5, width, 1);
  let lastRight = -1;
  for (const stretch of app.model.stretches) {
    const left = app.axis.toX(app.axis.valueOf(stretch.start), width);
    const right = app.axis.toX(app.axis.valueOf(stretch.end), width);
    if (right < 0 || left > width || right - lastRight < 0.5) continue;
    drawStretch(context, stretch, left, Math.max(right, left + 1), top, height);
    lastRight = right;
  }
}

function drawStretch(context, stretch, left, right, top, height) {
  const name = modeInk(stretch.mode);
  context.fillStyle = palette.ink[name];
  context.fillRect(left, top, right - left, height);
  const pattern = { crabstep: "single", lookahead: "dots" }[name];
  if (pattern) {
    context.fillStyle = hatch(context, pattern, faded("ink", 0.22), 6);
    context.fillRect(left, top, right - left, height);
  }
  if (right - left > 4) {
    context.fillStyle = palette.ink.muted;
    context.fillRect(left, top, 1, height);
  }
  ribbonText(context, shown(stretch.mode), Math.max(left, 0), right, top + height / 2);
}

function ribbonText(context, text, left, right, y) {
  context.font = textFont(11, 600);
  const size = context.measureText(text).width;
  const room = Math.min(right, context.canvas.clientWidth) - left;
  if (room < size + 14) return;
  context.fillStyle = palette.ink.ink;
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillText(text, left + 7, y + 0.5);
}

/** A continuous query has epochs; where nothing is walked, they take the place of the modes. */
function hasEpochRibbon(model) {
  return model.summary.epochs.length > 0 && model.stretches.length === 0;
}

/** Epochs as a ribbon, every other one shaded, and a line through everything where one ends. */
function drawEpochs(context, app, width) {
  const [top, height] = ROWS.mode;
  const isRibbon = hasEpochRibbon(app.model);
  let drawn = -1; // a million epochs are at most two rectangles a pixel
  app.model.summary.epochs.forEach((epoch, at) => {
    const left = app.axis.toX(app.axis.valueOf(epoch.start), width);
    const right = app.axis.toX(app.axis.valueOf(epoch.end + 1), width);
    if (right < 0 || left > width || right - drawn < 0.5) return;
    drawn = right;
    if (isRibbon) {
      context.fillStyle = at % 2 ? palette.ink.gallop : faded("gallop", 0.45);
      context.fillRect(left, top, Math.max(right - left, 1), height);
      const name = String(epoch.epoch);
      ribbonText(context, right - left > 90 ? `epoch ${name}` : name, Math.max(left, 0), right, top + height / 2);
    }
    if (right - left < 3) return;
    context.fillStyle = faded("muted", 0.6);
    context.fillRect(right - 0.5, top, 1, ROWS.rereads[0] + ROWS.rereads[1] - top);
  });
}

/** The epoch that an event is of, if any. */
function epochAt(model, moment) {
  const at = upperBound(model.epochEnds ??= model.summary.epochs.map((epoch) => epoch.end), moment - 1);
  const epoch = model.summary.epochs[at];
  return epoch && epoch.start <= moment ? epoch : null;
}

/** Where reads begin and end.  Reads begin in the order in which they end, but for two workers. */
function readSpans(model) {
  model.readSpans ??= {
    starts: Int32Array.from(model.loads, (load) => model.fetchOf[load]),
    ends: model.loads,
    reached: model.loads,
  };
  return model.readSpans;
}

function drawSpans(context, app, width, [top, height], spans, ink) {
  context.fillStyle = faded("line", 0.35);
  context.fillRect(0, top, width, height);
  context.fillStyle = palette.ink[ink];
  const last = app.axis.eventAt(width, width);
  const from = upperBound(spans.reached, app.axis.eventAt(0, width) - 1);
  let drawn = -1; // how far it is drawn: a million spans are at most two rectangles a pixel
  for (let at = from; at < spans.starts.length && spans.starts[at] <= last; at++) {
    const right = app.axis.toX(app.axis.valueOf(spans.ends[at]), width);
    if (right - drawn < 0.5) continue;
    const left = Math.max(app.axis.toX(app.axis.valueOf(spans.starts[at]), width), drawn);
    context.fillRect(left, top, Math.max(right - left, 0.6), height);
    drawn = right;
  }
}

/** Bars of loads, left pages upward and right pages downward. */
function drawLoadBars(context, app, width) {
  const [top, height] = ROWS.loads;
  const middle = top + height / 2;
  const bins = loadBins(app, width);
  const most = bins.reduce((found, bin) => Math.max(found, bin.left, bin.right), 1);
  for (const bin of bins) {
    drawLoadBar(context, bin.x, middle - 1, -(bin.left / most) * (height / 2 - 1), "left");
    drawLoadBar(context, bin.x, middle + 1, (bin.right / most) * (height / 2 - 1), "right");
  }
  context.fillStyle = palette.ink.line;
  context.fillRect(0, middle - 0.5, width, 1);
}

function drawLoadBar(context, x, y, height, side) {
  if (height === 0) return;
  context.fillStyle = palette.ink[side];
  context.fillRect(x, y, LOAD_STEP - 1, height);
}

function loadBins(app, width) {
  const { model, axis } = app;
  const bins = [];
  const [from, to] = loadsInView(app, model.loads, width);
  for (let at = from; at < to; at++) {
    const load = model.loads[at];
    const x = Math.floor(axis.toX(axis.middleOf(load), width) / LOAD_STEP) * LOAD_STEP;
    if (bins.at(-1)?.x !== x) bins.push({ x, left: 0, right: 0 });
    const isRight = app.walk && sideOfWindow(app, model.keyWindow[model.key[load]]) === "right";
    bins.at(-1)[isRight ? "right" : "left"] += 1;
  }
  return bins;
}

function loadsInView(app, loads, width) {
  const first = app.axis.eventAt(0, width);
  const last = app.axis.eventAt(width, width);
  return [upperBound(loads, first - 1), upperBound(loads, last)];
}

/** A diamond for each re-read; where they are too close, a line joins them. */
function drawRereads(context, app, width) {
  const [top, height] = ROWS.rereads;
  const y = top + height / 2;
  context.fillStyle = palette.ink.reread;
  const [from, to] = loadsInView(app, app.model.rereads, width);
  let last = -Infinity;
  let joined = -Infinity;
  for (let at = from; at < to; at++) {
    const x = app.axis.toX(app.axis.middleOf(app.model.rereads[at]), width);
    if (x - joined >= 1) {
      context.fillRect(x - 0.5, y - 3, 1, 6);
      joined = x;
    }
    if (x - last < DIAMOND * 2) continue;
    markShape(context, x, y, DIAMOND * 0.9, DIAMOND * 0.8, true);
    context.fill();
    last = x;
  }
}

function hoverTimeline(app, event) {
  const width = event.target.clientWidth;
  const load = loadNear(app, event.offsetX, width, event.offsetY >= ROWS.rereads[0] - 3);
  if (event.offsetY > ROWS.reading[0] && load >= 0) {
    return showTip(event, pageName(app.model, app.model.key[load]), loadLines(app.model, load));
  }
  const stretch = stretchAt(app.model, app.axis.eventAt(event.offsetX, width));
  if (!stretch) return hoverEpoch(app, event, width);
  return showTip(event, shown(stretch.mode), [
    ["why", shown(stretch.reason)],
    ["from", momentText(app.model, stretch.start)],
    ["for", plural(stretch.end - stretch.start, "event")],
  ]);
}

function hoverEpoch(app, event, width) {
  const epoch = epochAt(app.model, app.axis.eventAt(event.offsetX, width));
  if (!epoch) return hideTip();
  return showTip(event, `epoch ${epoch.epoch}`, [
    ["pages", `${whole(epoch.makes)} made, ${whole(epoch.reads)} read, ${whole(epoch.expiries)} expired`],
    ["from", momentText(app.model, epoch.start)],
    ["for", plural(epoch.end - epoch.start + 1, "event")],
  ]);
}

/** The load nearest to a place, if it is near enough to be meant. */
function loadNear(app, x, width, isReread) {
  const loads = isReread ? app.model.rereads : app.model.loads;
  const next = upperBound(loads, app.axis.eventAt(x, width));
  const far = (load) => Math.abs(app.axis.toX(app.axis.middleOf(load), width) - x);
  const [best] = [next - 1, next]
    .filter((at) => at >= 0 && at < loads.length)
    .map((at) => loads[at])
    .sort((a, b) => far(a) - far(b));
  return best !== undefined && far(best) <= 6 ? best : NOWHERE;
}
