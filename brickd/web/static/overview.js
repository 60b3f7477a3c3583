// The view of everything: problems first, then what was compared, workers and bricks.
//
// Owns: the order of its parts. Must not know: how documents are asked. Invariant: What was not compared is called
// unproven, and never "no problem".

import { element, replace } from "./dom.js";
import { EVIDENCE, evidenceKey } from "./evidence.js";
import { count, duration, many, percent } from "./figures.js";
import { Table } from "./table.js";

const MOST_BRICKS = 10;

export const overview = {
  name: "overview",
  title: "Overview",
  needs: () => ({}),
  mount(room, page) {
    const problems = element("section", { "aria-labelledby": "problems-title" });
    const evidence = new Table("What was compared", EVIDENCE, { key: evidenceKey });
    const states = new Table("Workers", WORKERS, {
      key: (row) => row.name, open: (row) => page.go({ view: "workers", names: [row.name] }), mark: (row) => markOf(row),
    });
    const largest = new Table("Bricks with the most self time", BRICKS, {
      key: (row) => row.name, open: (row) => page.go({ view: "latency", choices: { brick: row.name } }),
    });
    replace(room, problems, evidence.element, states.element, largest.element);
    return {
      show({ status }) {
        replace(problems, problemList(status));
        evidence.element.hidden = !status.evidence?.length;
        evidence.show(status.evidence ?? []);
        states.show(status.workers);
        const whole = status.bricks.reduce((sum, brick) => sum + brick.self_ns, 0);
        largest.show(status.bricks.slice(0, MOST_BRICKS).map((brick) => ({ ...brick, share: share(brick, whole) })));
        const rest = status.bricks.length - MOST_BRICKS;
        largest.entitle(`Bricks with the most self time${rest > 0 ? `, without ${many(rest, "other")}` : ""}`);
      },
    };
  },
};

const share = (brick, whole) => (whole ? (100 * brick.self_ns) / whole : 0);

const WORKERS = [
  { title: "Worker", text: (row) => row.name, value: (row) => row.name },
  { title: "State", text: (row) => row.state, value: (row) => row.state },
  { title: "PID", number: true, text: (row) => String(row.pid ?? "-"), value: (row) => row.pid },
  { title: "Spans", number: true, text: (row) => count(row.ledger.spans.summarized), value: (row) => row.ledger.spans.summarized },
  { title: "Lost", number: true, text: (row) => count(row.lost), value: (row) => row.lost },
  { title: "CPU", number: true, text: (row) => percent(row.cpu_percent), value: (row) => row.cpu_percent },
  { title: "Open now", text: (row) => openNow(row) },
];

const openNow = ({ open }) => (open.length ? `${open[0].brick} ${duration(open[0].since_ns)}` : "-");

const markOf = (worker) => (worker.problem || worker.state === "died" || worker.state === "quarantined" ? "marked" : "");

const BRICKS = [
  { title: "Brick", text: (row) => row.name, value: (row) => row.name },
  { title: "Category", text: (row) => row.category, value: (row) => row.category },
  { title: "Self time", number: true, text: (row) => duration(row.self_ns), value: (row) => row.self_ns },
  { title: "Share", number: true, text: (row) => percent(row.share), value: (row) => row.share },
  { title: "Median", number: true, text: (row) => duration(row.p50_ns), value: (row) => row.p50_ns },
  { title: "p99", number: true, text: (row) => duration(row.p99_ns), value: (row) => row.p99_ns },
  { title: "Worst worker", text: (row) => row.worst_worker ?? "-", value: (row) => row.worst_worker },
];

/** Return the list of the problems of a status. */
function problemList(status) {
  const title = element("h2", { id: "problems-title" }, "Problems");
  if (status.problems === null) return [title, element("p", { class: "unknown" }, "The problems of this time are not known.")];
  if (!status.problems.length) return [title, element("p", {}, "No active problem."), silencedLine(status)];
  return [title, element("ul", { class: "problems" }, status.problems.map(problemItem)), silencedLine(status)];
}

function problemItem(problem) {
  return element("li", {},
    element("p", { class: "bad" }, problem.text),
    element("p", {}, "Next: ", element("code", {}, problem.command)),
    element("p", { class: "small" }, `${problem.kind}, id ${problem.id}${problem.since ? `, since ${problem.since}` : ""}`),
  );
}

const silencedLine = (status) =>
  status.silenced.length ? element("p", { class: "small" }, `${many(status.silenced.length, "silenced problem")}: brickd silence`) : null;
