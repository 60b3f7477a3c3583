// The picture of a call tree: each node is a box, as wide as its time, below the box of its parent.
//
// Owns: the places of boxes, how they are drawn, its keys. Must not know: documents of views other than tree, the address.
// Invariants: A box is never narrower than its children together. Nodes that are not drawn are counted. Names are drawn
// as `visible` returns them. Children are in the order of recording, so that boxes do not change their places with time.

import { element, visible } from "./dom.js";
import { duration } from "./figures.js";

const ROW = 20; // pixels
const DEEPEST = 400; // rows; a canvas has a limit of height
const FONT = 'ui-monospace, "DejaVu Sans Mono", monospace';
const SIZE = 12;
const HUES = 12; // colours of categories that can be told apart

/**
 * Arrange the nodes of a tree below one root.
 *
 * An item has: `node`, null for the root; `parent`, `children`, `level`; `start` and `span`, the place and the width of its
 * box in nanoseconds; `size`, the number of nodes in it; `path`, which is the same in a later document.
 */
export function arranged(nodes, recordedNs) {
  const root = { node: null, parent: null, children: [], level: 0, start: 0, span: 0, size: 0, path: [] };
  const items = [];
  for (const node of nodes) {
    const parent = node.parent === null ? root : items[node.parent];
    const path = [...parent.path, `${node.kind}:${node.name}`];
    const item = { node, parent, children: [], level: parent.level + 1, start: 0, span: 0, size: 1, path };
    parent.children.push(item);
    items.push(item);
  }
  const sum = (item, of) => item.children.reduce((all, each) => all + each[of], 0);
  for (const item of [...items.reverse(), root]) {
    item.span = Math.max(item.node ? item.node.total_ns ?? 0 : recordedNs, sum(item, "span"));
    item.size += sum(item, "size");
  }
  for (const item of [root, ...items.reverse()]) {
    item.children.sort((a, b) => a.node.order - b.node.order);
    let at = item.start;
    for (const child of item.children) {
      child.start = at;
      at += child.span;
    }
  }
  return { root, items };
}

/** Return the item with this path, or the nearest one above it. */
export function found(root, path) {
  let at = root;
  for (const part of path) {
    const next = at.children.find((each) => each.path.at(-1) === part);
    if (!next) break;
    at = next;
  }
  return at;
}

/** Return the boxes to draw, and how many nodes below the zoomed one get none. `width` is in pixels. */
export function boxes(zoomed, width) {
  const drawn = [];
  for (let at = zoomed; at; at = at.parent) drawn.push({ item: at, left: 0, wide: width, row: at.level });
  const scale = zoomed.span ? width / zoomed.span : 0;
  const left = [...zoomed.children];
  let [missing, row] = [zoomed.size - (zoomed.node ? 1 : 0), zoomed.level];
  while (left.length) {
    const item = left.pop();
    const wide = item.span * scale;
    if (wide < 1 || item.level >= DEEPEST + zoomed.level) continue;
    drawn.push({ item, left: (item.start - zoomed.start) * scale, wide, row: item.level });
    missing -= 1;
    row = Math.max(row, item.level);
    for (const child of item.children) left.push(child);
  }
  return { drawn, missing, rows: row + 1 };
}

/** A flame graph. `options`: `zoom(item)`, `select(item)` and `point(item)` are called for keys and the mouse. */
export class FlameGraph {
  constructor(label, describedBy, options) {
    this.options = options;
    [this.zoomed, this.selected, this.matches, this._boxes] = [null, null, () => false, []];
    this.canvas = element("canvas", { onclick: (event) => this._click(event), onmousemove: (event) => this._hover(event),
      onmouseleave: () => options.point(this.selected ?? this.zoomed) });
    this.element = element("div", { class: "flame", tabindex: 0, role: "application", "aria-label": label,
      "aria-describedby": describedBy, onkeydown: (event) => this._key(event) }, this.canvas);
    new ResizeObserver(() => this._draw()).observe(this.element);
  }

  /** Show a tree; `matches(item)` marks items. Returns how many nodes below the zoomed one are not drawn. */
  show(zoomed, selected, matches) {
    Object.assign(this, { zoomed, selected, matches });
    return this._draw();
  }

