// ── text: names and numbers as a person reads them ──────────────────────────────────────────────

const WHOLE = new Intl.NumberFormat("en-US");
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
// Everything that moves, hides or reorders text: controls, joiners, bidirectional marks, separators.
const UNPRINTABLE =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

function whole(number) {
  return WHOLE.format(number);
}

/** A name or reason out of the trace, with what is not plainly printable written as an escape. */
function shown(text) {
  return String(text).replace(UNPRINTABLE, escapeOf).toWellFormed();
}

function escapeOf(character) {
  const known = { "\n": "\\n", "\r": "\\r", "\t": "\\t" }[character];
  return known ?? "\\u" + character.charCodeAt(0).toString(16).padStart(4, "0");
}

/** A long name with its middle left out; the end of a name often tells more than its middle. */
function cut(text, most) {
  if (text.length <= most) return text;
  const head = Math.ceil((most - 1) / 2);
  return text.slice(0, head) + "…" + text.slice(text.length - (most - 1 - head));
}

function sized(bytes) {
  let value = bytes;
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${significant(value, 4)} ${UNITS[unit]}`;
}

function timed(ns, digits = 4) {
  if (Math.abs(ns) < 1e3) return `${Math.round(ns)} ns`;
  if (Math.abs(ns) < 1e6) return `${significant(ns / 1e3, digits)} µs`;
  if (Math.abs(ns) < 1e9) return `${significant(ns / 1e6, digits)} ms`;
  return `${significant(ns / 1e9, digits)} s`;
}

function significant(value, digits) {
  return String(Number(value.toPrecision(digits)));
}

function percent(part, of) {
  return of > 0 ? `${((100 * part) / of).toFixed(1)}%` : "–";
}

function ordinal(number) {
  const tail = number % 100;
  if (tail >= 11 && tail <= 13) return `${whole(number)}th`;
  return whole(number) + (["th", "st", "nd", "rd"][number % 10] ?? "th");
}

function plural(number, noun) {
  return `${whole(number)} ${noun}${number === 1 ? "" : "s"}`;
}

function clamp(value, least, most) {
  return Math.min(Math.max(value, least), most);
}

// ── the document ────────────────────────────────────────────────────────────────────────────────

function byId(id) {
  return document.getElementById(id);
}

/** An element with a class and text.  Text is all that names ever become. */
function element(tag, className = "", text = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== "") made.textContent = text;
  return made;
}

/** Sets text only where it changed: screen readers repeat what is written again. */
function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

/** First place in a sorted array whose value is larger than this one. */
function upperBound(array, value, from = 0, to = array.length) {
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (array[middle] <= value) from = middle + 1;
    else to = middle;
  }
  return from;
}
