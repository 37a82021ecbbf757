// ── links: the address names the moment, so that it can be sent, kept and gone back to ──────────
//
//     walk.html#t=2805     opens at event 2,805, as the page numbers events
//
// A jump (a click in a chart, matrix or list; beginning, end; another walk) is a step of the
// browser's history.  Steps, scrubbing and playing only change the address, once they rest:
// browsers refuse more than about twenty changes a second.

const REST_MS = 400;
const TOLD_MS = 2500;

function hashOf(model, at) {
  return `#t=${model.seq[at]}`;
}

/** The event that the address names; NOWHERE when it names none of this trace. */
function momentOfAddress(model) {
  const found = /^#t=(\d{1,15})$/.exec(location.hash);
  return found ? model.seq.indexOf(Number(found[1])) : NOWHERE;
}

/** The walk that an event is part of; NOWHERE when it is between walks. */
function walkOfMoment(model, at) {
  if (model.owner && model.owner[at] >= 0) return model.owner[at];
  return model.layouts.findIndex((walk) => at >= walk.start && at < walk.end);
}

class Address {
  constructor(app) {
    this.app = app;
    addEventListener("hashchange", () => {
      clearTimeout(this.timer);
      const at = momentOfAddress(app.model);
      if (at !== NOWHERE) app.goTo(at);
    });
  }

  /** Follows the cursor once it rests. */
  follow() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.settle(), REST_MS);
  }

  settle() {
    clearTimeout(this.timer);
    this.write("replaceState", this.app.cursor);
  }

  /** A jump from one moment to where the cursor is now: Back returns to where it was. */
  add(before) {
    clearTimeout(this.timer);
    this.write("replaceState", before);
    this.write("pushState", this.app.cursor);
  }

  write(method, at) {
    const hash = hashOf(this.app.model, at);
    if (method === "replaceState" && location.hash === hash) return;
    try {
      history[method](null, "", hash);
    } catch {
      // A page inside another one may not be allowed an address; it works without.
    }
  }
}

async function copyLink(app) {
  app.address.settle();
  const link = location.href.split("#")[0] + hashOf(app.model, app.cursor);
  try {
    await navigator.clipboard.writeText(link);
    tellLink("Link copied");
  } catch {
    tellLink("See address bar"); // the browser keeps the clipboard to itself
  }
}

function tellLink(text) {
  const label = byId("copy-link-text");
  clearTimeout(tellLink.timer);
  setText(label, text);
  tellLink.timer = setTimeout(() => setText(label, "Copy link"), TOLD_MS);
}
