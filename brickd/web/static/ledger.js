// The ledger: what became of every span and record, in all and for each worker.
//
// Owns: the order of its lines. Must not know: how documents are asked. Invariant: Both sides of the sum are shown, so a
// reader can check it.

import { element, replace, update } from "./dom.js";
import { Table } from "./table.js";
import { LOST, NAME, PROBLEM, STATE, spansColumn } from "./worker_columns.js";

const PARTS = ["summarized", "rejected", "open", "abandoned", "unpublished"];

export const ledger = {
  name: "ledger",
  title: "Ledger",
  needs: () => ({}),
  mount(room, page) {
    const sum = element("section", { "aria-labelledby": "sum-title" });
    const each = new Table("Workers", COLUMNS, {
      key: (row) => row.name, mark: (row) => (row.lost ? "marked" : ""),
      open: (row) => page.go({ view: "workers", names: [row.name] }),
    });
    const records = new Table("Records", RECORDS, { key: (row) => row.name });
    replace(room, sum, records.element, each.element);
    return {
      show({ status }) {
        records.element.hidden = each.element.hidden = status.ledger === null;
        if (status.ledger === null) {
          update(sum, element("h2", { id: "sum-title" }, "Spans"), element("p", { class: "unknown" }, NOT_KEPT));
          return;
        }
        const { spans, lost } = status.ledger;
        update(sum, element("h2", { id: "sum-title" }, "Spans"),
          element("p", {}, `${exact(spans.begun)} begun = ${PARTS.map((part) => `${exact(spans[part])} ${part}`).join(" + ")}`),
          element("p", { class: lost.spans + lost.details + lost.events ? "bad" : "good" },
            `lost: ${exact(lost.spans)} spans, ${exact(lost.details)} details, ${exact(lost.events)} events`),
          element("p", { class: "small" }, `not recorded: ${exact(spans.nested)} nested, ${exact(spans.no_lane)} without a lane; `
            + `${exact(spans.unmatched)} ends without a begin; ${exact(spans.removed)} of removed workers, in no total`));
        records.show(["details", "events"].map((name) => ({ name, ...status.ledger[name] })));
        each.show(status.workers);
      },
    };
  },
};

const NOT_KEPT = "The daemon does not keep the ledger of a past time: choose now.";

const titled = (word) => word[0].toUpperCase() + word.slice(1);

const exact = (n) => n.toLocaleString("en-US");

const RECORDS = [
  { title: "Records", text: (row) => row.name },
  { title: "Consumed", number: true, text: (row) => exact(row.consumed) },
  { title: "In the ring", number: true, text: (row) => exact(row.in_ring) },
  { title: "Dropped", text: (row) => Object.entries(row.dropped).filter(([, n]) => n).map(([why, n]) => `${why} ${exact(n)}`).join(", ") || "0" },
  { title: "Lost with a daemon", number: true, text: (row) => exact(row.lost_with_daemon) },
  { title: "Removed", number: true, text: (row) => exact(row.removed) },
];

const COLUMNS = [NAME, STATE, spansColumn("Begun", "begun"), ...PARTS.map((part) => spansColumn(titled(part), part)), LOST, PROBLEM];
