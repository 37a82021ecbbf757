// ── axis: the horizontal axis that timeline, frames and plots share ─────────────────────────────

const EVENTS_LEAST = 8; // closer in than this there is nothing more to see

class Axis {
  constructor(model) {
    this.model = model;
    this.isTime = false;
    this.version = 0;
    this.show(0, model.count);
  }

  /** Shows the events from `first` up to, not including, `limit`. */
  show(first, limit) {
    this.setRange(this.valueOf(first), this.valueOf(limit));
  }

  setRange(low, high) {
    const [least, most] = [this.valueOf(0), this.valueOf(this.model.count)];
    const span = clamp(high - low, this.spanLeast(), Math.max(most - least, this.spanLeast()));
    this.low = clamp(low, least, Math.max(most - span, least));
    this.high = this.low + span;
    this.version += 1;
  }

  spanLeast() {
    return this.isTime ? 1000 : EVENTS_LEAST;
  }

  /** Where an event stands, in events or nanoseconds. */
  valueOf(at) {
    if (!this.isTime) return at;
    return this.model.time[Math.min(at, this.model.count - 1)] ?? 0;
  }

  /** The middle of an event: where the cursor and the marks are. */
  middleOf(at) {
    return this.isTime ? this.valueOf(at) : at + 0.5;
  }

  toX(value, width) {
    return ((value - this.low) / (this.high - this.low)) * width;
  }

  /** The event at a place on the screen. */
  eventAt(x, width) {
    const value = this.low + (x / width) * (this.high - this.low);
    const at = this.isTime ? upperBound(this.model.time, value) - 1 : Math.floor(value);
    return clamp(at, 0, this.model.count - 1);
  }

  zoom(factor, about) {
    const middle = clamp(about, this.low, this.high);
    this.setRange(middle - (middle - this.low) * factor, middle + (this.high - middle) * factor);
  }

  pan(share) {
    const shift = share * (this.high - this.low);
    this.setRange(this.low + shift, this.high + shift);
  }

  /** Keeps the moment on the screen while it moves. */
  follow(moment) {
    const value = this.middleOf(moment);
    if (value >= this.low && value <= this.high) return;
    const span = this.high - this.low;
    this.setRange(value - span / 2, value + span / 2);
  }

  setTime(isTime) {
    const [first, limit] = [this.eventAt(0, 1), this.eventAt(1, 1) + 1];
    this.isTime = isTime;
    this.show(first, limit);
  }

  /** Round values for ticks, about as many as asked for. */
  ticks(wanted) {
    const rough = (this.high - this.low) / Math.max(wanted, 1);
    const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
    const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10);
    const ticks = [];
    for (let value = Math.ceil(this.low / step) * step; value <= this.high; value += step) {
      ticks.push(value);
    }
    return ticks;
  }

  label(value) {
    return this.isTime ? timed(value, 5) : whole(value);
  }
}

/** The pieces [first, limit) of events for each step of pixels, as far as the axis shows them. */
function* binsOf(axis, width, step) {
  let first = axis.eventAt(0, width);
  for (let x = step; x < width + step; x += step) {
    const limit = x >= width ? axis.eventAt(width, width) + 1 : axis.eventAt(x, width);
    if (limit > first) yield { x: x - step, first, limit };
    first = Math.max(limit, first);
  }
}
