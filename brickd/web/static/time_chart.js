// Charts of figures over time, one above the other, with one cursor.
//
// Owns: the drawing, the gaps, the keys of the cursor. Must not know: documents, what the cursor changes. Invariants: A
// line covers only the time of rows: it never crosses a gap, and a gap is hatched. A row is drawn as long as it is.

import { linear, logarithmic, timeLines, timeText } from "./axes.js";
import { element, picture, replace } from "./dom.js";

const HEIGHT = 170; // pixels of one chart, with its axis of time
const EDGE = { left: 66, right: 12, top: 22, bottom: 20 };
const TIME_ROOM = 64; // pixels of a text on the axis of time
const NARROW_GAP = 1; // pixels; a narrower gap is not hatched
const SAME_S = 0.5; // between two rows with less time in between, there is no gap
const PAGE = 10; // rows that Page Up and Page Down move

/**
 * Charts.
 *
 * A chart has: `title`, `logarithmic`, `text(value)`, and `lines`: each with `name`, `of(row)` (null: no value) and
 * `class`; `marked(row)`, whether a row has a mark, and `mark`, what the mark means. Rows have `start` and `end` in
 * seconds, and are sorted. `options`: `label`; `sentence(row)`, the row in words; `move(row)` is called when the cursor
 * moves.
 */
export class TimeChart {
  constructor(charts, options) {
    [this.charts, this.options, this.rows, this.cursor] = [charts, options, [], null];
    this.image = picture("svg", {
      class: "chart", role: "slider", tabindex: 0, "aria-label": options.label,
      onkeydown: (event) => this._key(event), onclick: (event) => this._click(event),
      onpointermove: (event) => this._point(event), onpointerleave: () => this._point(null),
    });
    this.element = element("div", { class: "chart-room" }, this.image);
    this.pointer = picture("path", { class: "chart-pointer" });
    new ResizeObserver(() => this._draw()).observe(this.element);
  }

  /** Show rows of a period; `cursor` is a time or null. */
  show(rows, period, cursor) {
    [this.rows, this.period, this.cursor] = [rows, period, cursor];
    this._draw();
  }

  /** Return the number of the row at the cursor; the last one if there is no cursor; -1 without rows. */
  at() {
    return this.cursor === null ? this.rows.length - 1 : nearest(this.rows, this.cursor);
  }

  _draw() {
    this.width = this.element.clientWidth;
    if (!this.period || this.width < EDGE.left + EDGE.right + TIME_ROOM) return;
    const height = HEIGHT * this.charts.length;
    this.image.setAttribute("viewBox", `0 0 ${this.width} ${height}`);
    this.image.setAttribute("height", height);
    const charts = this.charts.map((chart, n) => this._chart(chart, n * HEIGHT));
    replace(this.image, hatching(), charts, this._cursorLine(), this.pointer);
    const at = this.at();
    this.image.setAttribute("aria-valuemin", 0);
    this.image.setAttribute("aria-valuemax", Math.max(0, this.rows.length - 1));
    this.image.setAttribute("aria-valuenow", Math.max(0, at));
    this.image.setAttribute("aria-valuetext", at < 0 ? "nothing recorded" : this.options.sentence(this.rows[at]));
  }

  /** Return the pixel of a time. */
  _x(time) {
    const { from, to } = this.period;
    const part = (Math.min(to, Math.max(from, time)) - from) / (to - from);
    return EDGE.left + part * (this.width - EDGE.left - EDGE.right);
  }

