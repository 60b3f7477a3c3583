// The verdict of each service by each class of evidence, as columns of a table.
//
// Owns: these columns. Must not know: views. Invariant: Without a comparison, the verdict is unproven.

import { element } from "./dom.js";
import { count } from "./figures.js";

const LOOKS = { equal: "good", diverged: "bad" };

/** The columns of the elements of `evidence` in a document. */
export const EVIDENCE = [
  { title: "Service", text: (row) => row.service ?? "several", value: (row) => row.service },
  { title: "Evidence", text: (row) => row.evidence, value: (row) => row.evidence },
  { title: "Verdict", node: (row) => element("span", { class: LOOKS[row.verdict] ?? "unknown" }, row.verdict), value: (row) => row.verdict },
  { title: "Compared", number: true, text: (row) => count(row.compared), value: (row) => row.compared },
  { title: "Of", number: true, text: (row) => count(row.looked_at), value: (row) => row.looked_at },
  { title: "Not compared", text: (row) => reasons({ ...row.not_comparable, ...row.unknown }) },
  { title: "Why, and what to do", text: (row) => [row.why, row.command].filter(Boolean).join(": ") || "-" },
];

export const evidenceKey = (row) => `${row.service} ${row.evidence}`;

/** Return counts by reason as text, without the reasons that never applied. */
export function reasons(counts) {
  const found = Object.entries(counts).filter(([, n]) => n);
  return found.map(([why, n]) => `${why.replaceAll("_", " ")} ${count(n)}`).join(", ") || "-";
}
