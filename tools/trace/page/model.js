// ── model: what the events mean, worked out once so that any moment can be looked up ────────────
//
// A moment is the number of an event that has just happened.  Everything about a moment is a lookup
// in an array or a binary search, so that the scrubber can jump anywhere in a million events.

const STEP = 1 << 17; // events between two breaths

/** The trace as arrays and tables; see `deriveModel` for what is added. */
function makeModel({ head, blocks }) {
  const model = {
    head,
    count: head.count,
    kinds: head.kinds,
    windows: head.windows,
    summary: blocks.summary,
    reasons: blocks.reasons,
    layouts: blocks.walks,
    seq: blocks.seq,
    time: blocks.time_ns,
    event: blocks.event,
    key: blocks.key,
    frame: blocks.frame,
    bytes: blocks.bytes,
    epoch: blocks.epoch,
    mate: blocks.mate,
    owner: blocks.owner, // the walk of each event, where walks overlap
    why: blocks.why,
    keyWindow: blocks.key_window,
    keyPage: blocks.key_page,
  };
  model.code = Object.fromEntries(head.kinds.map((name, code) => [name, code]));
  return model;
}

/** Adds running counts, the number of each read, the loads, the modes and what frames held. */
async function deriveModel(model, tell) {
  const counts = new RunningCounts(model);
  const frames = new FrameBuilder(model);
  const visits = new VisitBuilder(model);
  const readsOf = new Uint32Array(model.keyPage.length);
  const loads = [];
  const modes = [];
  model.readNumber = new Uint32Array(model.count);
  model.fetchOf = new Int32Array(model.count).fill(-1); // of a read: where it began
  const { read, mode, walked } = model.code;
  for (let at = 0; at < model.count; at++) {
    const kind = model.event[at];
    if (kind === read) {
      model.readNumber[at] = ++readsOf[model.key[at]];
      loads.push(at);
    } else if (kind === mode || kind === walked) modes.push(at);
    counts.add(model, at);
    frames.add(at);
    visits.add(at);
    if (at % STEP === STEP - 1) {
      tell(at / model.count, "following pages through frames");
      await breathe();
    }
  }
  model.loads = Int32Array.from(loads);
  model.rereads = model.loads.filter((at) => model.readNumber[at] > 1);
  model.counts = counts;
  model.frames = frames.finished();
  model.visits = visits.finished();
  model.stretches = stretchesOf(model, modes);
  model.modeNames = [...new Set(model.stretches.map((stretch) => stretch.mode))];
}

/** Counts after each event; place 0 is before the first. */
class RunningCounts {
  constructor({ count, code }) {
    this.code = code;
    this.hits = new Uint32Array(count + 1);
    this.reads = new Uint32Array(count + 1);
    this.rereads = new Uint32Array(count + 1);
    this.visits = new Uint32Array(count + 1);
    this.bytesRead = new Float64Array(count + 1);
    this.bytesWritten = new Float64Array(count + 1);
  }

  add(model, at) {
    const { hit, read, write, visit } = this.code;
    const kind = model.event[at];
    const isRead = kind === read ? 1 : 0;
    this.hits[at + 1] = this.hits[at] + (kind === hit ? 1 : 0);
    this.reads[at + 1] = this.reads[at] + isRead;
    this.rereads[at + 1] = this.rereads[at] + (model.readNumber[at] > 1 ? 1 : 0);
    this.visits[at + 1] = this.visits[at] + (kind === visit ? 1 : 0);
    this.bytesRead[at + 1] = this.bytesRead[at] + isRead * model.bytes[at];
    this.bytesWritten[at + 1] = this.bytesWritten[at] + (kind === write ? model.bytes[at] : 0);
  }
}

/** Follows the pages through the frames.
 *
 * A page comes with `make` or `fetch` and goes with `evict`, `drop` or `expire`; one that is given
 * up while it is pinned goes with its last `unpin`.  The frame of a failed read is simply taken by
 * the next page.
 */
class FrameBuilder {
  constructor(model) {
    this.model = model;
    this.lanes = new Map(); // number of the frame → its stays
    this.role = frameRoles(model);
  }

  add(at) {
    const frame = this.model.frame[at];
    const role = this.role[this.model.event[at]];
    if (frame < 0 || role === undefined) return;
    const lane = this.lanes.get(frame) ?? this.newLane(frame);
    this[role](lane, at, this.model.key[at]);
  }

  newLane(frame) {
    const lane = { frame, starts: [], ends: [], keys: [], reads: [], pins: 0, isGivenUp: false };
    this.lanes.set(frame, lane);
    return lane;
  }

  come(lane, at, key) {
    this.close(lane, at);
    lane.starts.push(at);
    lane.ends.push(-1);
    lane.keys.push(key);
    lane.reads.push(-1);
  }

  arrive(lane, at, key) {
    const last = lane.keys.length - 1;
    if (last < 0 || lane.ends[last] >= 0 || lane.keys[last] !== key) this.come(lane, at, key);
    lane.reads[lane.reads.length - 1] = at;
    this.model.fetchOf[at] = lane.starts[lane.starts.length - 1];
  }

  pin(lane) {
    lane.pins += 1;
  }

