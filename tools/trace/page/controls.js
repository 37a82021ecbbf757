// ── controls: scrubber, play, steps, keys, zoom, theme ──────────────────────────────────────────

const SPEEDS = [1, 2, 5, 10, 25, 50, 100, 250, 1000, 5000, 25_000, 100_000, 500_000]; // events a second
const PLAY_SECONDS = 25; // how long a walk should play for, unless told otherwise

function listenToControls(app) {
  const scrubber = byId("scrubber");
  scrubber.addEventListener("input", () => app.seek(Number(scrubber.value)));
  const actions = {
    first: () => app.jump(0),
    "previous-load": () => app.seek(loadBefore(app)),
    previous: () => app.seek(app.cursor - 1),
    play: () => app.player.toggle(),
    next: () => app.seek(app.cursor + 1),
    "next-load": () => app.seek(loadAfter(app)),
    last: () => app.jump(app.model.count - 1),
    "matrix-in": () => app.matrix.zoomAboutNow(1.5),
    "matrix-out": () => app.matrix.zoomAboutNow(1 / 1.5),
    "matrix-fit": () => app.matrix.fit(),
    "axis-in": () => app.zoomAxis(1 / 1.6),
    "axis-out": () => app.zoomAxis(1.6),
    "axis-walk": () => app.showWalk(),
    "axis-all": () => app.showAll(),
    "copy-link": () => copyLink(app),
    theme: () => switchTheme(app),
  };
  for (const [id, act] of Object.entries(actions)) byId(id).addEventListener("click", act);
  byId("follow").addEventListener("change", (event) => app.setFollowing(event.target.checked));
  byId("axis-time").addEventListener("change", (event) => app.setTime(event.target.checked));
  byId("walk").addEventListener("change", (event) => app.jumpBy(() => app.takeWalk(Number(event.target.value))));
  document.addEventListener("keydown", (event) => handleKey(app, event));
}

// ── steps ───────────────────────────────────────────────────────────────────────────────────────

function loadAfter(app) {
  const { loads } = app.model;
  return loads[upperBound(loads, app.cursor)] ?? app.cursor;
}

function loadBefore(app) {
  const { loads } = app.model;
  return loads[upperBound(loads, app.cursor - 1) - 1] ?? app.cursor;
}

function rereadAfter(app) {
  const { rereads } = app.model;
  return rereads[upperBound(rereads, app.cursor)] ?? app.cursor;
}

const KEYS = {
  ArrowLeft: (app, event) => app.seek(event.shiftKey ? loadBefore(app) : app.cursor - 1),
  ArrowRight: (app, event) => app.seek(event.shiftKey ? loadAfter(app) : app.cursor + 1),
  PageUp: (app) => app.seek(app.cursor - app.stride()),
  PageDown: (app) => app.seek(app.cursor + app.stride()),
  Home: (app) => app.jump(0),
  End: (app) => app.jump(app.model.count - 1),
  " ": (app) => app.player.toggle(),
  "+": (app) => app.zoomFocused(1.6),
  "=": (app) => app.zoomFocused(1.6),
  "-": (app) => app.zoomFocused(1 / 1.6),
  0: (app) => app.fitFocused(),
  r: (app) => app.seek(rereadAfter(app)),
  l: (app) => copyLink(app),
  t: (app) => switchTheme(app),
};

/** Keys work everywhere but where something is typed or chosen; Space still presses a button. */
function handleKey(app, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const act = Object.hasOwn(KEYS, event.key) ? KEYS[event.key] : null;
  const { target } = event;
  if (!act || target.matches("select, input:not([type=range])")) return;
  if (event.key === " " && target.closest("button, summary")) return;
  event.preventDefault();
  act(app, event);
}

// ── play ────────────────────────────────────────────────────────────────────────────────────────

class Player {
  constructor(app) {
    this.app = app;
    this.isPlaying = false;
    this.fillSpeeds();
  }

  fillSpeeds() {
    const select = byId("speed");
    addOptions(select, SPEEDS.map((speed) => [String(speed), `${whole(speed)} events/s`]));
    const events = this.app.walk ? this.app.walk.end - this.app.walk.start : this.app.model.count;
    const fitting = SPEEDS.find((speed) => speed * PLAY_SECONDS >= events) ?? SPEEDS.at(-1);
    select.value = String(fitting);
  }

  toggle() {
    if (this.isPlaying) this.pause();
    else this.play();
  }

  /** Plays on from the cursor; at the end of the walk or trace, from the beginning again. */
  play() {
    const { app } = this;
    const end = app.walk ? app.walk.end - 1 : app.model.count - 1;
    if (app.cursor >= end) app.seek(app.walk ? app.walk.start : 0);
    this.isPlaying = true;
    this.position = app.cursor;
    this.before = performance.now();
    this.tell();
    requestAnimationFrame((now) => this.tick(now));
  }

  pause() {
    this.isPlaying = false;
    this.tell();
  }

  tick(now) {
    if (!this.isPlaying) return;
    const { app } = this;
    // Somebody may have moved the cursor meanwhile: go on from there.
    if (Math.floor(this.position) !== app.cursor) this.position = app.cursor;
    const passed = clamp((now - this.before) / 1000, 0, 0.25);
    this.before = now;
    this.position = Math.min(this.position + passed * Number(byId("speed").value), app.model.count - 1);
    app.seek(Math.floor(this.position));
    const end = app.walk && app.cursor >= app.walk.start && app.cursor < app.walk.end
      ? app.walk.end - 1 : app.model.count - 1;
    if (app.cursor >= end) return this.pause();
    requestAnimationFrame((later) => this.tick(later));
  }

  tell() {
    const button = byId("play");
    button.setAttribute("aria-label", this.isPlaying ? "Pause" : "Play");
    button.classList.toggle("is-playing", this.isPlaying);
    // A screen reader can't keep up with a film; it hears where the film stops.
    byId("now").setAttribute("aria-live", this.isPlaying ? "off" : "polite");
  }
}

// ── theme ───────────────────────────────────────────────────────────────────────────────────────

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function switchTheme(app) {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  app.repaint();
}

// ── pointer on the charts ───────────────────────────────────────────────────────────────────────

/** Press or drag moves the cursor; Ctrl and wheel zooms, Shift and wheel or a tilt pans. */
function listenToChart(app, id, hover) {
  const canvas = byId(id);
  const momentAt = (event) => app.axis.eventAt(event.offsetX, canvas.clientWidth);
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    app.jump(momentAt(event));
  });
  canvas.addEventListener("pointermove", (event) => {
    if (event.buttons & 1) app.seek(momentAt(event));
    else hover(app, event);
  });
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("wheel", (event) => wheelOnChart(app, canvas, event), { passive: false });
}

function wheelOnChart(app, canvas, event) {
  const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
  if (event.ctrlKey) {
    const about = app.axis.low + (event.offsetX / canvas.clientWidth) * (app.axis.high - app.axis.low);
    app.axis.zoom(Math.exp(event.deltaY * 0.004), about);
  } else if (Math.abs(sideways) > Math.abs(event.shiftKey ? 0 : event.deltaY)) {
    app.axis.pan(sideways / canvas.clientWidth);
  } else return; // the page scrolls
  event.preventDefault();
  app.refresh("axis");
}
