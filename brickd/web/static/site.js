// One site: its counts, and both fingerprints of a difference side by side.
//
// Owns: the fields that are compared, their marks. Must not know: the other sites, the address. Invariants: Fields are
// compared as the document has them. A difference has a word, not only a colour.

import { element, replace, setText } from "./dom.js";
import { reasons } from "./evidence.js";
import { count, many, relative } from "./figures.js";

const COUNTS = ["fingerprints", "compared", "unlike", "alone", "without_inputs", "stateful", "evicted"];
const ABOUT = ["worker", "step", "step_text", "position", "backend", "dtype", "shape"];
const MATCHED = new Set(["worker", "step", "step text"]); // cases are matched by their inputs, so these may differ
const TENSOR = ["checksum", "elements", "min", "max", "mean", "l2", "nan", "pos_inf", "neg_inf"];

const BLAME = {
  culprit: "the difference begins here: all inputs were equal",
  here_or_cache: "the difference begins here, or in a cache",
  propagated: "the difference comes from an earlier site",
  unknown: "brickd cannot tell where the difference begins",
};

/** Return what identifies a site or the site of a finding. */
export const siteKey = ({ service, kernel, layer }) => JSON.stringify([service, kernel, layer]);

/** The part of the page about one site. A piece of it changes only with its data, so that its text can be selected. */
export class SitePart {
  constructor(close) {
    this.title = element("h2");
    this.closing = element("button", { type: "button", onclick: close }, "Close this site");
    this.pieces = element("div");
    this.element = element("section", { "aria-label": "Opened site", hidden: true }, this.title, this.closing, this.pieces);
    this._made = new Map(); // the data of each piece as JSON, and its element
  }

  /** Show a site; `row` is undefined if the document no longer has it, and null if no site is opened. */
  show(row, findings) {
    this.element.hidden = row === null;
    if (row === null) return;
    setText(this.title, row ? `${row.kernel}${row.layer === null ? "" : ` layer ${row.layer}`}, ${row.service}` : "Site");
    const found = row ? findings.filter((each) => siteKey(each) === row.key) : [];
    const pieces = row ? [
      ...row.sites.map((site) => this._piece(`counts ${site.evidence}`, site, countsOf)),
      ...(found.length ? [] : [this._piece("nothing", row.sites, withoutFinding)]),
      ...found.flatMap(({ first, newest, ...about }) => [
        this._piece(`about ${about.evidence} ${about.workers}`, about, findingPart),
        first && this._piece(`first ${about.evidence}`, first, (of) => caseTable("First case", of)),
        newest && this._piece(`newest ${about.evidence}`, newest, (of) => caseTable("Newest case", of)),
      ]),
    ] : [element("p", { class: "unknown" }, "This site is not in the document.")];
    const shown = pieces.filter(Boolean);
    if (shown.length !== this.pieces.children.length || shown.some((each, n) => each !== this.pieces.children[n])) {
      replace(this.pieces, shown);
    }
  }

  _piece(name, data, make) {
    const json = JSON.stringify(data);
    if (this._made.get(name)?.json !== json) this._made.set(name, { json, node: element("div", {}, make(data)) });
    return this._made.get(name).node;
  }
}

function withoutFinding(sites) {
  const alike = sites.every(({ state }) => state === "compared") && sites.length;
  if (alike) return element("p", {}, "No finding: what was compared was equal.");
  return element("p", { class: "unknown" }, "No finding, and not everything was compared: unproven.");
}

function countsOf(site) {
  const texts = COUNTS.filter((name) => site[name]).map((name) => `${name.replaceAll("_", " ")} ${count(site[name])}`);
  return [
    element("p", {}, `${site.evidence.length ? `By ${site.evidence.join(", ")}` : "Not compared"}: ${texts.join(", ") || "no fingerprints"}`),
    Object.keys(site.unknown).length ? element("p", {}, `Calls without rows: ${reasons(site.unknown)}`) : null,
    site.numeric_classes.map((names, n) => element("p", {}, `Numeric class ${n + 1}: ${names.join(", ")}`)),
  ];
}

function findingPart(found) {
  const outliers = Object.entries(found.outliers).map(([name, n]) => `${name} in ${many(n, "case")}`);
  return [
    element("p", { class: "bad" }, found.text ?? `${found.workers.join(", ")} ${found.workers.length > 1 ? "differ" : "differs"} by ${found.evidence}`),
    list([
      ["Judged", BLAME[found.blame] ?? found.blame ?? "not judged"],
      ["NaN and infinities", found.not_finite],
      ["Relative error", relative(found.relative_error ?? NaN)],
      ["Cases", `${many(found.cases, "case")}, of which: ${outliers.join(", ") || "no outlier"}`],
      ["Contradict themselves", found.contradict_themselves.join(", ")],
      ["Since, latest", found.since && `${found.since}, ${found.latest}`],
      ["Expert", found.expert ?? null],
      ["Declared and real shard", found.holds_shard && `${found.shard}, ${found.holds_shard}`],
    ]),
    element("p", {}, "Next: ", element("code", {}, found.command)),
  ];
}

function list(pairs) {
  return element("dl", {}, pairs.filter(([, text]) => text !== null && text !== "" && text !== undefined)
    .map(([term, text]) => [element("dt", {}, term), element("dd", {}, String(text))]));
}

function caseTable(title, { at, against, other }) {
  return element("div", { class: "table whole", tabindex: 0, role: "region", "aria-label": title }, element("table", {},
    element("caption", {}, `${title}, ${at}`),
    element("thead", {}, element("tr", {}, ["Field", "Expected", "Actual", "Same"].map((text) => element("th", { scope: "col" }, text)))),
    element("tbody", {}, fieldsOf(against, other).map(([name, ours, theirs]) => {
      const word = MATCHED.has(name) ? "-" : ours === theirs ? "same" : "differs";
      return element("tr", { class: word === "differs" ? "marked" : undefined }, element("th", { scope: "row" }, name),
        element("td", {}, ours), element("td", {}, theirs), element("td", {}, word));
    })),
  ));
}

/** Return the fields of two fingerprints: name, expected text, actual text. */
function fieldsOf(against, other) {
  const text = (value) => (value === null || value === undefined ? "-" : Array.isArray(value) ? `[${value.join(", ")}]` : String(value));
  const pair = (name, ours, theirs, field) => [name.replaceAll("_", " "), text(ours?.[field]), text(theirs?.[field])];
  const inputs = Math.max(against.inputs.length, other.inputs.length);
  return [
    ...ABOUT.map((field) => pair(field, against, other, field)),
    ...[...TENSOR, "fnv1a"].map((field) => pair(`output ${field}`, against, other, field)),
    ...Array.from({ length: inputs }, (_, n) =>
      ["dtype", ...TENSOR].map((field) => pair(`input ${n + 1} ${field}`, against.inputs[n], other.inputs[n], field))).flat(),
  ];
}
