// The view of latency over the last day: percentiles, spans per second, losses, and a cursor that sets the shown time.
//
// Owns: the choices over, brick and end, the shown period. Must not know: how a chart is drawn. Invariants: The shown
// period has the shown time in it. The period and the cursor follow from the place alone.

import { choice, nameChoice } from "./choices.js";
import { element, replace, setText } from "./dom.js";
import { clock, count, duration, many, moment, seconds } from "./figures.js";
import { changed, chosen } from "./place.js";
import { servicesOf } from "./services.js";
import { Table } from "./table.js";
import { TimeChart, middle } from "./time_chart.js";

// For each choice: its length, how long a row is, and how long a document stays, in seconds. An hour of rows takes half a
// second of the daemon, so it is not asked in every round. The first choice is the default. A daemon keeps slots of
// 10 seconds for an hour, and slots of 5 minutes for longer.
const OVER = { "1h": [3600, "10s", 30], "10m": [600, "10s", 10], "6h": [21600, "5m", 60], "24h": [86400, "5m", 60] };
const SETTLED = 200; // milliseconds after the last key, until all views show the time of the cursor

/** Return the period of a place: its name in `OVER`, and its end in seconds; null: it ends now. */
export function periodOf({ at, choices }, now) {
  const over = Object.hasOwn(OVER, choices.over ?? "") ? choices.over : "1h";
  const [length] = OVER[over];
  const given = Number(choices.end || NaN);
  let end = given > 0 && given < now ? given : null;
  const outside = at !== null && (at > (end ?? now) || at < (end ?? now) - length);
  if (outside) end = Math.round(at + length / 2) < now ? Math.round(at + length / 2) : null;
  return { over, length, end };
}

export const latency = {
  name: "latency",
  title: "Latency",
  ofPeriod: true, // the cursor keeps the focus when the shown time changes
  needs(place, status) {
    const brick = place.choices.brick || null;
    if (place.recorded) return { history: ["history", { over: "1h", every: "1m", brick }] };
    const { over, end } = periodOf(place, Date.now() / 1000);
    const [, every, stays] = OVER[over];
    const name = brick ? servicesOf(status.workers ?? [], place.names) : place.chosen; // a worker's bricks are not kept
    return { history: ["history", { name, over, every, brick, at: end === null ? null : `@${end}` }, stays] };
  },
  mount(room, page) {
    const part = new LatencyPart(page);
    replace(room, page.source.recorded ? null : part.controls, part.element);
    return { show: (documents, place) => part.show(documents, place) };
  },
};

/** The controls, the charts, the row at the cursor in words, and the same figures as a table. */
class LatencyPart {
  constructor(page) {
    this.page = page;
    this._moving = null; // the timer of a cursor that is not yet the shown time
    const choose = (name) => (value) => page.go(chosen(page.place, name, value));
    this.over = choice("Time", Object.keys(OVER), choose("over"));
    this.brick = nameChoice("Brick", "all bricks", choose("brick"));
    this.period = element("span", { class: "small" });
    this.controls = element("div", { class: "choices" }, this.over.element, this.brick.element,
      element("button", { type: "button", onclick: () => this._turn(-1) }, "earlier period"),
      element("button", { type: "button", onclick: () => this._turn(1) }, "later period"),
      element("button", { type: "button", onclick: () => this._turn(null) }, "until now"), this.period);
    this.chart = new TimeChart(CHARTS, {
      label: "Shown time", sentence, move: (row) => this._move(row), point: (row) => this._say(row),
    });
    this.line = element("p", { class: "figures" });
    this.words = element("p", { class: "small" });
    this.table = new Table("Latency over time", COLUMNS, { key: (row) => row.from, open: (row) => this._move(row) });
    this.details = element("details", { ontoggle: () => this._fill() },
      element("summary", {}, "The same as a table"), this.table.element);
    this.element = element("div", {}, this.chart.element, this.line, this.words, this.details);
  }