  _chart(chart, top) {
    const values = chart.lines.flatMap((line) => this.rows.map(line.of)).filter((value) => value !== null);
    const axis = chart.logarithmic ? logarithmic(values) : linear(values);
    const [low, high] = [top + HEIGHT - EDGE.bottom, top + EDGE.top];
    const y = (value) => low - axis.at(value) * (low - high);
    const [left, right] = [EDGE.left, this.width - EDGE.right];
    const times = timeLines(this.period.from, this.period.to, (right - left) / TIME_ROOM);
    return picture("g", {},
      picture("text", { x: 4, y: top + 13, class: "chart-title" }, chart.title),
      this._names(chart, top),
      gaps(this.rows, this.period).map(([from, to]) => this._gap(this._x(from), this._x(to), high, low)),
      axis.lines.map((value) => [
        picture("path", { class: "chart-grid", d: `M${left} ${y(value)}H${right}` }),
        picture("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, chart.text(value)),
      ]),
      times.map((time) => [
        picture("path", { class: "chart-grid", d: `M${this._x(time)} ${high}V${low}` }),
        this._x(time) < left + TIME_ROOM / 4 ? null // the text would be on that of the other axis
          : picture("text", { x: this._x(time), y: low + 14, "text-anchor": "middle" }, timeText(time)),
      ]),
      chart.lines.map((line) => picture("path", { class: `chart-line ${line.class}`, d: this._steps(line, y) })),
      this.rows.filter((row) => chart.marked?.(row)).map((row) => this._mark(row, low)),
    );
  }

  _gap(x, end, y, bottom) {
    if (end - x <= NARROW_GAP) return null;
    return picture("rect", { x, y, width: end - x, height: bottom - y, fill: "url(#no-slot)" });
  }

  _names(chart, top) {
    const names = [...chart.lines, ...(chart.mark ? [{ name: chart.mark, class: "chart-lost" }] : [])];
    let x = this.width - EDGE.right;
    return names.reverse().map(({ name, class: kind }) => {
      x -= 7 * name.length + 36;
      const sample = kind === "chart-lost" ? triangle(x + 11, top + 13) : `M${x} ${top + 9}H${x + 22}`;
      return [
        picture("path", { class: `chart-sample ${kind === "chart-lost" ? kind : `chart-line ${kind}`}`, d: sample }),
        picture("text", { x: x + 26, y: top + 13 }, name),
      ];
    });
  }

  /** Return the path of a line: a level piece for each row; rows with a gap in between are not connected. */
  _steps(line, y) {
    let [path, end] = ["", null]; // `end` is the end of the last row; null if the row had no value
    for (const row of this.rows) {
      const value = line.of(row);
      if (value !== null) {
        const connected = end !== null && row.start - end < SAME_S;
        path += `${connected ? "L" : "M"}${pixel(this._x(row.start))} ${pixel(y(value))}H${pixel(this._x(row.end))}`;
      }
      end = value === null ? null : row.end;
    }
    return path;
  }

  _mark(row, low) {
    return picture("path", { class: "chart-lost", d: triangle((this._x(row.start) + this._x(row.end)) / 2, low) });
  }

  _cursorLine() {
    const { cursor, period } = this;
    if (cursor === null || cursor < period.from || cursor > period.to) return null;
    const x = pixel(this._x(cursor));
    return [
      picture("path", { class: "chart-cursor", d: `M${x} ${EDGE.top - 6}V${this._bottom()}` }),
      picture("path", { class: "chart-cursor-head", d: `M${x - 6} ${EDGE.top - 10}h12l-6 9z` }),
    ];
  }

  /** Return the pixel where the last chart ends. */
  _bottom() {
    return HEIGHT * this.charts.length - EDGE.bottom;
  }

  _rowUnder(event) {
    const x = event.clientX - this.image.getBoundingClientRect().left;
    const { from, to } = this.period ?? {};
    if (!this.rows.length || x < EDGE.left || x > this.width - EDGE.right) return -1;
    return nearest(this.rows, from + ((x - EDGE.left) / (this.width - EDGE.left - EDGE.right)) * (to - from));
  }

  _point(event) {
    const at = event === null ? -1 : this._rowUnder(event);
    if (at < 0) this.pointer.removeAttribute("d");
    else this.pointer.setAttribute("d", `M${pixel(this._x(middle(this.rows[at])))} ${EDGE.top}V${this._bottom()}`);
    this.options.point(at < 0 ? null : this.rows[at]);
  }

  _click(event) {
    this._move(this._rowUnder(event));
  }

  _key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const at = this.at();
    const moves = {
      ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1, PageDown: at - PAGE, PageUp: at + PAGE,
      Home: 0, End: this.rows.length - 1,
    };
    if (!Object.hasOwn(moves, event.key)) return;
    event.preventDefault();
    if (this.rows.length) this._move(Math.min(this.rows.length - 1, Math.max(0, moves[event.key])));
  }

  _move(at) {
    if (at < 0) return;
    this.cursor = middle(this.rows[at]);
    this._draw();
    this.options.move(this.rows[at]);
  }
}

/** Return the time in the middle of a row, in whole seconds if the row has one. */
export function middle(row) {
  const whole = Math.round((row.start + row.end) / 2);
  return whole >= row.start && whole <= row.end ? whole : (row.start + row.end) / 2;
}

/** Return the parts of a period that no row covers. */
function gaps(rows, { from, to }) {
  const found = [];
  let covered = from;
  for (const { start, end } of rows) {
    if (start - covered >= SAME_S) found.push([covered, start]);
    covered = Math.max(covered, end);
  }
  if (to - covered >= SAME_S) found.push([covered, to]);
  return found;
}

/** Return the number of the row at a time, or nearest to it; -1 without rows. */
export function nearest(rows, time) {
  const distance = ({ start, end }) => Math.max(0, start - time, time - end);
  return rows.reduce((best, row, n) => (best < 0 || distance(row) < distance(rows[best]) ? n : best), -1);
}

const pixel = (value) => Math.round(value * 10) / 10;
const triangle = (x, low) => `M${pixel(x) - 4} ${low}h8l-4 -8z`;

function hatching() {
  const options = { id: "no-slot", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" };
  return picture("defs", {}, picture("pattern", options, picture("path", { class: "chart-gap", d: "M0 0V6" })));
}
