// ── help: what the words and numbers mean, with the numbers of this trace and this moment ───────
//
// A small button beside a word opens its explanation below: by pointer, finger or keyboard.

const HELP = {
  frames: ["Frames", framesHelp],
  rate: ["Hit rate", rateHelp],
  mode: ["Mode", modeHelp],
  plan: ["Plan", planHelp],
  moment: ["Event and step", momentHelp],
};

function framesHelp({ model, cursor, walk }) {
  const { budget_bytes: budget, page_size: page, totals } = model.summary;
  const lines = [["a frame", "is the memory for one page. It is as large as the page's bytes: half-empty pages take half."]];
  if (budget && page) {
    lines.push(["budget", `${sized(budget)} has room for ${plural(Math.floor(budget / page), "full page")}. `
      + "Sorting and writing take their share of it, so frames never get all of it."]);
  }
  lines.push(
    ["most", `${plural(totals.frames_peak, "frame")} in use at the busiest moment of the whole trace.`],
    ["now", `${whole(framesInUse(model, cursor).length)} of them hold a page at the cursor.`],
  );
  if (walk) {
    lines.push(["planned", `${plural(walk.frames, "frame")} for this walk. Pages are read a little ahead, and older pages `
      + "stay until their room is needed, so more can be in use."]);
  }
  return lines;
}

function rateHelp({ model, cursor }) {
  const { hits, reads } = model.counts;
  const [hit, read] = [hits[cursor + 1], reads[cursor + 1]];
  return [
    ["is", "hits ÷ (hits + page reads): how often a wanted page was in a frame already. Making a new page is neither."],
    ["now", `${plural(hit, "hit")} and ${plural(read, "read")} so far: ${percent(hit, hit + read)}`],
    ["in a walk", "a page that is loaded stays pinned while its pairs are visited, and counts as used once. "
      + "So a low rate is normal; compare the reads made with the reads planned."],
  ];
}

function modeHelp() {
  return [
    ["gallop", "takes the left pages in order and reads the right pages that each of them meets."],
    ["crabstep", "gallops until no frame is free and every page in one is still needed. Then those stay, "
      + "and the next left pages stream past them."],
    ["lookahead", "knows all pairs in advance and keeps any mix of left and right pages."],
    ["badge", "the mode at the cursor. A crabstep plan gallops at times, and the badge then says both."],
  ];
}

function planHelp({ walk }) {
  const lines = [
    ["a plan", "is made before a walk reads anything: the order of the pairs, and which page leaves for which."],
    ["matrix", "a column for each left page, a row for each right page. Pairs out of reach can't have matching rows."],
  ];
  if (!walk) return lines;
  return [...lines,
    ["reads", `${whole(walk.page_reads)} planned, starting with empty frames; ${whole(walk.walkLoads.length)} made. `
      + "Pages that were in frames before the walk need no read."],
    ["pairs", `${whole(walk.pairs)} pairs of pages within reach; each is visited once.`],
  ];
}

function momentHelp({ model, cursor }) {
  return [
    ["event", `its number in the trace. A link to this moment ends in ${hashOf(model, cursor)}`],
    ["step", `the number of the last complete step. A step makes all that was written before it visible at once; `
      + `this trace has ${plural(model.summary.complete_steps, "complete step")}.`],
    ...(model.summary.epochs.length ? [["epoch", "the epoch of the continuous query that the event is of; "
      + "it ends with the step that commits it."]] : []),
    ["load", "the read of a page into a frame. ◆ marks a page that has been read before."],
  ];
}

// ── the buttons ─────────────────────────────────────────────────────────────────────────────────

function helpButton(topic) {
  const button = element("button", "help-button", "?");
  button.type = "button";
  button.dataset.help = topic;
  button.setAttribute("aria-label", `What this means: ${HELP[topic][0].toLowerCase()}`);
  button.setAttribute("aria-controls", "help");
  button.setAttribute("aria-expanded", "false");
  return button;
}

class Help {
  constructor(app) {
    this.app = app;
    this.box = byId("help");
    this.button = null;
    for (const place of document.querySelectorAll("[data-help-here]")) {
      place.append(helpButton(place.dataset.helpHere));
    }
    document.addEventListener("click", (event) => this.click(event.target));
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.close();
    });
  }

  click(target) {
    if (target.closest("#help")) return;
    const button = target.closest("[data-help]");
    const isNew = button && button !== this.button;
    this.close();
    if (isNew) this.open(button);
  }

  open(button) {
    this.button = button;
    button.setAttribute("aria-expanded", "true");
    this.box.hidden = false;
    this.tell();
    const { left, bottom } = button.getBoundingClientRect();
    const room = document.documentElement.clientWidth - this.box.offsetWidth - 8;
    this.box.style.left = `${clamp(left - 12, 8, room) + scrollX}px`;
    this.box.style.top = `${bottom + 6 + scrollY}px`;
    this.box.scrollIntoView({ block: "nearest" });
  }

  close() {
    this.button?.setAttribute("aria-expanded", "false");
    this.button = null;
    this.box.hidden = true;
  }

  /** The numbers follow the cursor; what stays the same is not written again. */
  tell() {
    if (!this.button) return;
    const [title, linesOf] = HELP[this.button.dataset.help];
    const lines = linesOf(this.app);
    const words = JSON.stringify([title, lines]);
    if (words === this.words) return;
    this.words = words;
    setText(byId("help-title"), title);
    fillLines(byId("help-lines"), lines);
  }
}
