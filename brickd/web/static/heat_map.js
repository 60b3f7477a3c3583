// A heat map on a canvas: a row for each worker, a column for each brick.
//
// Owns: the canvas, the sizes of cells, scrolling, the keys, the selected cell. Must not know: documents, what a colour
// means. Invariants: The canvas is as large as the visible part, so that 100,000 cells cost one small picture. The
// selected cell stays the same worker and brick when new figures come.

import { element, setText, short, visible } from "./dom.js";
import { scaleOf } from "./scales.js";

const CELL = { width: [5, 64], height: [5, 24] }; // pixels, the least and the most
const LABEL = { width: 170, height: 130, share: 0.35, letters: 40 };
const GAP_FROM = 7; // cells of this size have a gap between them
const NUMBER_FROM = [42, 16]; // cells of this width and height have their number
const LINE = 13; // pixels between two labels
const PAGE = 10; // cells that Page Up and Page Down move
const FONT = "12px ui-monospace, 'DejaVu Sans Mono', monospace";

/**
 * A heat map. `options`: `open(worker, brick)` is called for Enter and for a click on the selected cell; `select()` is
 * called when another cell is selected.
 */
export class HeatMap {
  constructor(label, options) {
    this.options = options;
    this.cells = null;
    this.selected = null; // the names of a worker and a brick, and whether the brick has bounds
    this.canvas = element("canvas", { "aria-hidden": "true" });
    this.space = element("div", { class: "heat-space" }, this.canvas);
    this.tip = element("p", { class: "tip", "aria-hidden": "true", hidden: true });
    const draw = () => this._draw();
    this.box = element("div", {
      class: "heat", tabindex: 0, role: "application", "aria-roledescription": "heat map", "aria-label": label,
      onscroll: draw, onfocus: draw, onblur: draw,
      onkeydown: (event) => this._key(event), onclick: (event) => this._click(event),
      onpointermove: (event) => this._point(event), onpointerleave: () => { this.tip.hidden = true; },
    }, this.space);
    this.element = element("div", { class: "heat-frame" }, this.box, this.tip);
    this._picture = document.createElement("canvas"); // a pixel for each cell
    new ResizeObserver(() => this._layOut()).observe(this.box);
  }

  /** Show cells by `kind`, a scale of `scaleOf`; the labels of the workers in `marked` are bold. */
  show(cells, { kind, scale, marked }) {
    [this.cells, this.kind, this.marked, this.scale] = [cells, kind, marked, scaleOf(scale)];
    this.shades = cells.shades(kind);
    this.workers = cells.workers.map(label);
    this.bricks = cells.bricks.map(({ name, bounded }) => `${bounded ? "≤ " : ""}${label(name)}`);
    this._paint();
    this._layOut();
  }

  /** Return the numbers of the selected worker and brick; null without cells. */
  at() {
    const { cells, selected } = this;
    if (!cells?.rows.length) return null;
    if (!selected) return [0, 0];
    const isSelected = ({ name, bounded }) => name === selected.brick && bounded === selected.bounded;
    return [Math.max(0, cells.workers.indexOf(selected.worker)), Math.max(0, cells.bricks.findIndex(isSelected))];
  }

  _paint() {
    const [width, height] = [Math.max(1, this.bricks.length), Math.max(1, this.workers.length)];
    [this._picture.width, this._picture.height] = [width, height];
    const context = this._picture.getContext("2d");
    const image = context.createImageData(width, height);
    new Uint32Array(image.data.buffer).set(this.scale.pixels(this.shades));
    context.putImageData(image, 0, 0);
  }

  _layOut() {
    const width = this.box.clientWidth;
    if (!this.cells || !width) return;
    const context = this.canvas.getContext("2d");
    context.font = FONT;
    const longest = (texts) => texts.reduce((most, text) => Math.max(most, context.measureText(text).width), 0) + 12;
    this.left = Math.ceil(Math.min(longest(this.workers), LABEL.width, width * LABEL.share));
    this.top = Math.ceil(Math.min(longest(this.bricks), LABEL.height));
    this.width = fitted((width - this.left) / this.bricks.length, CELL.width);
    this.height = fitted((0.6 * window.innerHeight - this.top) / this.workers.length, CELL.height);
    this.space.style.setProperty("width", `${this.left + this.width * this.bricks.length}px`);
    this.space.style.setProperty("height", `${this.top + this.height * this.workers.length}px`);
    this._draw();
  }

