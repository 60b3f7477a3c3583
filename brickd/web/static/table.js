// A table of many rows.
//
// Owns: sorting, the keys, which rows are in the page. Must not know: documents. Invariants: Only rows near the visible
// part are in the page, so that ten thousand rows cost as little as forty. New figures move neither the scroll position
// nor the focus, and a text that stays the same stays selected.

import { become, element, setText, short, visible } from "./dom.js";

const ROW = 28; // pixels; page.css has the same number
const WIDE = 50; // letters of a text that page.css may cut
const MARGIN = 10; // rows above and below the visible part
const LETTERS = 200; // of a text that a cell has; a worker may choose names of 64 KiB
const ALL = 200; // tables up to this length are in the page as a whole, so that "find in page" works

/**
 * A table.
 *
 * Columns have: `title`; `text(row)`, or `node(row)` for a cell with elements; `value(row)`, by which the column is
 * sorted (a column without it cannot be); `number`, whether it is one. `options`: `open(row)` is called for Enter and a
 * click; `key(row)` identifies a row; `mark(row)` is the class of a row; `sort` is the title of the column by which the
 * table is sorted first, the largest value first; without it, rows keep their order.
 */
export class Table {
  constructor(caption, columns, options = {}) {
    [this.columns, this.options, this.rows] = [columns, options, []];
    this.sorted = { column: columns.find((each) => each.title === options.sort) ?? null, down: true };
    [this.selected, this._reached] = [null, null]; // the keys of the selected row, and of the one that Tab reaches
    this.heads = columns.map((column) => this._head(column));
    this.body = element("tbody", {
      onkeydown: (event) => this._key(event),
      onclick: options.open ? (event) => this._click(event) : undefined,
    });
    this._made = new Map(); // the elements of the rows in the page, by the keys of the rows
    this.caption = element("caption", {}, caption);
    this.table = element("table", {}, this.caption, element("thead", {}, element("tr", {}, this.heads)), this.body);
    this.element = element(
      "div",
      { class: "table", tabindex: 0, role: "region", "aria-label": caption, onscroll: () => this._draw() },
      this.table,
    );
    if (this.sorted.column) this._showOrder();
  }

  _head(column) {
    const options = { scope: "col", class: column.number ? "number" : undefined };
    if (!column.value) return element("th", options, column.title);
    return element("th", options, element("button", { type: "button", onclick: () => this._sort(column) }, column.title));
  }

  _sort(column) {
    this.sorted = { column, down: this.sorted.column === column ? !this.sorted.down : Boolean(column.number) };
    this._showOrder();
    this.show(this.rows);
  }

  _showOrder() {
    this.columns.forEach((column, n) => {
      if (column !== this.sorted.column) this.heads[n].removeAttribute("aria-sort");
      else this.heads[n].setAttribute("aria-sort", this.sorted.down ? "descending" : "ascending");
    });
  }

  /** Show these rows. */
  show(rows) {
    this.rows = rows;
    const { column, down } = this.sorted;
    this.ordered = column ? [...rows].sort((a, b) => compared(column.value(a), column.value(b), down)) : rows;
    this.table.setAttribute("aria-rowcount", this.ordered.length + 1);
    this._drawn = null;
    this._draw();
  }

  _draw() {
    const length = this.ordered.length;
    let [first, last] = [0, length];
    if (length > ALL) {
      first = Math.max(0, Math.floor(this.element.scrollTop / ROW) - MARGIN);
      last = Math.min(length, first + Math.ceil((this.element.clientHeight || 600) / ROW) + 2 * MARGIN);
    }
    if (this._drawn?.first === first && this._drawn.last === last) return;
    this._drawn = { first, last };
    const focused = this.body.contains(document.activeElement) ? document.activeElement : null;
    const rows = this.ordered.slice(first, last);
    this._reached = this._stop(rows, first);
    const before = this._made;
    this._made = new Map();
    arrange(this.body, [
      spacer(first, this.columns.length),
      ...rows.map((row, n) => this._placed(row, first + n, before)),
      spacer(length - last, this.columns.length),
    ].filter(Boolean));
    if (focused === null || focused === document.activeElement) return;
    const focus = focused.isConnected ? focused : this.body.querySelector('tr[tabindex="0"]'); // a moved row loses it
    focus?.focus({ preventScroll: true });
  }

