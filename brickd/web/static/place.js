// What the page shows: a view, a time, and what is chosen in the view.
//
// Owns: how a place is written in the address, so that a link to it can be shared. Must not know: views, documents.
// Invariants: An address never has the token. An address that is damaged leads to the overview of now.

const VIEW = /^[a-z]+$/;
const LAST = 4e9; // seconds since 1970; a later time is damaged

/** The first place. */
const START = Object.freeze({ view: "overview", at: null, names: Object.freeze([]), choices: Object.freeze({}) });

/**
 * Parse the fragment of an address.
 *
 * A place has: `view`; `at`, the shown time in seconds since 1970, or null for now; `names`, the chosen workers and
 * services (empty means all); `choices`, texts that belong to the view, by their names.
 */
export function parsed(fragment) {
  const [view, query = ""] = fragment.replace(/^#/, "").split("?", 2);
  const parameters = new URLSearchParams(query);
  const at = Number(parameters.get("at") || NaN);
  const choices = {};
  for (const [name, value] of parameters) if (name !== "at" && name !== "name") choices[name] = value;
  return {
    view: VIEW.test(view) ? view : START.view,
    at: at > 0 && at < LAST ? at : null,
    names: parameters.getAll("name"),
    choices,
  };
}

/** Return the fragment of a place. */
export function written(place) {
  const parameters = new URLSearchParams();
  if (place.at !== null) parameters.set("at", String(place.at));
  for (const name of place.names) parameters.append("name", name);
  for (const [name, value] of Object.entries(place.choices)) if (value) parameters.set(name, value);
  const query = parameters.toString();
  return `#${place.view}${query ? `?${query}` : ""}`;
}

/** Return a place with some changes. Another view begins without choices, unless the changes have them. */
export function changed(place, changes) {
  const choices = changes.view !== undefined && changes.view !== place.view ? {} : place.choices;
  return { ...place, choices, ...changes };
}

/** Return a place in which one choice of the view is another one; "" is no choice. */
export const chosen = (place, name, value) => ({ ...place, choices: { ...place.choices, [name]: value } });
