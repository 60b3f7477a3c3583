// The view of the workers: their states, and how long each took in each brick.
//
// Owns: the columns, the choices over and colour, the names that the heat map asks for. Must not know: how a heat map is
// drawn. Invariants: What the heat map leaves out is named. A chosen worker is compared with all workers of its service.

import { choice } from "./choices.js";
import { element, replace, setText, short, visible } from "./dom.js";
import { atMost, count, duration, many, percent } from "./figures.js";
import { HeatCells, times } from "./heat_cells.js";
import { HeatMap } from "./heat_map.js";
import { chosen } from "./place.js";
import { scaleOf } from "./scales.js";
import { servicesOf } from "./services.js";
import { Table } from "./table.js";
import {
  CPU, LOST, MEMORY, NAME, OPEN_NOW, PENDING, PID, PROBLEM, SPANS, STATE, THREADS, markOf, namedBy,
} from "./worker_columns.js";

const OVER = ["start", "60s", "10s"];
const RELATIVE = "mean time, compared with the median";
const SELF = "self time";
const MOST_CELLS = 4096; // that the page asks for
const MOST_PLACES = 100000; // of bricks in all workers; the daemon needs up to 0.1 ms for each, and has other work
const COLUMN = 13; // pixels of a brick with a label
const LETTERS = 100; // of a name in the label of a link
const LEGEND_STEPS = 24;

export const workers = {
  name: "workers",
  title: "Workers",
  needs: ({ names, at, choices, recorded }, status) => (at !== null || (!recorded && isTooMuch(status)) ? {} : {
    bricks: ["bricks", {
      name: servicesOf(status.workers, names), by: "worker", top: recorded || names.length ? MOST_CELLS : fitting(status),
      over: OVER.includes(choices.over) ? choices.over : null,
    }],
  }),
  mount(room, page) {
    const choose = (name) => (value) => page.go(chosen(page.place, name, value));
    const over = choice("Time", OVER, choose("over"));
    const colour = choice("Colour", [RELATIVE, SELF], (value) => choose("colour")(value && "self"));
    let named = new Set();
    const states = new Table("Workers", COLUMNS, {
      key: (row) => row.name, mark: (row) => markOf(row, named), open: (row) => page.go({ view: "latency", names: [row.name] }),
    });
    const heat = new HeatPart(page);
    const options = element("div", { class: "choices" }, page.source.recorded ? null : over.element, colour.element);
    replace(room, states.element, element("section", { "aria-labelledby": "heat-title" },
      element("h2", { id: "heat-title" }, "Time in each brick"),
      options, heat.element));
    return {
      show({ status, bricks }, { names, at, choices }) {
        options.hidden = at !== null; // there is no heat map
        over.show(choices.over);
        colour.show(choices.colour === "self" ? SELF : RELATIVE);
        named = namedBy(status.problems);
        states.show(status.workers ?? []);
        states.entitle(status.workers === null ? "The workers of this time are not known" : many(status.workers.length, "worker"));
        const kind = choices.colour === "self" ? "self" : "relative";
        heat.show(bricks, { names, kind, status, at });
      },
    };
  },
};

/** The heat map with its legend, the selected cell in words, and the same figures as a table. */
class HeatPart {
  constructor(page) {
    const open = (worker, brick) => page.go({ view: "latency", names: [worker], choices: { brick } });
    this.page = page;
    this.about = element("p", { class: "small" });
    this.legend = element("p", { class: "legend" });
    this.line = element("span", { "aria-live": "polite" });
    this.link = element("a", { href: "#workers" }, "latency");
    this.map = new HeatMap("Time of each worker in each brick: arrow keys select a cell, Enter opens its latency", {
      open, select: () => this._describe(),
    });
    this.table = new Table("Time of each worker in each brick", CELL_COLUMNS, {
      key: ({ row }) => JSON.stringify([row.worker, row.name, row.bounded]),
      open: ({ row }) => open(row.worker, row.name), sort: "Self time",
    });
    this.details = element("details", { ontoggle: () => this._fill() },
      element("summary", {}, "The same as a table"), this.table.element);
    this.picture = element("div", {},
      this.legend, this.map.element, element("p", { class: "figures" }, this.line, " ", this.link), this.details);
    this.element = element("div", {}, this.about, this.picture);
  }