  /** Return the key of the row that Tab reaches: the selected one, or the first visible one if that is not in the page. */
  _stop(rows, first) {
    if (!rows.length || rows.some((row) => this._keyOf(row) === this.selected)) return this.selected;
    const visible = rows.length < this.ordered.length ? Math.floor(this.element.scrollTop / ROW) - first : 0;
    return this._keyOf(rows[visible]);
  }

  _keyOf(row) {
    return this.options.key ? this.options.key(row) : this.ordered.indexOf(row);
  }

  /** Return the element of a row; the one that the row had before, if there was one. */
  _placed(row, at, before) {
    const key = this._keyOf(row);
    const [made, old] = [this._row(row, at, key), before.get(key)];
    before.delete(key); // two rows may have the same key
    if (old) become(old, made);
    this._made.set(key, old ?? made);
    return old ?? made;
  }

  _row(row, at, key) {
    return element(
      "tr",
      {
        class: this.options.mark?.(row) || undefined,
        "aria-rowindex": at + 2,
        "data-at": at,
        tabindex: key === this._reached ? 0 : -1,
      },
      this.columns.map((column, n) => cell(column, row, n === 0)),
    );
  }

  _click(event) {
    const at = event.target.closest("tr")?.dataset.at;
    if (at !== undefined) this._open(Number(at));
  }

  _open(at) {
    this._select(at);
    this.options.open?.(this.ordered[at]);
  }

  _key(event) {
    const length = this.ordered.length;
    const at = Number(event.target.closest("tr")?.dataset.at);
    const page = Math.max(1, Math.floor(this.element.clientHeight / ROW) - 2);
    const moves = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: length - 1 };
    if (event.key === "Enter" && event.target.tagName === "TR") this._open(at);
    else if (event.key in moves) this._select(Math.min(length - 1, Math.max(0, moves[event.key])));
    else return;
    event.preventDefault();
  }

  _select(at) {
    this.selected = this._keyOf(this.ordered[at]);
    if (this.ordered.length > ALL) {
      const [top, bottom] = [at * ROW, at * ROW + 3 * ROW - this.element.clientHeight];
      this.element.scrollTop = Math.max(bottom, Math.min(top, this.element.scrollTop));
    }
    this._drawn = null;
    this._draw();
    this.body.querySelector('tr[tabindex="0"]')?.focus();
  }

  /** Change the caption. */
  entitle(caption) {
    setText(this.caption, caption);
  }
}

function cell(column, row, first) {
  const content = column.node ? column.node(row) : short(column.text(row), LETTERS);
  return element(first ? "th" : "td", {
    scope: first ? "row" : undefined,
    class: column.number ? "number" : undefined,
    title: typeof content === "string" && content.length > WIDE ? visible(content) : undefined,
  }, content);
}

/** Make these the children of an element. A child that stays is moved only if another order needs it. */
function arrange(parent, children) {
  const stay = new Set(children);
  for (const each of [...parent.children]) if (!stay.has(each)) each.remove();
  let next = parent.firstChild;
  for (const each of children) {
    if (each === next) next = next.nextSibling;
    else parent.insertBefore(each, next);
  }
}

/** Compare two values. A value that is null comes last in both orders. */
function compared(a, b, down) {
  if (a === b) return 0;
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  return (a < b) === down ? 1 : -1;
}

function spacer(rows, columns) {
  if (!rows) return null;
  return element("tr", { class: "spacer", "aria-hidden": "true" }, element("td", { colspan: columns, height: rows * ROW }));
}
