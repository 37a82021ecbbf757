// ── lanes: what each frame held over time ───────────────────────────────────────────────────────

const LANE_HEIGHTS = [[12, 24], [24, 18], [48, 14], [100, 7]]; // up to so many frames: pixels each
const LANES_HEIGHT_MOST = 560;
const STRIPES_BELOW = 6; // pixels of a lane below which stays are drawn as pixels

function laneHeight(frames) {
  const found = LANE_HEIGHTS.find(([most]) => frames <= most);
  return found ? found[1] : Math.max(LANES_HEIGHT_MOST / frames, 0);
}

/** Takes the frames that hold a page at some time between two events, and room for them. */
function chooseLanes(app, first, limit) {
  const isUsed = (lane) => lane.starts[upperBound(lane.ends, first)] < limit;
  app.lanes = app.model.frames.filter(isUsed);
  const height = Math.max(Math.ceil(laneHeight(app.lanes.length) * app.lanes.length), 24);
  for (const id of ["lanes", "lanes-head"]) byId(id).style.height = `${height}px`;
  const idle = app.model.frames.length - app.lanes.length;
  setText(byId("lanes-idle"), idle ? `${plural(idle, "frame")} not shown: empty in this walk` : "");
}

function drawLanes(app) {
  const canvas = byId("lanes");
  const context = freshContext(canvas);
  if (!context) return;
  const height = laneHeight(app.lanes.length);
  if (height < STRIPES_BELOW) drawStripes(context, app, canvas);
  else app.lanes.forEach((lane, at) => drawLane(context, app, lane, at * height, height));
}

function drawLane(context, app, lane, top, height) {
  const width = context.canvas.clientWidth;
  context.fillStyle = faded("line", 0.22);
  context.fillRect(0, top + 1, width, height - 2);
  const last = app.axis.eventAt(width, width);
  let stay = Math.max(upperBound(lane.ends, app.axis.eventAt(0, width)), 0);
  let drawn = -1;
  while (stay < lane.starts.length && lane.starts[stay] <= last) {
    drawn = drawStay(context, app, lane, stay, top, height, drawn);
    stay += 1;
    // Stays that end within the pixel that is drawn already can't be seen: jump over them.
    const next = app.axis.eventAt(drawn + 0.5, width);
    if (stay < lane.ends.length && lane.ends[stay] < next) stay = upperBound(lane.ends, next - 1, stay);
  }
}

/** Draws one stay, and returns how far to the right it reaches. */
function drawStay(context, app, lane, stay, top, height, drawn) {
  const width = context.canvas.clientWidth;
  const key = lane.keys[stay];
  const left = app.axis.toX(app.axis.valueOf(lane.starts[stay]), width);
  const right = Math.max(app.axis.toX(app.axis.valueOf(lane.ends[stay]), width), left + 1);
  const from = Math.max(left, drawn, -2);
  const until = Math.min(right, width + 2);
  if (until <= from) return drawn;
  const side = sideOfWindow(app, app.model.keyWindow[key]);
  const gap = until - from > 3 ? 1 : 0;
  context.fillStyle = faded(side, 0.3);
  context.fillRect(from, top + 1.5, until - from - gap, height - 3);
  const isWhole = left >= from - 1; // its beginning can be seen
  drawLaneHatch(context, app, lane, stay, side, { from, until: until - gap, top, height, isWhole });
  if (isWhole || drawn < 0) laneText(context, app, key, from, until, top, height);
  return until;
}

function drawLaneHatch(context, app, lane, stay, side, box) {
  const width = context.canvas.clientWidth;
  const read = lane.reads[stay];
  const isAgain = read >= 0 && app.model.readNumber[read] > 1;
  if (box.isWhole) {
    context.fillStyle = palette.ink[isAgain ? "reread" : side];
    context.fillRect(box.from, box.top + 1.5, Math.min(isAgain ? 4 : 2.5, box.until - box.from), box.height - 3);
  }
  if (side === "right" && box.until - box.from > 6) {
    context.fillStyle = hatch(context, "double", faded("right", 0.22), 8);
    context.fillRect(box.from, box.top + 1.5, box.until - box.from, box.height - 3);
  }
  if (read < 0) return;
  const arrived = Math.min(app.axis.toX(app.axis.valueOf(read), width), box.until);
  if (arrived - box.from < 3) return;
  context.fillStyle = hatch(context, "single", palette.ink[side], 4); // still being read
  context.fillRect(box.from, box.top + 1.5, arrived - box.from, box.height - 3);
}

