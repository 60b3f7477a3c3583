// Controls above a view: a list to choose from, and a text to find.
//
// Owns: their elements and labels. Must not know: views. Invariant: A control never changes by itself while it is used.

import { element, replace, short } from "./dom.js";

const LETTERS = 60; // of a name in a list

/** A list to choose from; the first value is the one of a place without this choice. */
export function choice(label, values, choose) {
  const list = element("select", { onchange: () => choose(list.value === values[0] ? "" : list.value) },
    values.map((value) => element("option", { value }, value)));
  return {
    element: element("label", {}, label, " ", list),
    show(value) { list.value = values.includes(value) ? value : values[0]; },
  };
}

/** A list of names to choose from, or `all` of them. The names may change. */
export function nameChoice(label, all, choose) {
  const list = element("select", { onchange: () => choose(list.value) });
  let listed = null;
  return {
    element: element("label", {}, label, " ", list),
    show(name, names) {
      if (document.activeElement === list && list.value === (name ?? "")) return;
      const values = [...new Set(name ? [...names, name] : names)].sort();
      if (JSON.stringify(values) !== listed) {
        listed = JSON.stringify(values);
        replace(list, element("option", { value: "" }, all), values.map((value) => element("option", { value }, short(value, LETTERS))));
      }
      list.value = name ?? "";
    },
  };
}

/** A field for a text that rows must have. `choose` must not add an entry to the history for each letter. */
export function search(label, choose) {
  let typed = null; // a text that is not in the place yet
  const field = element("input", { type: "search", oninput: () => choose(typed = field.value) });
  return {
    element: element("label", {}, label, " ", field),
    show(value) {
      const text = value ?? "";
      if (typed === null) field.value = text;
      else if (typed === text) typed = null;
    },
  };
}

/** Return whether a row has the text, in any of the texts of `of(row)`. */
export function finding(text, of) {
  if (!text) return () => true;
  const wanted = text.toLowerCase();
  return (row) => of(row).some((each) => each.toLowerCase().includes(wanted));
}
