// Columns about workers, for all tables that list them.
//
// Owns: the texts of a worker's figures. Must not know: views. Invariant: What a status about a past time does not know
// is "-", and never 0.

import { count, duration, percent, size } from "./figures.js";

const figure = (title, key, text) => ({ title, number: true, text: (row) => text(row[key]), value: (row) => row[key] });

/** Return the column of one part of a worker's ledger of spans. */
export const spansColumn = (title, part) => ({
  title, number: true, text: (row) => count(row.ledger?.spans[part]), value: (row) => row.ledger?.spans[part] ?? null,
});

export const NAME = { title: "Worker", text: (row) => row.name, value: (row) => row.name };
export const STATE = { title: "State", text: (row) => row.state, value: (row) => row.state };
export const PID = { title: "PID", number: true, text: (row) => String(row.pid ?? "-"), value: (row) => row.pid };
export const THREADS = figure("Threads", "threads", count);
export const SPANS = spansColumn("Spans", "summarized");
export const LOST = figure("Lost", "lost", count);
export const CPU = figure("CPU", "cpu_percent", percent);
export const MEMORY = figure("Memory", "rss_bytes", size);
export const PENDING = figure("Pending", "pending", count);
export const OPEN_NOW = { title: "Open now", text: (row) => (row.open ?? []).map(openSpan).join(", ") || "-" };
export const PROBLEM = { title: "Recording problem", text: (row) => row.problem ?? "-" };

const openSpan = ({ brick, layer, since_ns: since }) => `${brick}${layer === null ? "" : ` layer ${layer}`} ${duration(since)}`;

const MARKED = new Set(["died", "quarantined"]); // states

/** Return the names of the workers in the active problems of a status; it is null if they are not known. */
export const namedBy = (problems) => new Set((problems ?? []).flatMap((problem) => problem.workers));

/** Return the class of a worker's row; `named` are the workers in active problems. */
export const markOf = (worker, named) => (worker.problem || MARKED.has(worker.state) || named.has(worker.name) ? "marked" : "");