  show({ history, status }, place) {
    const { recorded } = this.page.source;
    const [from, to] = history.to ? [seconds(history.from), seconds(history.to)] : [0, 0];
    const latest = recorded ? seconds(this.page.source.made) : Math.max(Date.now() / 1000, to);
    const now = recorded && to ? to : latest; // the daemon's clock may be ahead of the browser's
    const { over, length, end } = periodOf(place, now);
    this.over.show(over);
    this.brick.show(place.choices.brick ?? "", status.bricks.map((brick) => brick.name));
    this.shown = recorded && from < to ? { from, to } : { from: (end ?? now) - length, to: end ?? now };
    setText(this.period, `${moment(this.shown.from)} to ${moment(this.shown.to)}`);
    this.rows = history.slots.map((slot) => ({ ...slot, start: seconds(slot.from), end: seconds(slot.to) }));
    const moving = this._moving !== null || recorded;
    this.chart.show(this.rows, this.shown, moving ? this.chart.cursor : place.at);
    const services = servicesOf(status.workers ?? [], place.names).filter((service) => !place.names.includes(service));
    const sum = history.brick && services.length ? [`the brick is kept for each service: all of ${services.join(", ")}`] : [];
    setText(this.words, ["Hatched: no slot", ...sum, ...history.words].join("; "));
    this._say(null);
    this._fill();
  }

  /** Show a row in words; null: the row at the cursor. */
  _say(row) {
    const shown = row ?? this.rows?.[this.chart.at()];
    setText(this.line, shown ? sentence(shown) : "Nothing was recorded in this period.");
  }

  /** Make the time of a row the shown time, after the last of several keys. */
  _move(row) {
    this._say(row);
    if (this.page.source.recorded) return;
    clearTimeout(this._moving);
    this._moving = setTimeout(() => {
      this._moving = null;
      if (this.element.isConnected) this.page.go({ at: middle(row) }, { replaces: true });
    }, SETTLED);
  }

  /** Show an earlier (-1) or a later (1) period, or the one that ends now (null). A time outside of it is not kept. */
  _turn(by) {
    const { length } = periodOf(this.page.place, Date.now() / 1000);
    const end = by === null ? null : Math.round(this.shown.to + (by * length) / 2);
    const ends = end === null || end >= Date.now() / 1000 ? null : end;
    const place = chosen(this.page.place, "end", ends === null ? "" : String(ends));
    const { at } = this.page.place;
    const to = ends ?? Date.now() / 1000;
    const keeps = at !== null && at <= to && at >= to - length;
    this.page.go(changed(place, keeps ? {} : { at: null }));
  }

  _fill() {
    if (this.details.open && this.rows) this.table.show(this.rows);
  }
}

/** Return a row in words. */
function sentence(row) {
  const covered = row.over_ns / 1e9 / (row.end - row.start);
  const part = covered < 0.95 ? ` (slots cover ${duration(row.over_ns)} of it)` : "";
  return `${row.from.slice(0, 10)} ${clock(row.start)} to ${clock(row.end)} UTC${part}: `
    + `median ${duration(row.p50_ns)}, p99 ${duration(row.p99_ns)}, `
    + `${count(row.count_per_second)} spans per second, ${many(row.workers, "worker")}, ${count(row.lost)} lost`;
}

const CHARTS = [
  {
    title: "Duration (logarithmic)", logarithmic: true, text: duration,
    lines: [
      { name: "median", of: (row) => row.p50_ns, class: "chart-low" },
      { name: "p99", of: (row) => row.p99_ns, class: "chart-high" },
    ],
  },
  {
    title: "Spans per second", logarithmic: false, text: count, marked: (row) => row.lost > 0, mark: "lost",
    lines: [{ name: "spans/s", of: (row) => row.count_per_second, class: "chart-low" }],
  },
];

const COLUMNS = [
  { title: "From (UTC)", text: (row) => moment(row.start).slice(0, 19), value: (row) => row.start },
  { title: "To", text: (row) => clock(row.end), value: (row) => row.end },
  { title: "Workers", number: true, text: (row) => count(row.workers), value: (row) => row.workers },
  { title: "Count", number: true, text: (row) => count(row.count), value: (row) => row.count },
  { title: "Count/s", number: true, text: (row) => count(row.count_per_second), value: (row) => row.count_per_second },
  { title: "Median", number: true, text: (row) => duration(row.p50_ns), value: (row) => row.p50_ns },
  { title: "p99", number: true, text: (row) => duration(row.p99_ns), value: (row) => row.p99_ns },
  { title: "Self time", number: true, text: (row) => duration(row.self_ns), value: (row) => row.self_ns },
  { title: "Lost", number: true, text: (row) => count(row.lost), value: (row) => row.lost },
];