  show(document, { names, kind, status, at }) {
    const rows = document?.bricks ?? [];
    this.picture.hidden = !rows.length;
    const cells = new HeatCells(rows, status.workers ?? []);
    setText(this.about, at === null ? aboutOf(document, cells, status) : ONLY_NOW);
    if (!rows.length) return;
    this.map.show(cells, { kind, scale: kind === "self" ? "sequential" : "diverging", marked: new Set(names) });
    replace(this.legend, legend(cells, kind));
    this._describe();
    this._fill();
  }

  /** Show the selected cell in words, and link to its latency. */
  _describe() {
    const at = this.map.at();
    setText(this.line, this.map.cells.sentence(...at));
    const [worker, brick] = [this.map.cells.workers[at[0]], this.map.cells.bricks[at[1]].name];
    this.link.setAttribute("href", this.page.link({ view: "latency", names: [worker], choices: { brick } }));
    this.link.setAttribute("aria-label", `latency of ${visible(short(brick, LETTERS))} in ${visible(short(worker, LETTERS))}`);
  }

  /** Fill the table if it is open. */
  _fill() {
    const { cells } = this.map;
    if (!this.details.open || !cells) return;
    const found = [];
    cells.workers.forEach((_, worker) => cells.bricks.forEach((each, brick) => {
      const row = cells.row(worker, brick);
      if (row) found.push({ worker, brick, row, relative: cells.relative(worker, brick) });
    }));
    this.table.show(found);
  }
}

/** Return how many places of bricks the workers have. For a heat map, the daemon reads all of them. */
const placesOf = ({ workers }) => workers.reduce((sum, { paths }) => sum + (paths?.used ?? 0), 0);

const isTooMuch = (status) => placesOf(status) > MOST_PLACES;

/** Return how many cells have room next to each other, with their labels. */
const fitting = ({ workers }) => Math.min(MOST_CELLS, Math.max(1, workers.length) * Math.ceil(window.innerWidth / COLUMN));

const ONLY_NOW = "The heat map shows only now: the last day is kept for each service, not for each worker.";

function aboutOf(document, cells, status) {
  if (!document) {
    return `The heat map is left out: for ${count(placesOf(status))} places of bricks in ${many(status.workers.length, "worker")}, `
      + "the daemon would be busy for long. The view Bricks names the worst worker of each brick.";
  }
  const shown = document.bricks.length - cells.left.length;
  if (!shown) return "No worker recorded a brick in this time.";
  const left = document.rest.bricks + cells.left.length;
  const share = cells.left.reduce((sum, row) => sum + row.share_percent, document.rest.share_percent);
  const cut = left ? ` ${many(left, "cell")} with ${percent(share)} of the self time are not shown, and are in no median.` : "";
  return `${many(shown, "cell")}. Blank: no figures, or no second worker of the service to compare with.${cut}`;
}

/** Return the colours of a scale with their texts. */
function legend(cells, kind) {
  const scale = scaleOf(kind === "self" ? "sequential" : "diverging");
  const bar = element("span", { class: "legend-bar", "aria-hidden": "true" });
  const stops = Array.from({ length: LEGEND_STEPS }, (_, n) => scale.css(n / (LEGEND_STEPS - 1)));
  bar.style.setProperty("background", `linear-gradient(to right, ${stops.join(", ")})`);
  const [first, middle, last] = cells.legend(kind);
  return [element("span", {}, first), bar, element("span", {}, last), element("span", { class: "small" }, `middle: ${middle}`)];
}

const COLUMNS = [NAME, STATE, PID, THREADS, SPANS, LOST, CPU, MEMORY, OPEN_NOW, PENDING, PROBLEM];

const CELL_COLUMNS = [
  { title: "Worker", text: ({ row }) => row.worker, value: ({ row }) => row.worker },
  { title: "Brick", text: ({ row }) => row.name, value: ({ row }) => row.name },
  { title: "Mean", number: true, text: ({ row }) => atMost(row.mean_ns, row.bounded), value: ({ row }) => row.mean_ns },
  { title: "Of the median", number: true, text: ({ relative }) => (relative === null ? "-" : times(relative)), value: ({ relative }) => relative },
  { title: "Count", number: true, text: ({ row }) => count(row.count), value: ({ row }) => row.count },
  { title: "Self time", number: true, text: ({ row }) => duration(row.self_ns), value: ({ row }) => row.self_ns },
];
