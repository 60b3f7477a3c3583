// What was compared, at which site, by which evidence; and both sides of a difference.
//
// Owns: the matrix of sites and evidence, the choices find and site. Must not know: how documents are asked, how a
// difference is judged. Invariants: What was not compared is counted, and called unproven; it is never "no problem". A
// mark is never only a colour.

import { finding, search } from "./choices.js";
import { element, replace, update } from "./dom.js";
import { EVIDENCE, evidenceKey, reasons } from "./evidence.js";
import { count, duration, many, size } from "./figures.js";
import { chosen } from "./place.js";
import { SitePart, siteKey } from "./site.js";
import { Table } from "./table.js";

const CLASSES = ["weights", "input", "row", "history"];

/** The states of a site; the command `brickd coverage` has the same texts. */
export const STATES = {
  differs: "differs", not_judged: "unlike, not judged", does_not_repeat: "does not repeat", off: "off: sensitive",
  left_out: "left out: brickd set", closed: "closed: compiled or copied by torch", unknown: "rows unknown",
  silent: "nothing recorded", in_turn: "waits for its turn", no_inputs: "no inputs recorded", stateful: "stateful",
  alone: "no other worker had the same", compared: "compared",
};

export const numerics = {
  name: "numerics",
  title: "Numerics",
  onlyNow: true,
  needs: ({ names }) => ({ coverage: ["coverage", { name: names }] }),
  mount(room, page) {
    const verdict = element("p", { role: "status" });
    const evidence = new Table("Verdicts", EVIDENCE, { key: evidenceKey });
    const find = search("Find sites", (value) => page.go(chosen(page.place, "find", value), { replaces: true }));
    const opened = new SitePart(() => page.go(chosen(page.place, "site", "")));
    const sites = new Table("Sites", COLUMNS, {
      key: (row) => row.key, mark: (row) => (row.differs ? "marked" : ""),
      open: (row) => page.go(chosen(page.place, "site", row.key)),
    });
    const missing = new Table("Not compared", MISSING, { key: (row) => `${row.service} ${row.what}` });
    const notes = element("ul", { class: "small" });
    replace(room, verdict, evidence.element, element("div", { class: "choices" }, find.element), sites.element, opened.element,
      missing.element, notes);
    return {
      show({ coverage }, { choices }) {
        update(verdict, verdictOf(coverage));
        evidence.element.hidden = !coverage.evidence.length;
        evidence.show(coverage.evidence);
        find.show(choices.find);
        const all = rowsOf(coverage);
        const rows = all.filter(finding(choices.find, (row) => [row.service, row.kernel, row.category]));
        sites.show(rows);
        sites.entitle(`${many(rows.length, "site")} of ${count(all.length)}`);
        opened.show(choices.site ? all.find((each) => each.key === choices.site) : null, coverage.findings);
        const lacking = missingOf(coverage);
        missing.element.hidden = !lacking.length;
        missing.show(lacking);
        update(notes, notesOf(coverage).map((text) => element("li", {}, text)));
      },
    };
  },
};

/** Return the sentence above the tables. */
function verdictOf({ services, evidence }) {
  if (!services.length) {
    return element("span", { class: "unknown" }, "unproven: no worker has recorded fingerprints (brick.checksum, brick.weights)");
  }
  const named = (verdict) => evidence.filter((each) => each.verdict === verdict).map((each) => `${each.service} by ${each.evidence}`);
  return [["diverged", "bad"], ["unproven", "unknown"], ["equal", "good"]]
    .filter(([verdict]) => named(verdict).length)
    .map(([verdict, looks]) => element("span", { class: `${looks} part` }, `${verdict}: ${named(verdict).join(", ")}`));
}

/** Return one row for each place; a place can be compared by several classes of evidence. */
function rowsOf({ sites, findings }) {
  const rows = new Map();
  const row = (of) => {
    const key = siteKey(of);
    if (!rows.has(key)) rows.set(key, { key, service: of.service, kernel: of.kernel ?? "others", layer: of.layer, category: of.category, cells: {}, sites: [], differs: false, first: false });
    return rows.get(key);
  };
  for (const site of sites) {
    const at = row(site);
    at.sites.push(site);
    at.cells[site.evidence[0] ?? "none"] = site;
    at.differs ||= site.state === "differs";
  }
  for (const found of findings) row(found).differs = true;
  for (const found of firstOf(findings)) row(found).first = true;
  return [...rows.values()];
}

