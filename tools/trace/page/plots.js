// ── plots: hit rate and bytes along the common axis ─────────────────────────────────────────────

const RATE_STEP = 8; // pixels that the hit rate of a stretch is taken over
const PLOT_PAD = 6;

function drawPlots(app) {
  drawRate(app);
  drawBytes(app);
  drawTicks(app);
}

function drawRate(app) {
  const canvas = byId("hit-rate");
  const context = freshContext(canvas);
  if (!context) return;
  const scale = plotScale(canvas, 1);
  drawStretchRates(context, app, scale);
  const { hits, reads } = app.model.counts;
  const soFar = (at) => (hits[at] + reads[at] ? hits[at] / (hits[at] + reads[at]) : null);
  drawCurve(context, app, scale, soFar, { ink: "ink", width: 2, dash: [] });
  drawLevels(context, scale, [0, 0.5, 1], (share) => `${share * 100}%`);
}

/** Bars of the hit rate of each stretch; none where no page was used. */
function drawStretchRates(context, app, scale) {
  const { hits, reads } = app.model.counts;
  context.fillStyle = faded("left", 0.32);
  for (const { x, first, limit } of binsOf(app.axis, scale.width, RATE_STEP)) {
    const found = hits[limit] - hits[first];
    const uses = found + reads[limit] - reads[first];
    if (uses === 0) continue;
    const top = scale.y(found / uses);
    context.fillRect(x, top, RATE_STEP - 1, Math.max(scale.y(0) - top, 1));
  }
}

function drawBytes(app) {
  const canvas = byId("bytes");
  const context = freshContext(canvas);
  if (!context) return;
  const { bytesRead, bytesWritten } = app.model.counts;
  const count = app.model.count;
  const most = Math.max(bytesRead[count], bytesWritten[count], 1);
  const scale = plotScale(canvas, most);
  drawCurve(context, app, scale, (at) => bytesRead[at], { ink: "left", width: 2, dash: [] });
  drawCurve(context, app, scale, (at) => bytesWritten[at], { ink: "right", width: 2, dash: [5, 3] });
  drawLevels(context, scale, [0, most / 2, most], sized);
}

function plotScale(canvas, most) {
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const y = (value) => height - PLOT_PAD - (value / most) * (height - 2 * PLOT_PAD);
  return { width, height, y };
}

/** Lines and labels of the vertical axis; a halo keeps labels readable on curves. */
function drawLevels(context, scale, levels, label) {
  context.font = textFont(10);
  context.lineWidth = 3;
  context.strokeStyle = palette.ink.panel;
  context.textAlign = "right";
  for (const level of levels) {
    const y = sharp(scale.y(level));
    context.fillStyle = palette.ink.line;
    context.fillRect(0, y, scale.width, 0.6);
    context.fillStyle = palette.ink.muted;
    context.textBaseline = level === levels.at(-1) ? "top" : "bottom";
    const place = [label(level), scale.width - 4, y + (level === levels.at(-1) ? 3 : -2)];
    context.strokeText(...place);
    context.fillText(...place);
  }
}

/** A line through the values before each event; null breaks it. */
function drawCurve(context, app, scale, valueAt, { ink, width, dash }) {
  context.strokeStyle = palette.ink[ink];
  context.lineWidth = width;
  context.lineJoin = "round";
  context.setLineDash(dash);
  context.beginPath();
  let isDown = false;
  let before = 0;
  const put = (x, value) => {
    if (isDown) {
      context.lineTo(x, scale.y(before)); // counts jump at an event: steps, no slopes
      context.lineTo(x, scale.y(value));
    } else context.moveTo(x, scale.y(value));
    isDown = true;
    before = value;
  };
  for (const { x, first, limit } of binsOf(app.axis, scale.width, 1)) {
    const value = valueAt(limit);
    if (value !== null) put(isDown ? x + 1 : app.axis.toX(app.axis.valueOf(first), scale.width), value);
  }
  if (isDown) context.lineTo(scale.width, scale.y(before));
  context.stroke();
  context.setLineDash([]);
}

function drawTicks(app) {
  const canvas = byId("ticks");
  const context = freshContext(canvas);
  if (!context) return;
  const width = canvas.clientWidth;
  context.font = textFont(11);
  context.textBaseline = "top";
  for (const value of app.axis.ticks(width / 130)) {
    const x = app.axis.toX(value, width);
    const text = app.axis.label(value);
    const half = context.measureText(text).width / 2;
    context.fillStyle = palette.ink.line;
    context.fillRect(x - 0.5, 0, 1, 5);
    context.fillStyle = palette.ink.muted;
    context.textAlign = "center";
    context.fillText(text, clamp(x, half, width - half), 8);
  }
}

/** The values at the cursor, beside the plots. */
function tellPlots(app) {
  const { hits, reads, bytesRead, bytesWritten } = app.model.counts;
  const at = app.cursor + 1;
  setText(byId("hit-rate-now"), percent(hits[at], hits[at] + reads[at]));
  setText(byId("bytes-read-now"), sized(bytesRead[at]));
  setText(byId("bytes-written-now"), sized(bytesWritten[at]));
}

function hoverPlot(app, event) {
  const at = app.axis.eventAt(event.offsetX, event.target.clientWidth) + 1;
  const { hits, reads, rereads, bytesRead, bytesWritten } = app.model.counts;
  showTip(event, momentText(app.model, at - 1), [
    ["hit rate so far", percent(hits[at], hits[at] + reads[at])],
    ["hits, reads", `${whole(hits[at])}, ${whole(reads[at])}`],
    ["re-reads", whole(rereads[at])],
    ["bytes read", sized(bytesRead[at])],
    ["bytes written", sized(bytesWritten[at])],
  ]);
}
