// The view of everything: problems first, then what was compared, workers and bricks.
//
// Owns: the order of its parts. Must not know: how documents are asked. Invariant: What was not compared is called
// unproven, and never "no problem".

import { element, replace, update } from "./dom.js";
import { EVIDENCE, evidenceKey } from "./evidence.js";
import { atMost, duration, many, percent, period } from "./figures.js";
import { Table } from "./table.js";
import { CPU, LOST, NAME, OPEN_NOW, PID, SPANS, STATE, markOf, namedBy } from "./worker_columns.js";

const MOST_BRICKS = 10;
// The view that shows a kind of problem. Other kinds are only about the daemon or its files.
const SEEN_IN = {
  numbers: "numerics", weights: "numerics", nan: "numerics", straggler: "workers", memory: "workers", died: "workers",
  slower: "latency", stuck: "hang", lost: "ledger",
};
const NO_WORKERS = "No workers: no process of this user is recording (try: brickd demo).";

export const overview = {
  name: "overview",
  title: "Overview",
  needs: () => ({}),
  mount(room, page) {
    const problems = element("section", { "aria-labelledby": "problems-title" });
    const evidence = new Table("What was compared", EVIDENCE, { key: evidenceKey });
    let named = new Set();
    const states = new Table("Workers", WORKERS, {
      key: (row) => row.name, open: (row) => page.go({ view: "workers", names: [row.name] }), mark: (row) => markOf(row, named),
    });
    const largest = new Table("Bricks with the most self time", BRICKS, {
      key: (row) => row.name, open: (row) => page.go({ view: "latency", choices: { brick: row.name } }),
    });
    replace(room, problems, evidence.element, states.element, largest.element);
    return {
      show({ status }) {
        update(problems, problemList(status, page)); // a command in it can be selected
        evidence.element.hidden = !status.evidence?.length;
        evidence.show(status.evidence ?? []);
        named = namedBy(status.problems);
        states.show(status.workers ?? []);
        states.entitle(status.workers === null ? "The workers of this time are not known" : "Workers");
        const whole = status.bricks.reduce((sum, brick) => sum + brick.self_ns, 0);
        largest.show(status.bricks.slice(0, MOST_BRICKS).map((brick) => ({ ...brick, share: share(brick, whole) })));
        const rest = status.bricks.length - MOST_BRICKS;
        largest.entitle(`Bricks with the most self time${rest > 0 ? `, without ${many(rest, "other")}` : ""}, ${period(status)}`);
      },
    };
  },
};

const share = (brick, whole) => (whole ? (100 * brick.self_ns) / whole : 0);

const WORKERS = [NAME, STATE, PID, SPANS, LOST, CPU, OPEN_NOW];

const BRICKS = [
  { title: "Brick", text: (row) => row.name, value: (row) => row.name },
  { title: "Category", text: (row) => row.category, value: (row) => row.category },
  { title: "Self time", number: true, text: (row) => duration(row.self_ns), value: (row) => row.self_ns },
  { title: "Share", number: true, text: (row) => percent(row.share), value: (row) => row.share },
  { title: "Median", number: true, text: (row) => atMost(row.p50_ns, row.bounded), value: (row) => row.p50_ns },
  { title: "p99", number: true, text: (row) => atMost(row.p99_ns, row.bounded), value: (row) => row.p99_ns },
  { title: "Worst worker", text: (row) => row.worst_worker ?? "-", value: (row) => row.worst_worker },
];

/** Return the list of the problems of a status. */
function problemList(status, page) {
  const title = element("h2", { id: "problems-title" }, "Problems");
  if (status.problems === null) return [title, element("p", { class: "unknown" }, "The problems of this time are not known.")];
  if (!status.problems.length) return [title, element("p", {}, status.workers.length ? "No active problem." : NO_WORKERS), silencedLine(status)];
  return [title, element("ul", { class: "problems" }, status.problems.map((problem) => problemItem(problem, page))), silencedLine(status)];
}

function problemItem(problem, page) {
  const view = Object.hasOwn(SEEN_IN, problem.kind) ? SEEN_IN[problem.kind] : null;
  return element("li", {},
    element("p", { class: "bad" }, problem.text),
    element("p", {}, "Next: ", element("code", {}, problem.command),
      view && [", or see ", element("a", { href: page.link({ view }) }, view)]),
    element("p", { class: "small" }, `${problem.kind}, id ${problem.id}${problem.since ? `, since ${problem.since}` : ""}`),
  );
}

const silencedLine = (status) =>
  status.silenced.length ? element("p", { class: "small" }, `${many(status.silenced.length, "silenced problem")}: brickd silence`) : null;
