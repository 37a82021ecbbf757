// ── walks: the pair matrix of one walk, and how far it has come ─────────────────────────────────

const NOWHERE = -1;

/** Everything that the matrix shows of a walk.  Made when the walk is chosen, from its own events.
 *
 * A load is marked in the cell of the first visit that uses it, as in the paper's figures: there is
 * at most one load of the left page and one of the right page for each visit.
 */
function makeWalk(model, number) {
  const layout = model.layouts[number];
  const left = Int32Array.from(layout.left);
  const right = layout.is_self ? left : Int32Array.from(layout.right);
  const walk = { ...layout, number, left, right, end: Math.max(layout.end, layout.start + 1) };
  walk.columnOf = placesOf(model, left);
  walk.rowOf = layout.is_self ? walk.columnOf : placesOf(model, right);
  walk.reach = reachByColumn(layout.reach, left.length);
  Object.assign(walk, visitsOf(model, walk));
  walk.byColumn = sortedByColumn(walk);
  return walk;
}

function placesOf(model, keys) {
  const places = new Int32Array(model.keyPage.length).fill(NOWHERE);
  keys.forEach((key, place) => (places[key] = place));
  return places;
}

/** Intervals of rows, column after column: those of column i are from starts[i] to starts[i + 1]. */
function reachByColumn(flat, columns) {
  const count = flat.length / 3;
  const starts = new Int32Array(columns + 1);
  for (let at = 0; at < count; at++) starts[flat[3 * at] + 1] += 1;
  for (let i = 0; i < columns; i++) starts[i + 1] += starts[i];
  const next = starts.slice();
  const first = new Int32Array(count);
  const limit = new Int32Array(count);
  for (let at = 0; at < count; at++) {
    const place = next[flat[3 * at]]++;
    first[place] = flat[3 * at + 1];
    limit[place] = flat[3 * at + 2];
  }
  return { starts, first, limit };
}

function isWithinReach(reach, column, row) {
  for (let at = reach.starts[column]; at < reach.starts[column + 1]; at++) {
    if (reach.first[at] <= row && row < reach.limit[at]) return true;
  }
  return false;
}

/** The visits of a walk in order, with the loads that they waited for, and all of its loads. */
function visitsOf(model, walk) {
  const waiting = new Int32Array(model.keyPage.length).fill(NOWHERE);
  const at = [], column = [], row = [], leftLoad = [], rightLoad = [], mode = [], loads = [];
  const taken = (key) => {
    const load = waiting[key];
    waiting[key] = NOWHERE;
    return load;
  };
  const { read, evict, visit, mode: modeCode } = model.code;
  let modeNow = 0;
  for (let place = walk.start; place < walk.end; place++) {
    if (model.owner && model.owner[place] !== walk.number) continue;
    const kind = model.event[place];
    const key = model.key[place];
    if (kind === visit) {
      const i = walk.columnOf[key];
      const j = walk.rowOf[model.mate[place]];
      if (i === NOWHERE || j === NOWHERE) continue;
      at.push(place);
      column.push(i);
      row.push(j);
      leftLoad.push(taken(key));
      rightLoad.push(taken(model.mate[place]));
      mode.push(modeNow);
    } else if (kind === read) {
      if (walk.columnOf[key] === NOWHERE && walk.rowOf[key] === NOWHERE) continue;
      waiting[key] = place;
      loads.push(place);
    } else if (kind === evict) waiting[key] = NOWHERE;
    else if (kind === modeCode) {
      modeNow = model.modeNames.indexOf(reasonOf(model, place).split(": ")[0]) + 1;
    }
  }
  return {
    visitAt: Int32Array.from(at),
    column: Int32Array.from(column),
    row: Int32Array.from(row),
    leftLoad: Int32Array.from(leftLoad),
    rightLoad: Int32Array.from(rightLoad),
    mode: Uint8Array.from(mode),
    walkLoads: Int32Array.from(loads),
  };
}

/** Visits column after column, by row within each, for drawing a part and for finding a cell. */
function sortedByColumn(walk) {
  const columns = walk.left.length;
  const starts = new Int32Array(columns + 1);
  for (const i of walk.column) starts[i + 1] += 1;
  for (let i = 0; i < columns; i++) starts[i + 1] += starts[i];
  const next = starts.slice();
  const visits = new Int32Array(walk.column.length);
  walk.column.forEach((i, visit) => (visits[next[i]++] = visit));
  for (let i = 0; i < columns; i++) {
    visits.subarray(starts[i], starts[i + 1]).sort((a, b) => walk.row[a] - walk.row[b]);
  }
  return { starts, visits, rows: visits.map((visit) => walk.row[visit]) };
}

/** The visit of a cell, or NOWHERE. */
function visitOfCell(walk, column, row) {
  const { starts, rows, visits } = walk.byColumn;
  const at = upperBound(rows, row, starts[column], starts[column + 1]) - 1;
  return at >= starts[column] && rows[at] === row ? visits[at] : NOWHERE;
}

/** How many visits have begun at a moment. */
function visitedBy(walk, moment) {
  return upperBound(walk.visitAt, moment);
}

/** Whether a visit that has begun is still running at a moment. */
function isRunning(model, walk, visit, moment) {
  const { starts, ends } = model.visits;
  const place = upperBound(starts, walk.visitAt[visit]) - 1;
  return moment <= ends[place];
}

/** How often each page of a walk has been read up to a moment.  Cheap to move forward. */
class ReadCounts {
  constructor(model, walk) {
    this.model = model;
    this.walk = walk;
    this.reset();
  }

  reset() {
    this.upTo = 0;
    this.columns = new Uint32Array(this.walk.left.length);
    this.rows = new Uint32Array(this.walk.right.length);
  }

  moveTo(moment) {
    const limit = upperBound(this.walk.walkLoads, moment);
    if (limit < this.upTo) this.reset();
    for (; this.upTo < limit; this.upTo++) {
      const key = this.model.key[this.walk.walkLoads[this.upTo]];
      const column = this.walk.columnOf[key];
      const row = this.walk.rowOf[key];
      if (column !== NOWHERE) this.columns[column] += 1;
      if (row !== NOWHERE) this.rows[row] += 1;
    }
    return this;
  }
}
