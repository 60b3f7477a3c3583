// The call tree of all workers: a flame graph, and the same nodes as a table.
//
// Owns: the choices over, layers, min, find and zoom; which texts describe a node. Must not know: how boxes are drawn, how
// documents are asked. Invariants: Every node of the document is in the table. Nodes that are in no picture, or not in the
// document, are counted. A time that is not known has no box, and is never 0.

import { choice, finding, search } from "./choices.js";
import { element, replace, setText, update } from "./dom.js";
import { count, duration, many, percent, period, size } from "./figures.js";
import { FlameGraph, arranged, found, labelOf } from "./flame.js";
import { chosen } from "./place.js";
import { Table } from "./table.js";

const OVER = ["start", "60s", "10s"];
const LAYERS = ["folded", "separate"];
const MIN = ["0 %", "0.1 %", "1 %"];

export const tree = {
  name: "tree",
  title: "Tree",
  needs: ({ names, at, choices }) => ({
    tree: ["tree", {
      name: names,
      at: at === null ? null : `@${at}`,
      over: at === null && OVER.includes(choices.over) ? choices.over : null,
      layers: choices.layers === "separate" ? true : null,
      min: MIN.includes(choices.min) ? parseFloat(choices.min) : null,
    }],
  }),
  mount: (room, page) => new TreeView(room, page),
};

class TreeView {
  constructor(room, page) {
    [this.page, this.root, this.selected] = [page, null, null];
    const choose = (name) => (value) => page.go(chosen(page.place, name, value));
    this.choices = { over: choice("Time", OVER, choose("over")), layers: choice("Layers", LAYERS, choose("layers")),
      min: choice("Smallest share", MIN, choose("min")) };
    this.find = search("Find nodes", (value) => this._look(value));
    this.period = element("p", { class: "small" });
    this.matched = element("p", { role: "status" });
    this.crumbs = element("nav", { "aria-label": "Zoom", class: "crumbs",
      onclick: (event) => this._zoomOut(event.target) });
    this.about = element("dl", { id: "node" });
    this.missing = element("p", { class: "small" });
    this.spoken = element("p", { class: "skip", role: "status" }); // for screen readers: the picture has no text
    this.notes = element("ul", { class: "small" });
    this.graph = new FlameGraph("Flame graph: arrows select a node, Enter zooms in, Escape zooms out", "node", {
      zoom: (item) => this._zoom(item), select: (item) => this._select(item), point: (item) => this._describe(item),
    });
    this.table = new Table("Nodes", COLUMNS, { key: (row) => row.path.join("\n"), open: (row) => this._zoom(row) });
    this.details = element("details", { ontoggle: () => this._fill() }, element("summary", {}, "Nodes as a table"),
      this.table.element);
    const { over, layers, min } = this.choices;
    replace(room,
      element("div", { class: "choices" }, page.source.recorded ? layers.element : [over.element, layers.element, min.element],
        this.find.element, this.matched), this.period,
      this.crumbs, element("section", { "aria-label": "Flame graph" }, this.graph.element, this.spoken, this.missing, this.notes), this.about,
      this.details);
  }

  show({ tree: document }, place) {
    for (const name of Object.keys(this.choices)) this.choices[name].show(place.choices[name]);
    this.choices.over.element.hidden = place.at !== null; // the document has the period of that time
    this.find.show(place.choices.find);
    setText(this.period, `Time in each node, ${period(document)}`);
    [this.document, this.text] = [document, place.choices.find ?? ""];
    Object.assign(this, arranged(document.nodes, document.recorded_ns));
    this.zoomed = found(this.root, pathOf(place.choices.zoom));
    this.selected = this.selected && sameOrNull(this.root, this.selected.path);
    update(this.notes, notesOf(document).map((text) => element("li", {}, text)));
    this._draw();
  }

  _look(text) {
    this.text = text;
    if (this.root) this._draw();
    this.page.go(chosen(this.page.place, "find", text), { replaces: true });
  }

  _zoom(item) {
    [this.zoomed, this.selected] = [item, item];
    this._draw();
    this.page.go(chosen(this.page.place, "zoom", item.node ? JSON.stringify(item.path) : ""));
  }

  _select(item) {
    this.selected = item;
    this._draw();
    setText(this.spoken, labelOf(item));
  }

  _draw() {
    const finds = finding(this.text, ({ node }) => [node.name, node.category, node.kind]);
    this.matches = this.text ? (item) => item.node !== null && finds(item) : () => false;
    const missing = this.graph.show(this.zoomed, this.selected, this.matches);
    this._fill();
    this._trail();
    this._describe(this.selected ?? this.zoomed);
    setText(this.matched, this.text ? matchedText(this.root, this.matches, this.document.recorded_ns) : "");
    setText(this.missing, missing
      ? `${many(missing, "node")} below ${missing === 1 ? "is" : "are"} not in the picture, because a box would be too narrow or too deep: zoom in` : "");
  }

  _fill() {
    if (!this.root || !this.details.open) return;
    const rows = this.text ? this.items.filter(this.matches) : this.items;
    this.table.show(rows);
    this.table.entitle(`${many(rows.length, "node")} of ${count(this.items.length)}, ${period(this.document)}`);
  }

  _trail() {
    update(this.crumbs, stepsTo(this.zoomed).map((item) => element("button", { type: "button",
      "aria-current": item === this.zoomed ? "true" : undefined }, item.node ? item.node.name : "all")));
  }

