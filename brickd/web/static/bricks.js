// The table of all bricks.
//
// Owns: its columns, the choices over, by and find. Must not know: how documents are asked.

import { element, replace } from "./dom.js";
import { atMost, count, duration, many, percent, period } from "./figures.js";
import { chosen } from "./place.js";
import { choice, finding, search } from "./choices.js";
import { Table } from "./table.js";

const OVER = ["start", "60s", "10s"];
const MOST = 10000; // rows that the page asks for in each round: 5 MB
const BY = ["brick", "worker", "service", "layer"];

export const bricks = {
  name: "bricks",
  title: "Bricks",
  needs: ({ names, at, choices, recorded }) => ({
    bricks: ["bricks", {
      name: names,
      at: at === null ? null : `@${at}`,
      over: at === null && OVER.includes(choices.over) ? choices.over : null,
      by: BY.includes(choices.by) && choices.by !== "brick" ? choices.by : null,
      top: recorded ? 100000 : MOST,
    }],
  }),
  mount(room, page) {
    const choose = (name) => (value) => page.go(chosen(page.place, name, value));
    const over = choice("Time", OVER, choose("over"));
    const by = choice("One row for each", BY, choose("by"));
    const find = search("Find bricks", (value) => page.go(chosen(page.place, "find", value), { replaces: true }));
    const table = new Table("Bricks", columns("brick"), tableOptions(page));
    let shown = { table, by: "brick" };
    const place = element("div", {}, table.element);
    replace(room, element("div", { class: "choices" }, page.source.recorded ? null : [over.element, by.element], find.element), place);
    return {
      show({ bricks: document }, { at, choices }) {
        over.element.hidden = at !== null; // the document has the period of that time
        over.show(choices.over);
        by.show(choices.by);
        find.show(choices.find);
        const group = BY.includes(choices.by) ? choices.by : "brick";
        if (group !== shown.by) {
          shown = { table: new Table("Bricks", columns(group), tableOptions(page)), by: group };
          replace(place, shown.table.element);
        }
        const rows = document.bricks.filter(finding(choices.find, (row) => [row.name, row.category, row.worker ?? ""]));
        shown.table.show(rows);
        const rest = document.rest?.bricks ? `, without ${many(document.rest.bricks, "other")}` : "";
        shown.table.entitle(`${many(rows.length, "row")} of ${count(document.bricks.length)}${rest}, ${period(document)}`);
      },
    };
  },
};

const tableOptions = (page) => ({
  key: (row) => `${row.worker ?? row.service ?? row.layer ?? ""} ${row.name}`,
  sort: "Self time",
  open: (row) => page.go({ view: "latency", choices: { brick: row.name } }),
});

function columns(by) {
  const group = { worker: "Worker", service: "Service", layer: "Layer" }[by];
  return [
    { title: "Brick", text: (row) => row.name, value: (row) => row.name },
    ...(group ? [{ title: group, text: (row) => String(row[by] ?? "-"), value: (row) => row[by] }] : []),
    { title: "Category", text: (row) => row.category, value: (row) => row.category },
    { title: "Count", number: true, text: (row) => count(row.count), value: (row) => row.count },
    { title: "Self time", number: true, text: (row) => duration(row.self_ns), value: (row) => row.self_ns },
    { title: "Share", number: true, text: (row) => percent(row.share_percent), value: (row) => row.share_percent },
    { title: "Mean", number: true, text: (row) => atMost(row.mean_ns, row.bounded), value: (row) => row.mean_ns },
    { title: "Median", number: true, text: (row) => atMost(row.p50_ns, row.bounded), value: (row) => row.p50_ns },
    { title: "p99", number: true, text: (row) => atMost(row.p99_ns, row.bounded), value: (row) => row.p99_ns },
    { title: "Worst worker", text: (row) => row.worst_worker ?? "-", value: (row) => row.worst_worker },
    { title: "Spread", number: true, text: (row) => (Number.isFinite(row.spread) ? `${row.spread.toFixed(2)}x` : "-"), value: (row) => row.spread },
  ];
}