  _draw() {
    if (!this.cells) return;
    const { clientWidth, clientHeight } = this.box;
    const dots = window.devicePixelRatio || 1;
    const [width, height] = [Math.round(clientWidth * dots), Math.round(clientHeight * dots)];
    if (this.canvas.width !== width || this.canvas.height !== height) {
      [this.canvas.width, this.canvas.height] = [width, height];
      this.canvas.style.setProperty("width", `${clientWidth}px`);
      this.canvas.style.setProperty("height", `${clientHeight}px`);
    }
    const context = this.canvas.getContext("2d");
    context.setTransform(dots, 0, 0, dots, 0, 0);
    context.clearRect(0, 0, clientWidth, clientHeight);
    context.font = FONT;
    const look = getComputedStyle(this.box);
    this._drawCells(context, look);
    this._drawLabels(context, look.color);
  }

  /** Return the numbers of the first cell that is visible, and of the cell after the last one. */
  _range() {
    const { box, left, top, width, height } = this;
    const range = (scroll, size, room, length) =>
      [Math.floor(scroll / size), Math.min(length, Math.ceil((scroll + room) / size))];
    return {
      x: range(box.scrollLeft, width, box.clientWidth - left, this.bricks.length),
      y: range(box.scrollTop, height, box.clientHeight - top, this.workers.length),
    };
  }

  _drawCells(context, look) {
    const { box, left, top, width, height } = this;
    const [x, y] = [left - box.scrollLeft, top - box.scrollTop];
    context.save();
    context.beginPath();
    context.rect(left, top, box.clientWidth - left, box.clientHeight - top);
    context.clip();
    context.imageSmoothingEnabled = false;
    context.drawImage(this._picture, x, y, width * this.bricks.length, height * this.workers.length);
    context.fillStyle = look.backgroundColor;
    this._drawGaps(context, x, y);
    if (width >= NUMBER_FROM[0] && height >= NUMBER_FROM[1]) this._drawNumbers(context, x, y);
    const at = this.at();
    if (at) {
      const thick = document.activeElement === box ? 3 : 1;
      context.strokeStyle = look.color;
      context.lineWidth = thick;
      const inset = Math.min(width, height) > 10 ? thick / 2 : -thick / 2; // around a small cell, inside a large one
      context.strokeRect(x + at[1] * width + inset, y + at[0] * height + inset, width - 1 - 2 * inset, height - 1 - 2 * inset);
    }
    context.restore();
  }

  _drawGaps(context, x, y) {
    const { box, left, top, width, height } = this;
    const { x: [firstX, lastX], y: [firstY, lastY] } = this._range();
    for (let n = firstX; width >= GAP_FROM && n < lastX; n++) {
      context.fillRect(x + (n + 1) * width - 1, top, 1, box.clientHeight);
    }
    for (let n = firstY; height >= GAP_FROM && n < lastY; n++) {
      context.fillRect(left, y + (n + 1) * height - 1, box.clientWidth, 1);
    }
  }