  _zoomOut(button) {
    const at = [...this.crumbs.children].indexOf(button);
    if (at >= 0) this._zoom(stepsTo(this.zoomed)[at]);
  }

  _describe(item) {
    const texts = item.node ? describedNode(item.node) : [["Self time of all nodes", duration(this.document.recorded_ns)]];
    update(this.about, texts.map(([term, text]) => [element("dt", {}, term), element("dd", {}, text)]));
  }
}

/** Return the items from the root to this one. */
function stepsTo(item) {
  const steps = [];
  for (let at = item; at; at = at.parent) steps.unshift(at);
  return steps;
}

/** Return the path of a zoom, or the root's if it is damaged. */
function pathOf(zoom) {
  try {
    const path = JSON.parse(zoom ?? "[]");
    return Array.isArray(path) ? path : [];
  } catch {
    return [];
  }
}

function sameOrNull(root, path) {
  const item = found(root, path);
  return item.path.length === path.length ? item : null;
}

/** Say how many nodes match, and the share of their time. A node below another one that matches does not count again. */
function matchedText(root, matches, recordedNs) {
  let [n, ns, bounded] = [0, 0, false];
  const left = root.children.map((item) => [item, false]);
  while (left.length) {
    const [item, inside] = left.pop();
    const found = matches(item);
    if (found) n += 1;
    if (found && !inside) {
      ns += item.node.total_ns ?? 0;
      bounded ||= item.node.bounded;
    }
    for (const child of item.children) left.push([child, inside || found]);
  }
  return `${many(n, "node")} found: ${bounded ? "≤ " : ""}${percent(recordedNs ? (100 * ns) / recordedNs : 0)} of the time`;
}

/** Return what the picture leaves out. */
function notesOf(document) {
  const unknown = document.nodes.filter((node) => node.total_ns === null).length;
  const hidden = document.nodes.reduce((sum, node) => sum + node.hidden_nodes, document.hidden_nodes);
  const hiddenNs = document.nodes.reduce((sum, node) => sum + node.hidden_self_ns, document.hidden_self_ns);
  return [
    document.nodes.length || hidden ? null : "No spans yet.",
    hidden ? `${many(hidden, "node")} left out, because they are small: self time ${duration(hiddenNs)}` : null,
    unknown ? `${many(unknown, "node")} without a known time: only in the table` : null,
    document.nodes.some((node) => node.bounded)
      ? "≤ an upper bound, not a measurement: the time until the program waited for the device" : null,
    document.refused_marks ? `${many(document.refused_marks, "kernel or transfer", "kernels and transfers")} not recorded: the segment had no room` : null,
    document.unresolved_needs.length ? `${many(document.unresolved_needs.length, "need")} of bricks that are not in the tree` : null,
  ].filter((text) => text !== null);
}

const bound = (node) => (node.bounded ? "≤ " : "");
const layerText = (node) => (node.layer !== null ? String(node.layer) : node.layers ? many(node.layers, "layer") : "-");

/** Return the terms and the texts that describe a node. */
function describedNode(node) {
  const { kernel, transfer, task } = node;
  return [
    ["Node", `${node.kind} ${node.name}`],
    ["Total", `${bound(node)}${duration(node.total_ns)}, ${percent(node.share_percent)}${node.given ? ", given by the program" : ""}`],
    ["Self", bound(node) + duration(node.self_ns)],
    ["Count", count(node.count)],
    ["Median, p99", `${bound(node)}${duration(node.p50_ns)}, ${bound(node)}${duration(node.p99_ns)}`],
    ["Category, layer", `${node.category}, ${layerText(node)}`],
    kernel && ["Kernel", `${many(kernel.launches, "launch", "launches")}, ${count(kernel.timed)} timed`],
    transfer && ["Transfer", `${transfer.direction}, ${many(transfer.transfers, "transfer")}, ${size(transfer.moved_bytes)} moved, ${size(transfer.returned_bytes)} returned`],
    task && ["Task", `${many(task.polls, "poll")}, ${many(task.yields, "yield")}`],
    node.needs.length ? ["Needs", node.needs.map((need) => need.name).join(", ")] : null,
    node.definitions.length ? ["Defined in", node.definitions.map(({ file, line }) => `${file ?? "-"}:${line ?? "-"}`).join(", ")] : null,
    node.slack_ns === null ? null : ["Slack", node.critical ? "on the critical path" : duration(node.slack_ns)],
  ].filter(Boolean);
}

const COLUMNS = [
  { title: "Node", node: ({ node }) => element("span", { class: "indented" }, `${"  ".repeat(node.depth)}${node.name}`), value: ({ node }) => node.name },
  { title: "Kind", text: ({ node }) => node.kind, value: ({ node }) => node.kind },
  { title: "Layer", number: true, text: ({ node }) => layerText(node), value: ({ node }) => node.layer },
  { title: "Total", number: true, text: ({ node }) => bound(node) + duration(node.total_ns), value: ({ node }) => node.total_ns },
  { title: "Share", number: true, text: ({ node }) => percent(node.share_percent), value: ({ node }) => node.share_percent },
  { title: "Self", number: true, text: ({ node }) => bound(node) + duration(node.self_ns), value: ({ node }) => node.self_ns },
  { title: "Count", number: true, text: ({ node }) => count(node.count), value: ({ node }) => node.count },
  { title: "Median", number: true, text: ({ node }) => bound(node) + duration(node.p50_ns), value: ({ node }) => node.p50_ns },
  { title: "p99", number: true, text: ({ node }) => bound(node) + duration(node.p99_ns), value: ({ node }) => node.p99_ns },
];
