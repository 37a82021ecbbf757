// ── check: the page counts its events itself and compares with the summary that came with it ────

const COUNTED = { makes: "make", reads: "read", hits: "hit", writes: "write", evictions: "evict",
  drops: "drop", expiries: "expire", visits: "visit" };

/** The totals of the summary, counted anew from the columns. */
function countTotals(model) {
  const found = new Float64Array(model.kinds.length);
  for (let at = 0; at < model.count; at++) found[model.event[at]] += 1;
  const totals = {};
  for (const [name, kind] of Object.entries(COUNTED)) totals[name] = found[model.code[kind]];
  const counts = model.counts;
  totals.rereads = model.rereads.length;
  totals.bytes_read = counts.bytesRead[model.count];
  totals.bytes_written = counts.bytesWritten[model.count];
  const uses = totals.hits + totals.reads;
  totals.hit_rate = uses ? totals.hits / uses : null;
  totals.pages_read_distinct = model.loads.length - model.rereads.length;
  totals.frames_peak = framesUsed(model);
  return totals;
}

function framesUsed(model) {
  const used = new Set(model.frame);
  let count = 0;
  for (const frame of used) count += frame >= 0;
  return count;
}

/** What the page counts differently, as lines of text; none when all is well. */
function discrepancies(model) {
  const { summary } = model;
  const told = { ...summary.totals, events: summary.events, stretches: summary.modes.length };
  const own = { ...countTotals(model), events: model.count, stretches: model.stretches.length };
  return Object.keys(own)
    .filter((name) => !isSame(own[name], told[name]))
    .map((name) => `${name}: ${told[name]} in the summary, ${own[name]} in the events`);
}

// Sums beyond 2**53 lose their last digits here; counts are far below.
function isSame(own, told) {
  if (own === null || told === null) return own === told;
  return Math.abs(own - told) <= Math.abs(told) * 1e-12;
}