  _drawNumbers(context, x, y) {
    const { x: [firstX, lastX], y: [firstY, lastY] } = this._range();
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let worker = firstY; worker < lastY; worker++) {
      for (let brick = firstX; brick < lastX; brick++) {
        const shade = this.shades[worker * this.bricks.length + brick];
        if (Number.isNaN(shade)) continue;
        context.fillStyle = this.scale.ink(shade);
        const [middle, line] = [x + (brick + 0.5) * this.width, y + (worker + 0.5) * this.height];
        context.fillText(this.cells.short(this.kind, worker, brick), middle, line, this.width - 4);
      }
    }
  }

  _drawLabels(context, colour) {
    const { box, left, top, width, height } = this;
    const { x, y } = this._range();
    const at = this.at();
    context.fillStyle = colour;
    context.textAlign = "right";
    context.textBaseline = "middle";
    context.save();
    context.beginPath();
    context.rect(0, top, left, box.clientHeight);
    context.clip();
    for (const n of labelled(y, height, at?.[0])) {
      context.font = this.marked.has(this.cells.workers[n]) ? `bold ${FONT}` : FONT;
      context.fillText(fitting(context, this.workers[n], left - 8), left - 6, top - box.scrollTop + (n + 0.5) * height);
    }
    context.restore();
    context.beginPath();
    context.rect(left, 0, box.clientWidth, top);
    context.save();
    context.clip();
    context.textAlign = "left";
    for (const n of labelled(x, width, at?.[1])) {
      context.save();
      context.translate(left - box.scrollLeft + (n + 0.5) * width, top - 6);
      context.rotate(-Math.PI / 2);
      context.fillText(fitting(context, this.bricks[n], top - 8), 0, 0);
      context.restore();
    }
    context.restore();
  }

  /** Return the numbers of the cell under a pointer; null next to the cells. */
  _under(event) {
    if (!this.cells) return null;
    const place = this.box.getBoundingClientRect();
    const x = event.clientX - place.left - this.box.clientLeft - this.left;
    const y = event.clientY - place.top - this.box.clientTop - this.top;
    const brick = Math.floor((x + this.box.scrollLeft) / this.width);
    const worker = Math.floor((y + this.box.scrollTop) / this.height);
    return x >= 0 && y >= 0 && brick < this.bricks.length && worker < this.workers.length ? [worker, brick] : null;
  }

  _point(event) {
    const at = this._under(event);
    this.tip.hidden = at === null;
    if (at === null) return;
    setText(this.tip, this.cells.sentence(...at));
    const frame = this.element.getBoundingClientRect();
    const x = Math.min(event.clientX - frame.left + 12, Math.max(0, frame.width - this.tip.offsetWidth));
    this.tip.style.setProperty("left", `${x}px`);
    this.tip.style.setProperty("top", `${event.clientY - frame.top + 16}px`);
  }

  _click(event) {
    const at = this._under(event);
    if (at === null) return;
    const before = this.at();
    const again = this.selected !== null && at[0] === before[0] && at[1] === before[1];
    this._select(...at);
    if (again) this._open();
  }

  _key(event) {
    const at = this.at();
    if (at === null || event.ctrlKey || event.altKey || event.metaKey) return;
    const [worker, brick] = at;
    const moves = {
      ArrowUp: [worker - 1, brick], ArrowDown: [worker + 1, brick],
      ArrowLeft: [worker, brick - 1], ArrowRight: [worker, brick + 1],
      PageUp: [worker - PAGE, brick], PageDown: [worker + PAGE, brick],
      Home: [worker, 0], End: [worker, this.bricks.length - 1],
    };
    if (Object.hasOwn(moves, event.key)) this._select(...moves[event.key]);
    else if (event.key === "Enter") this._open();
    else return;
    event.preventDefault();
  }

  _open() {
    const [worker, brick] = this.at();
    this.options.open(this.cells.workers[worker], this.cells.bricks[brick].name);
  }

  _select(worker, brick) {
    worker = Math.min(this.workers.length - 1, Math.max(0, worker));
    brick = Math.min(this.bricks.length - 1, Math.max(0, brick));
    const { name, bounded } = this.cells.bricks[brick];
    this.selected = { worker: this.cells.workers[worker], brick: name, bounded };
    const { box, left, top, width, height } = this;
    box.scrollLeft = shown(box.scrollLeft, brick * width, width, box.clientWidth - left);
    box.scrollTop = shown(box.scrollTop, worker * height, height, box.clientHeight - top);
    this._draw();
    this.options.select();
  }
}

const label = (name) => short(visible(short(name, LABEL.letters)), LABEL.letters);

const fitted = (pixels, [least, most]) => Math.min(most, Math.max(least, Math.floor(pixels)));

/** Return the scroll position nearest to `scroll` that shows a cell. */
const shown = (scroll, cell, size, room) => Math.max(cell + size - room, Math.min(cell, scroll));

/** Return which of the visible rows or columns have a label: as many as have room, and the selected one. */
function labelled([first, last], size, selected) {
  const step = Math.ceil(LINE / size);
  const found = [];
  for (let n = first; n < last; n++) {
    const near = selected !== undefined && Math.abs(n - selected) < step;
    if (n === selected || (n % step === 0 && !near)) found.push(n);
  }
  return found;
}

/** Return the beginning of a text that is as wide as the room. */
function fitting(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  const letters = Math.floor(room / context.measureText("m").width) - 1;
  return short(text, Math.max(1, letters));
}
