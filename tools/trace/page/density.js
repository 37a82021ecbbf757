// ── density: the matrix from afar, where many pairs share a pixel ───────────────────────────────
//
// The visible part becomes an image of buckets, each of 2^shift pages a side.  Counts move forward
// with the cursor; backward they begin anew, which takes a few milliseconds for half a million
// visits and needs no checkpoints.

const LOADED_AGAIN = 2;
const LEVELS = 16;

class Density {
  constructor(model, walk) {
    this.model = model;
    this.walk = walk;
    this.place = "";
  }

  /** Draws the pairs of the visible pages at a moment. */
  draw(context, view, moment) {
    this.aim(view);
    this.moveTo(moment);
    this.paint();
    const size = view.cell * 2 ** this.shift;
    context.imageSmoothingEnabled = false;
    context.drawImage(this.canvas, view.x(this.left * 2 ** this.shift),
      view.y(this.top * 2 ** this.shift), this.width * size, this.height * size);
  }

  aim(view) {
    const shift = Math.max(0, Math.ceil(Math.log2(1 / view.cell)));
    const place = [shift, view.c0 >> shift, view.r0 >> shift, view.c1 >> shift, view.r1 >> shift];
    if (place.join() === this.place) return;
    this.place = place.join();
    [this.shift, this.left, this.top] = place;
    this.width = place[3] - this.left + 1;
    this.height = place[4] - this.top + 1;
    const size = this.width * this.height;
    this.reach = new Uint32Array(size);
    this.seen = new Uint32Array(size);
    this.mode = new Uint8Array(size);
    this.load = new Uint8Array(size);
    this.upTo = 0;
    this.countReach();
    this.makeImage();
  }

  makeImage() {
    this.canvas = document.createElement("canvas");
    this.canvas.width = this.width;
    this.canvas.height = this.height;
    this.inside = this.canvas.getContext("2d");
    this.image = this.inside.createImageData(this.width, this.height);
  }

  countReach() {
    const { starts, first, limit } = this.walk.reach;
    const last = Math.min((this.left + this.width) << this.shift, this.walk.left.length);
    for (let column = this.left << this.shift; column < last; column++) {
      const x = (column >> this.shift) - this.left;
      for (let at = starts[column]; at < starts[column + 1]; at++) {
        this.addRows(x, first[at], limit[at]);
      }
    }
  }

  addRows(x, first, limit) {
    const top = Math.max(first >> this.shift, this.top);
    const bottom = Math.min((limit - 1) >> this.shift, this.top + this.height - 1);
    for (let bucket = top; bucket <= bottom; bucket++) {
      const begin = Math.max(first, bucket << this.shift);
      const end = Math.min(limit, (bucket + 1) << this.shift);
      this.reach[(bucket - this.top) * this.width + x] += end - begin;
    }
  }

  moveTo(moment) {
    const limit = visitedBy(this.walk, moment);
    if (limit < this.upTo) {
      this.seen.fill(0);
      this.load.fill(0);
      this.upTo = 0;
    }
    for (; this.upTo < limit; this.upTo++) this.addVisit(this.upTo);
  }

  addVisit(visit) {
    const x = (this.walk.column[visit] >> this.shift) - this.left;
    const y = (this.walk.row[visit] >> this.shift) - this.top;
    if (x < 0 || y < 0 || x >= this.width || y >= this.height) return;
    const at = y * this.width + x;
    this.seen[at] += 1;
    this.mode[at] = this.walk.mode[visit];
    this.load[at] = Math.max(this.load[at], this.loadOf(visit));
  }

  loadOf(visit) {
    const { leftLoad, rightLoad } = this.walk;
    const number = Math.max(readNumberOf(this.model, leftLoad[visit]),
      readNumberOf(this.model, rightLoad[visit]));
    return Math.min(number, LOADED_AGAIN);
  }

  paint() {
    const pixels = new Uint32Array(this.image.data.buffer);
    const table = colourTable(this.model);
    const most = 4 ** this.shift;
    for (let at = 0; at < pixels.length; at++) {
      const pairs = this.reach[at];
      if (pairs === 0) {
        pixels[at] = 0;
        continue;
      }
      const level = Math.min(Math.ceil((LEVELS * this.seen[at]) / pairs), LEVELS);
      const colour = table[(this.mode[at] * (LEVELS + 1) + level) * 3 + this.load[at]];
      pixels[at] = colour | ((255 * Math.min(0.45 + (0.55 * pairs) / most, 1)) << 24);
    }
    this.inside.putImageData(this.image, 0, 0);
  }
}

/** Colours by mode, share visited and kind of load: mixing them anew for each pixel is too slow. */
function colourTable(model) {
  const { reach, reread, ink } = palette.rgb;
  const table = [];
  for (const mode of ["plain", ...model.modeNames.map(modeInk)]) {
    for (let level = 0; level <= LEVELS; level++) {
      const colour = mixed(reach, palette.rgb[mode], level / LEVELS);
      table.push(colour, mixed(colour, ink, 0.3), mixed(colour, reread, 0.75));
    }
  }
  return Uint32Array.from(table, ([r, g, b]) => (b << 16) | (g << 8) | r);
}

function mixed(from, to, share) {
  return from.map((value, at) => value + (to[at] - value) * share);
}

function readNumberOf(model, load) {
  return load < 0 ? 0 : model.readNumber[load];
}