  _draw() {
    const width = this.element.clientWidth;
    if (!width || !this.zoomed) return 0;
    const { drawn, missing, rows } = boxes(this.zoomed, width);
    this._boxes = drawn;
    const density = window.devicePixelRatio || 1;
    [this.canvas.width, this.canvas.height] = [Math.round(width * density), Math.round(rows * ROW * density)];
    this.canvas.style.setProperty("height", `${rows * ROW}px`);
    const context = this.canvas.getContext("2d");
    context.scale(density, density);
    context.font = `${SIZE}px ${FONT}`;
    context.textBaseline = "middle";
    context.direction = "ltr";
    const looks = looksOf(this.canvas, context);
    for (const box of drawn) this._box(context, looks, box);
    return missing;
  }

  _box(context, looks, { item, left, wide, row }) {
    const [top, above] = [row * ROW, item.level < this.zoomed.level];
    context.fillStyle = this.matches(item) ? looks.match : item.node ? looks.of(item.node.category) : looks.card;
    context.globalAlpha = above ? 0.6 : 1;
    context.fillRect(left, top, Math.max(wide - 0.5, 0.5), ROW - 1);
    context.globalAlpha = 1;
    if (item === this.selected) {
      context.strokeStyle = looks.text;
      context.lineWidth = 2;
      context.strokeRect(left + 1, top + 1, Math.max(wide - 2.5, 1), ROW - 3);
    }
    if (wide < 3 * looks.letter) return;
    context.fillStyle = this.matches(item) ? looks.ground : looks.text;
    const [text, letters] = [labelOf(item), Math.floor((wide - 6) / looks.letter)];
    const middle = top + ROW / 2;
    if (/^[ -~]*$/.test(text)) {
      context.fillText(text.length > letters ? `${text.slice(0, letters - 1)}…` : text, left + 3, middle);
      return;
    }
    context.save(); // letters of other widths are cut off at the edge of the box
    context.beginPath();
    context.rect(left, top, wide - 1, ROW);
    context.clip();
    context.fillText(text, left + 3, middle);
    context.restore();
  }

  _at(event) {
    const { left, top } = this.canvas.getBoundingClientRect();
    const [x, row] = [event.clientX - left, Math.floor((event.clientY - top) / ROW)];
    return this._boxes.find((box) => box.row === row && box.left <= x && x < box.left + box.wide)?.item;
  }

  _click(event) {
    const item = this._at(event);
    if (item) this.options.zoom(item);
  }

  _hover(event) {
    this.options.point(this._at(event) ?? this.selected ?? this.zoomed);
  }

  _key(event) {
    const at = this.selected ?? this.zoomed;
    if (!at || event.ctrlKey || event.altKey || event.metaKey) return;
    const siblings = at.parent?.children ?? [at];
    const n = siblings.indexOf(at);
    const goals = { ArrowUp: at.parent, ArrowDown: at.children[0], ArrowLeft: siblings[n - 1], ArrowRight: siblings[n + 1] };
    if (event.key === "Enter") this.options.zoom(at);
    else if (event.key === "Escape") this.options.zoom(this.zoomed.parent ?? this.zoomed);
    else if (event.key in goals) { if (goals[event.key]) this.options.select(goals[event.key]); }
    else return;
    event.preventDefault();
  }
}

/** Return the text of a box. A bound is never shown as a measurement. */
export function labelOf({ node }) {
  if (!node) return "all";
  return visible(`${node.bounded ? "≤ " : ""}${node.name}, ${duration(node.total_ns)}`);
}

/** Return the colours of the page's theme, and the width of a letter. */
function looksOf(canvas, context) {
  const style = getComputedStyle(canvas);
  const colour = (name) => style.getPropertyValue(name).trim();
  const dark = style.colorScheme === "dark";
  const kept = new Map();
  const of = (category) => {
    if (!kept.has(category)) {
      let hash = 0;
      for (const letter of category) hash = Math.imul(hash ^ letter.codePointAt(0), 0x01000193);
      const hue = (360 / HUES) * ((hash >>> 8) % HUES);
      kept.set(category, dark ? `hsl(${hue} 40% 28%)` : `hsl(${hue} 60% 84%)`);
    }
    return kept.get(category);
  };
  return { of, text: colour("--text"), ground: colour("--ground"), card: colour("--card"), match: colour("--accent"),
    letter: context.measureText("m").width };
}
