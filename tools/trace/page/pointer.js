// ── pointer: wheel, drag, pinch and hover on the matrix ─────────────────────────────────────────

const CLICK_SLACK = 4; // pixels that a pointer may move and still have clicked

function listenToMatrix(matrix) {
  const { canvas } = matrix;
  const fingers = new Map();
  let moved = 0;
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    matrix.zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0016)), event.offsetX, event.offsetY);
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, placeOf(event));
    moved = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) return hoverMatrix(matrix, event);
    moved += Math.hypot(event.offsetX - before.x, event.offsetY - before.y);
    if (fingers.size === 1) dragMatrix(matrix, before, event);
    else pinchMatrix(matrix, fingers, event);
    fingers.set(event.pointerId, placeOf(event));
  });
  for (const name of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(name, (event) => {
      fingers.delete(event.pointerId);
      if (name === "pointerup" && moved <= CLICK_SLACK) clickMatrix(matrix, event);
    });
  }
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("dblclick", () => matrix.fit());
}

function placeOf(event) {
  return { x: event.offsetX, y: event.offsetY };
}

function dragMatrix(matrix, before, event) {
  matrix.view.left += event.offsetX - before.x;
  matrix.view.top += event.offsetY - before.y;
  matrix.app.setFollowing(false);
  hideTip();
  matrix.app.refresh("matrix");
}

function pinchMatrix(matrix, fingers, event) {
  const [a, b] = [...fingers.values()];
  const other = fingers.get(event.pointerId) === a ? b : a;
  const before = Math.hypot(a.x - b.x, a.y - b.y);
  const after = Math.hypot(event.offsetX - other.x, event.offsetY - other.y);
  if (before > 0) matrix.zoom(after / before, (a.x + b.x) / 2, (a.y + b.y) / 2);
}

/** A click goes to the moment when the pair was visited. */
function clickMatrix(matrix, event) {
  const cell = matrix.cellAt(event.offsetX, event.offsetY);
  const visit = cell ? visitOfCell(matrix.app.walk, cell.column, cell.row) : NOWHERE;
  if (visit !== NOWHERE) matrix.app.jump(matrix.app.walk.visitAt[visit]);
}

function hoverMatrix(matrix, event) {
  const { app } = matrix;
  const cell = matrix.cellAt(event.offsetX, event.offsetY);
  if (!cell) return hideTip();
  const { walk, model } = app;
  const title = `${pageName(model, walk.left[cell.column])} × ${pageName(model, walk.right[cell.row])}`;
  const visit = visitOfCell(walk, cell.column, cell.row);
  if (visit === NOWHERE) {
    const isMet = isWithinReach(walk.reach, cell.column, cell.row);
    return showTip(event, title, [["", isMet ? "within reach, never visited" : "out of reach: never meet"]]);
  }
  const lines = [["visit", `${whole(visit + 1)} of ${whole(walk.visitAt.length)}${app.cursor < walk.visitAt[visit] ? ", still to come" : ""}`],
    ["at", momentText(model, walk.visitAt[visit])]];
  for (const load of [walk.leftLoad[visit], walk.rightLoad[visit]]) {
    if (load >= 0) lines.push(["", ""], ...loadLines(model, load));
  }
  return showTip(event, title, lines);
}
