// ── palette: colours from the style sheet, hatches, sharp canvases ──────────────────────────────
//
// Colours are Okabe and Ito's, told apart by all common kinds of sight.  They never stand alone:
// left and right pages differ in their hatch, re-reads in their shape, modes in their pattern.

const INKS = ["panel", "ink", "muted", "line", "grid", "left", "right", "other", "reread", "reach",
  "now", "plain", "gallop", "crabstep", "lookahead"];
const palette = { ink: {}, rgb: {}, hatches: new Map() };

/** Asks an element for the colours: a variable itself does not tell which of light and dark holds. */
function readPalette() {
  const probe = element("span");
  document.body.append(probe);
  const style = getComputedStyle(probe);
  for (const name of INKS) {
    probe.style.color = `var(--${name})`;
    palette.ink[name] = style.color;
    palette.rgb[name] = style.color.match(/\d+/g).slice(0, 3).map(Number);
  }
  palette.font = style.fontFamily;
  palette.hatches.clear();
  probe.remove();
}

function faded(name, alpha) {
  const [r, g, b] = palette.rgb[name];
  return `rgb(${r} ${g} ${b} / ${alpha})`;
}

function textFont(pixels, weight = 400) {
  return `${weight} ${pixels}px ${palette.font}`;
}

/** The colour of a visited pair or stretch of the ribbon, by the name of its mode. */
function modeInk(mode) {
  return ["gallop", "crabstep", "lookahead"].includes(mode) ? mode : "plain";
}

/** A pattern of lines: "single" (left pages), "double" (right pages), "dots". */
function hatch(context, kind, ink, gap = 5) {
  const name = `${kind} ${ink} ${gap}`;
  if (!palette.hatches.has(name)) palette.hatches.set(name, makeHatch(context, kind, ink, gap));
  return palette.hatches.get(name);
}

function makeHatch(context, kind, ink, gap) {
  const ratio = Math.ceil(devicePixelRatio);
  const tile = document.createElement("canvas");
  tile.width = tile.height = gap * ratio;
  const inside = tile.getContext("2d");
  inside.scale(ratio, ratio);
  inside.strokeStyle = inside.fillStyle = ink;
  inside.lineWidth = 1.2;
  if (kind === "dots") dotTile(inside, gap);
  else lineTile(inside, gap, kind === "double");
  const pattern = context.createPattern(tile, "repeat");
  pattern.setTransform(new DOMMatrix().scale(1 / ratio));
  return pattern;
}

function lineTile(inside, gap, isDouble) {
  inside.beginPath();
  for (const shift of [-gap, 0, gap]) {
    inside.moveTo(shift - 1, gap + 1);
    inside.lineTo(shift + gap + 1, -1);
    if (!isDouble) continue;
    inside.moveTo(shift - 1, -1);
    inside.lineTo(shift + gap + 1, gap + 1);
  }
  inside.stroke();
}

function dotTile(inside, gap) {
  inside.beginPath();
  inside.arc(gap / 2, gap / 2, 1, 0, 7);
  inside.fill();
}

/** Fits a canvas to its place on the page in device pixels, and clears it; null while hidden. */
function freshContext(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  if (width === 0 || height === 0) return null;
  const ratio = devicePixelRatio;
  const wide = Math.round(width * ratio);
  const high = Math.round(height * ratio);
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** The ink and hatch of a page's side: the first window is left, the others of the walk are right. */
function sideOfWindow(app, window) {
  if (app.walk && !app.walk.is_self) {
    const name = app.model.windows[window];
    if (name === app.walk.names[0]) return "left";
    return app.walk.rights.includes(name) ? "right" : "other";
  }
  return ["left", "right"][app.windowRank[window]] ?? "other";
}
