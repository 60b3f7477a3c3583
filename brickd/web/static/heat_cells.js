// The cells of a heat map: one for each worker and brick.
//
// Owns: the order of workers and bricks, the median of a brick, which number of a cell is coloured. Must not know: how a
// cell is drawn. Invariants: A worker is compared only with its service. The median is of the means of its workers that
// did not die. If fewer than two of them recorded a brick, it is compared with nothing, so its cells are blank. The bricks
// with the least self time are left out and counted, if workers and bricks are too many to draw in a tenth of a second.

import { short } from "./dom.js";
import { atMost, count, duration, many } from "./figures.js";

const CLIP = 2; // a cell that is so many times slower or faster than the median has the last colour
const LETTERS = 100; // of a name in a sentence
const MOST = 100000; // cells, also the blank ones
const NATURAL = new Intl.Collator("en", { numeric: true }); // api/9 comes before api/10

/** The cells of a document `bricks` with one row for each brick and worker. `states` are the workers of a status. */
export class HeatCells {
  constructor(rows, states = []) {
    const [names, found, bounded, exact] = [new Map(), [], new Map(), new Map()];
    const places = rows.map((row) => {
      const known = row.bounded ? bounded : exact;
      let brick = known.get(row.name);
      if (!brick) {
        known.set(row.name, (brick = { name: row.name, bounded: row.bounded, self: 0 }));
        found.push(brick);
      }
      brick.self += row.self_ns;
      let worker = names.get(row.worker);
      if (!worker) names.set(row.worker, (worker = { name: row.worker, at: 0 }));
      return { worker, brick };
    });
    const workers = [...names.values()].sort((a, b) => NATURAL.compare(a.name, b.name));
    this.workers = workers.map(({ name }) => name);
    const known = new Map(states.map((state) => [state.name, state]));
    this.services = this.workers.map((name) => known.get(name)?.service ?? null);
    this._died = this.workers.map((name) => known.get(name)?.state === "died");
    found.sort((a, b) => b.self - a.self); // a brick with bounds differs from one without
    this.bricks = found.slice(0, Math.max(1, Math.floor(MOST / workers.length)));
    for (const each of [workers, found]) each.forEach((one, n) => { one.at = n; });
    this.rows = new Array(workers.length * this.bricks.length).fill(null);
    this.left = []; // the rows of bricks that are left out
    places.forEach(({ worker, brick }, n) => {
      if (brick.at < this.bricks.length) this.rows[worker.at * this.bricks.length + brick.at] = rows[n];
      else this.left.push(rows[n]);
    });
    this._measure();
  }

  _measure() {
    [this.least, this.most] = [Infinity, 0];
    for (const row of this.rows) {
      if (row === null || !(row.self_ns > 0)) continue;
      this.least = Math.min(this.least, row.self_ns);
      this.most = Math.max(this.most, row.self_ns);
    }
    const services = new Map(); // the workers in the medians
    this.services.forEach((service, worker) => {
      if (!services.has(service)) services.set(service, []);
      if (!this._died[worker]) services.get(service).push(worker);
    });
    const means = new Float64Array(this.workers.length);
    this.bricks.forEach((brick, n) => {
      brick.medians = new Map([...services].map(([service, workers]) => {
        let found = 0;
        for (const worker of workers) {
          const row = this.row(worker, n);
          if (row !== null) means[found++] = row.mean_ns;
        }
        return [service, { workers: found, middle: median(means.subarray(0, found).sort()) }];
      }));
    });
  }

  /** Return the row of a worker and a brick by their numbers; null if the document does not have it. */
  row(worker, brick) {
    return this.rows[worker * this.bricks.length + brick];
  }

  /** Return the mean of a cell divided by the median; null if there is nothing to compare it with. */
  relative(worker, brick) {
    const row = this.row(worker, brick);
    const { workers, middle } = this.bricks[brick].medians.get(this.services[worker]);
    return row === null || workers < 2 || !(middle > 0) ? null : row.mean_ns / middle;
  }

  /** Return the numbers of the cells, from 0 to 1, one worker after the other; NaN for a cell without a colour. */
  shades(kind) {
    const shades = new Float64Array(this.rows.length);
    const width = this.bricks.length;
    for (let at = 0; at < shades.length; at++) {
      shades[at] = kind === "self" ? this._ofSelf(this.rows[at]) : this._ofRelative(Math.floor(at / width), at % width);
    }
    return shades;
  }

  _ofSelf(row) {
    if (!row || !(row.self_ns > 0)) return NaN;
    return this.most > this.least ? Math.log(row.self_ns / this.least) / Math.log(this.most / this.least) : 1;
  }

  _ofRelative(worker, brick) {
    const relative = this.relative(worker, brick);
    return relative === null ? NaN : 0.5 + Math.log(Math.max(relative, Number.MIN_VALUE)) / (2 * Math.log(CLIP));
  }

  /** Return the text of the first, the middle and the last colour. */
  legend(kind) {
    if (kind === "self" && !this.most) return ["", "no self time", ""];
    if (kind === "self") return [duration(this.least), "self time (logarithmic)", duration(this.most)];
    return [`${CLIP}x faster or more`, "median of the service", `${CLIP}x slower or more`];
  }

  /** Return the number that stands in a cell, if the cell is large enough. */
  short(kind, worker, brick) {
    const row = this.row(worker, brick);
    if (kind === "self") return row ? duration(row.self_ns) : "";
    const relative = this.relative(worker, brick);
    return relative === null ? "" : times(relative);
  }

  /** Return a cell as a sentence. */
  sentence(worker, brick) {
    const row = this.row(worker, brick);
    const { medians, bounded, name } = this.bricks[brick];
    const service = this.services[worker];
    const place = `${short(this.workers[worker], LETTERS)}, ${short(name, LETTERS)}`;
    if (row === null) return `${place}: no figures`;
    const relative = this.relative(worker, brick);
    const compared = relative === null ? "not compared with another worker"
      : `${times(relative)} the median of ${many(medians.get(service).workers, "worker")}`
        + (service === null ? "" : ` of ${short(service, LETTERS)}`);
    return `${place}: mean ${atMost(row.mean_ns, bounded)}, ${compared}, ${many(row.count, "span")}, `
      + `self time ${duration(row.self_ns)}`;
  }
}

function median(sorted) {
  const middle = sorted.length >> 1;
  return sorted.length ? (sorted[(sorted.length - 1) >> 1] + sorted[middle]) / 2 : 0;
}

/** Return a factor as text. */
export const times = (factor) => (factor < 99.5 ? `${factor.toFixed(2)}x` : `${count(Math.round(factor))}x`);