function laneText(context, app, key, from, until, top, height) {
  const left = Math.max(from, 0);
  const room = until - left - 9;
  if (height < 11 || room < 5) return; // measuring text is slow
  const page = String(app.model.keyPage[key]);
  const name = pageName(app.model, key);
  context.font = textFont(Math.min(height - 5, 11), 500);
  const text = [name, page].find((words) => context.measureText(words).width <= room);
  if (!text) return;
  context.fillStyle = palette.ink.ink;
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillText(text, left + 6, top + height / 2 + 0.5);
}

/** Many frames: one row of pixels shows one of the frames that share it. */
function drawStripes(context, app, canvas) {
  const { model, axis } = app;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const image = context.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const inks = model.windows.map((_, window) => palette.rgb[sideOfWindow(app, window)]);
  const colours = inks.map(([r, g, b]) => (0xcc << 24) | (b << 16) | (g << 8) | r);
  const moments = Int32Array.from({ length: width }, (_, x) => axis.eventAt(x + 0.5, width));
  for (let y = 0; y < height; y++) {
    const lane = app.lanes[Math.floor((y * app.lanes.length) / height)];
    for (let x = 0; x < width; x++) {
      const stay = stayAt(lane, moments[x]);
      if (stay >= 0) pixels[y * width + x] = colours[model.keyWindow[lane.keys[stay]]];
    }
  }
  drawImageData(context, image, width, height);
}

// putImageData ignores the scale of sharp screens; drawing a canvas does not.
function drawImageData(context, image, width, height) {
  const buffer = document.createElement("canvas");
  buffer.width = width;
  buffer.height = height;
  buffer.getContext("2d").putImageData(image, 0, 0);
  context.drawImage(buffer, 0, 0, width, height);
}

/** The heads tell what each frame holds at the cursor. */
function drawLaneHeads(app) {
  const canvas = byId("lanes-head");
  const context = freshContext(canvas);
  if (!context) return;
  const height = laneHeight(app.lanes.length);
  if (height < 11) return headLabel(context, plural(app.lanes.length, "frame"), 10);
  app.lanes.forEach((lane, at) => drawLaneHead(context, app, lane, at * height + height / 2));
}

function drawLaneHead(context, app, lane, y) {
  const stay = stayAt(lane, app.cursor);
  let text = "·";
  let side = "muted";
  if (stay >= 0) {
    const window = app.model.keyWindow[lane.keys[stay]];
    text = `${cut(shown(app.model.windows[window]), 11)} ${app.model.keyPage[lane.keys[stay]]}`;
    side = sideOfWindow(app, window);
  }
  headLabel(context, text, y + 0.5, side, 600);
  context.font = textFont(10.5);
  context.textAlign = "left";
  context.fillStyle = palette.ink.muted;
  const hasRoom = app.lanes.at(-1).frame < 10; // for the word; larger numbers stand alone
  context.fillText(hasRoom ? `frame ${lane.frame}` : lane.frame, 0, y + 0.5);
}

/** The three numbers of frames in one line, each with its name: apart they look like a mistake. */
function tellFrames({ model, walk, cursor }) {
  const now = whole(framesInUse(model, cursor).length);
  const planned = walk ? `, ${whole(walk.frames)} planned for this walk` : "";
  setText(byId("frames-now"), `${now} in use now, ${whole(model.summary.totals.frames_peak)} at most in this trace${planned}`);
}

function hoverLanes(app, event) {
  const { model, axis } = app;
  const share = event.offsetY / event.target.clientHeight;
  const lane = app.lanes[clamp(Math.floor(share * app.lanes.length), 0, app.lanes.length - 1)];
  const moment = axis.eventAt(event.offsetX, event.target.clientWidth);
  const stay = lane ? stayAt(lane, moment) : NOWHERE;
  if (stay < 0) return lane ? showTip(event, `frame ${lane.frame}`, [["", "empty"]]) : hideTip();
  const [start, end, read] = [lane.starts[stay], lane.ends[stay], lane.reads[stay]];
  const lines = read >= 0 ? loadLines(model, read) : eventLines(model, start);
  lines.push(["stayed", `${plural(end - start, "event")}, ${timed(axisTime(model, end) - model.time[start])}`]);
  if (end < model.count) lines.push(["left", shown(reasonOf(model, end)) || model.kinds[model.event[end]]]);
  return showTip(event, `${pageName(model, lane.keys[stay])} in frame ${lane.frame}`, lines);
}

function axisTime(model, at) {
  return model.time[Math.min(at, model.count - 1)];
}