/** Return the finding of each service that brickd saw first. Findings by weights have no time. */
function firstOf(findings) {
  const first = new Map();
  for (const found of findings) {
    const before = first.get(found.service);
    if (found.since !== null && (!before || found.since < before.since)) first.set(found.service, found);
  }
  return first.values();
}

function cell({ cells }, evidence) {
  const site = cells[evidence];
  if (!site) return "-";
  if (site.state === "differs") return element("span", { class: "bad" }, `differs: ${count(site.unlike)} of ${count(site.compared)}`);
  return element("span", { class: site.state === "compared" ? "good" : "unknown" }, `${STATES[site.state] ?? site.state}: ${count(site.compared)}`);
}

function notCompared({ cells }) {
  const site = cells.none;
  if (!site) return "-";
  const unknown = site.state === "unknown" ? `: ${reasons(site.unknown)}` : "";
  return element("span", { class: "unknown" }, `${STATES[site.state] ?? site.state}${unknown}`);
}

const COLUMNS = [
  { title: "Kernel", text: (row) => row.kernel, value: (row) => row.kernel },
  { title: "Layer", number: true, text: (row) => String(row.layer ?? "-"), value: (row) => row.layer },
  ...CLASSES.map((name) => ({ title: `By ${name}`, node: (row) => cell(row, name), value: (row) => row.cells[name]?.unlike })),
  { title: "Not compared", node: notCompared, value: (row) => row.cells.none?.state },
  { title: "First", text: (row) => (row.first ? "first difference" : ""), value: (row) => (row.first ? 1 : null) },
  { title: "Category", text: (row) => row.category, value: (row) => row.category },
  { title: "Service", text: (row) => row.service, value: (row) => row.service },
];

const MISSING = [
  { title: "Service", text: (row) => row.service, value: (row) => row.service },
  { title: "What", text: (row) => row.what, value: (row) => row.what },
  { title: "Not compared", number: true, text: (row) => count(row.n), value: (row) => row.n },
];

/** Return the counts of what was not compared, which are not 0. */
function missingOf({ services }) {
  const rows = [];
  for (const { service, unseen, weights, row, history, input } of services) {
    const { not_comparable: notComparable, ...ofWeights } = weights?.unseen ?? {};
    for (const [group, counts] of [["fingerprints", unseen], ["weights", ofWeights], ["weights", notComparable],
      ["rows unknown", row?.unknown], ["histories unknown", history?.unknown], ["findings", { unkept: input?.unkept }]]) {
      for (const [why, n] of Object.entries(counts ?? {})) if (n) rows.push({ service, what: `${group}: ${why.replaceAll("_", " ")}`, n });
    }
  }
  return rows;
}

const bricksOf = (rows, of) => [...new Set(rows.filter(({ service }) => service === of).map(({ brick }) => brick))];

function notesOf({ services, window, unlooked, births_unkept: birthsUnkept, bricks_without_sites: without, source, since }) {
  return [
    ...services.filter(({ thinned }) => thinned).map(({ service, thinned }) =>
      `${service}: fingerprints are recorded in ${thinned.fingerprints} of the steps, in ${thinned.workers} of ${many(thinned.of, "worker")}`),
    source === "daemon" && window.bytes === 0 ? "Nothing is compared: the daemon was started with --numerics-bytes 0" : null,
    source === "daemon" && window.bytes && window.fingerprints
      ? `Since ${since}; in memory: ${many(window.fingerprints, "fingerprint")} of the last ${duration(window.oldest_age_ns)}, at most ${size(window.bytes)}` : null,
    unlooked ? `${many(unlooked, "fingerprint")} that differ were not examined: they were evicted, or enough others of their site were examined` : null,
    birthsUnkept ? `${many(birthsUnkept, "fingerprint")} not checked for NaN and infinities, or found without room to keep them` : null,
    ...[...new Set(without.map(({ service }) => service))].map((service) =>
      `${service}: bricks without compared numbers: ${bricksOf(without, service).join(", ")}`),
  ].filter((text) => text !== null);
}
