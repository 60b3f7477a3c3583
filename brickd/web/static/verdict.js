// The verdict of the whole page on a status, in one line.
//
// Owns: its colours and texts. Must not know: views, requests. Invariants: Where nothing was compared, it is never "no
// problem". An old verdict is never good, and its text begins with the time since when nothing is known.

import { many, moment } from "./figures.js";

/** Return the colour and the text of the verdict on a status. Where nothing was compared, it is never "no problem". */
export function health(status) {
  if (status.problems === null) return ["unknown", "the problems of this time are not known"];
  if (!status.workers.length) return ["unknown", "no workers"];
  const unproven = (status.evidence ?? []).filter((each) => each.verdict === "unproven" && each.recorded).length;
  const silenced = status.silenced.length ? `, ${many(status.silenced.length, "silenced problem")}` : "";
  if (status.problems.length) return ["bad", `${many(status.problems.length, "problem")}${silenced}`];
  if (unproven) return ["unknown", `no problem, ${unproven} unproven${silenced}`];
  if (status.evidence === null) return ["unknown", `no problem; what was compared then is not kept${silenced}`];
  if (!status.evidence.some((each) => each.verdict === "equal")) return ["unknown", `no problem; no numbers were compared${silenced}`];
  return ["good", `no problem${silenced}`];
}

/** Return the colour and the text of a status after which no other one came; `time` is its time. */
export const oldHealth = (status, time) => ["unknown", `not known since ${moment(time)}; then: ${health(status)[1]}`];
