// The view of what hangs: a verdict for each service, and the open spans.
//
// Owns: the columns, the order of its rows, which verdicts are good. Must not know: how a verdict is reached.
// Invariant: Where nothing could be compared, the verdict is never shown as good.

import { element, replace, setText, update } from "./dom.js";
import { count, duration, many } from "./figures.js";
import { Table } from "./table.js";

const WATCH = "0.5s"; // between the two looks of the daemon
const COLOURS = { most_wait: "bad", some_stuck: "bad", none_stuck: "good" };
const ORDER = ["bad", "unknown", "good"];

export const hang = {
  name: "hang",
  title: "Hang",
  needs: ({ names, at }) => (at === null ? { hang: ["hang", { name: names, watch: WATCH }] } : {}),
  mount(room, page) {
    const open = (row) => row.brick && page.go({ view: "latency", names: [row.worker], choices: { brick: row.brick } });
    const verdicts = element("ul", { class: "problems" });
    const words = element("p", { class: "small" });
    const named = new Table("Workers that are named", NAMED, { key: (row) => row.worker, mark: () => "marked", open });
    const spans = new Table("Open spans", SPANS, {
      key: (row) => `${row.worker} ${row.lane}`, mark: (row) => (row.odd ? "marked" : ""), open,
    });
    const found = [named.element, spans.element];
    replace(room, element("section", { "aria-labelledby": "hang-title" },
      element("h2", { id: "hang-title" }, "Verdicts"), verdicts, words), found);
    return {
      show({ hang: document }, { at }) {
        found.forEach((each) => { each.hidden = at !== null; });
        setText(words, at === null ? document.words.join("; ") : "Open spans are known only for now.");
        update(verdicts, at === null ? verdictItems(document) : []);
        if (at !== null) return;
        const odd = document.services.flatMap(({ service, odd: each }) => each.map((worker) => ({ ...worker, service })));
        named.element.hidden = !odd.length;
        named.show(odd);
        const rows = oddFirst(document.open, new Set(odd.map((each) => each.worker)));
        spans.show(rows);
        const open = rows.filter((row) => row.brick !== null).length;
        spans.entitle(many(open, "thread with open spans", "threads with open spans"));
      },
    };
  },
};

function verdictItems(document) {
  if (!document.services.length) return element("li", { class: "unknown" }, "No workers.");
  const services = document.services.map((service) => [COLOURS[service.verdict] ?? "unknown", service]);
  services.sort(([a], [b]) => ORDER.indexOf(a) - ORDER.indexOf(b)); // a stable order
  return services.map(([colour, { service, text }]) =>
    element("li", {}, element("span", { class: colour }, service), `: ${text}`));
}

/** Return the rows of the workers that are named first; in both parts, they keep the order of the document. */
function oddFirst(rows, odd) {
  const marked = rows.map((row) => ({ ...row, odd: odd.has(row.worker) }));
  return [...marked.filter((row) => row.odd), ...marked.filter((row) => !row.odd)];
}

const number = (value) => String(value ?? "-");

const NAMED = [
  { title: "Worker", text: (row) => row.worker, value: (row) => row.worker },
  { title: "Service", text: (row) => row.service, value: (row) => row.service },
  { title: "State", text: (row) => row.state, value: (row) => row.state },
  { title: "For", number: true, text: (row) => duration(row.since_ns), value: (row) => row.since_ns },
  { title: "Brick", text: (row) => row.brick ?? "-", value: (row) => row.brick },
  { title: "Layer", number: true, text: (row) => number(row.layer), value: (row) => row.layer },
  { title: "Inside", text: (row) => row.within ?? "-" },
];

const SPANS = [
  { title: "Worker", text: (row) => row.worker, value: (row) => row.worker },
  { title: "Lane", number: true, text: (row) => number(row.lane), value: (row) => row.lane },
  { title: "Thread", number: true, text: (row) => number(row.thread), value: (row) => row.thread },
  { title: "State", text: (row) => row.state, value: (row) => row.state },
  { title: "For", number: true, text: (row) => duration(row.since_ns), value: (row) => row.since_ns },
  { title: "Brick", text: (row) => row.brick ?? "-", value: (row) => row.brick },
  { title: "Layer", number: true, text: (row) => number(row.layer), value: (row) => row.layer },
  { title: "Open", number: true, text: (row) => count(row.open), value: (row) => row.open },
  { title: "Path", text: (row) => row.path.join(" > ") || "-" },
];