  unpin(lane, at) {
    lane.pins = Math.max(lane.pins - 1, 0);
    if (lane.isGivenUp && lane.pins === 0) this.close(lane, at);
  }

  leave(lane, at) {
    if (lane.pins > 0) lane.isGivenUp = true;
    else this.close(lane, at);
  }

  close(lane, at) {
    const last = lane.ends.length - 1;
    if (last >= 0 && lane.ends[last] < 0) lane.ends[last] = at;
    lane.pins = 0;
    lane.isGivenUp = false;
  }

  finished() {
    const count = this.model.count;
    return [...this.lanes.values()]
      .sort((a, b) => a.frame - b.frame)
      .map((lane) => ({
        frame: lane.frame,
        starts: Int32Array.from(lane.starts),
        ends: Int32Array.from(lane.ends, (end) => (end < 0 ? count : end)),
        keys: Int32Array.from(lane.keys),
        reads: Int32Array.from(lane.reads),
      }));
  }
}

/** Pairs each `visit` with its `visited`. */
class VisitBuilder {
  constructor(model) {
    this.model = model;
    this.starts = [];
    this.ends = [];
    this.open = new Map(); // pair → its visit
  }

  add(at) {
    const { visit, visited, walked } = this.model.code;
    const kind = this.model.event[at];
    if (kind === visit) {
      this.open.set(this.pairOf(at), this.starts.length);
      this.starts.push(at);
      this.ends.push(-1);
    } else if (kind === visited) this.close(at);
    else if (kind === walked) this.closeAll(at);
  }

  pairOf(at) {
    return this.model.key[at] * this.model.keyPage.length + this.model.mate[at];
  }

  close(at) {
    const pair = this.pairOf(at);
    if (this.open.has(pair)) this.ends[this.open.get(pair)] = at;
    this.open.delete(pair);
  }

  closeAll(at) {
    for (const visit of this.open.values()) this.ends[visit] = at;
    this.open.clear();
  }

  finished() {
    this.closeAll(this.model.count);
    const starts = Int32Array.from(this.starts);
    // A visit that was begun again before it ended has no end of its own.
    const ends = Int32Array.from(this.ends, (end, visit) => (end < 0 ? starts[visit] : end));
    return { starts, ends, reached: highestSoFar(ends) };
  }
}

/** Two workers end their visits out of order; this can still be searched. */
function highestSoFar(values) {
  let highest = -1;
  return values.map((value) => (highest = Math.max(highest, value)));
}

function frameRoles(model) {
  const roles = { make: "come", fetch: "come", read: "arrive", pin: "pin", unpin: "unpin",
    evict: "leave", drop: "leave", expire: "leave" };
  return model.kinds.map((name) => roles[name]);
}

/** Which of a frame's stays holds at a moment; -1 when the frame is empty. */
function stayAt(lane, moment) {
  const stay = upperBound(lane.starts, moment) - 1;
  return stay >= 0 && moment < lane.ends[stay] ? stay : -1;
}

/** The frames that hold a page at a moment. */
function framesInUse(model, moment) {
  return model.frames.filter((lane) => stayAt(lane, moment) >= 0);
}

/** The stretches of one mode: from its `mode` event to the next one or to the end of the walk. */
function stretchesOf(model, places) {
  const stretches = [];
  let open = null;
  for (const at of places) {
    if (open) open.end = at;
    open = null;
    if (model.event[at] !== model.code.mode) continue;
    const [mode, ...rest] = model.reasons[model.why[at]].split(": ");
    open = { start: at, end: model.count, mode, reason: rest.join(": "), plan: planAt(model, at) };
    stretches.push(open);
  }
  return stretches;
}

/** The mode of the plan that is walked at a moment; null where none is.  A plan may change between
 * modes on its way: crabstep gallops until it is stuck. */
function planAt(model, moment) {
  const owner = model.owner ? model.owner[moment] : -1;
  if (owner >= 0) return model.layouts[owner].mode;
  const last = upperBound(model.planStarts ??= model.layouts.map((walk) => walk.start), moment) - 1;
  return last >= 0 && moment < model.layouts[last].end ? model.layouts[last].mode : null;
}

/** Plan and mode of a moment in a few words that fit each other. */
function modeText(model, moment) {
  const stretch = stretchAt(model, moment);
  const plan = stretch ? stretch.plan : planAt(model, moment);
  if (!stretch) return plan === null ? "no mode" : shown(plan);
  const isPlain = plan === null || plan === stretch.mode;
  return shown(isPlain ? stretch.mode : `${plan} plan, now ${stretch.mode}`);
}

function stretchAt(model, moment) {
  const at = upperBound(model.stretchStarts ??= model.stretches.map((s) => s.start), moment) - 1;
  const stretch = model.stretches[at];
  return stretch && moment < stretch.end ? stretch : null;
}

/** What an event's page is called: window and number. */
function pageName(model, key) {
  const name = shown(model.windows[model.keyWindow[key]]);
  const page = model.keyPage[key];
  return page < 0 ? name : `${cut(name, 40)} ${page}`;
}

function reasonOf(model, at) {
  return model.reasons[model.why[at]];
}
