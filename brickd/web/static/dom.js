// Elements of the page.
//
// Owns: how elements are made, and which characters of a worker's strings are visible. Must not know: documents.
// Invariant: A string never becomes markup, an attribute with code, or a character that hides or reorders text.

/** Characters that browsers draw as nothing, or that reorder the text around them. */
const INVISIBLE = /[\p{C}\p{Zl}\p{Zp}\u034F\u115F\u1160\u17B4\u17B5\u180B-\u180F\u3164\uFE00-\uFE0F\uFFA0\u{E0100}-\u{E01EF}]|[^\P{Zs} ]/gu;
const SHORT = { "\t": "\\t", "\n": "\\n", "\r": "\\r" };

/** Return any string in a form that is safe to show, like `brickd.base.escape.text`. */
export function visible(text) {
  return String(text).replace(INVISIBLE, (character) => SHORT[character] ?? escaped(character.codePointAt(0)));
}

function escaped(code) {
  const digits = code.toString(16);
  if (code > 0xffff) return `\\U${digits.padStart(8, "0")}`;
  return code > 0xff ? `\\u${digits.padStart(4, "0")}` : `\\x${digits.padStart(2, "0")}`;
}

/**
 * Return a new element.
 *
 * `options` are attributes; an `on...` function is a listener; undefined, null and false are left out. Children are
 * nodes, strings, or lists of these.
 */
export function element(tag, options = {}, ...children) {
  return filled(document.createElement(tag), options, children);
}

/** Return a new element of SVG. */
export function picture(tag, options = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), options, children);
}

function filled(made, options, children) {
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  add(made, children);
  return made;
}

function add(parent, children) {
  for (const child of children) {
    if (Array.isArray(child)) add(parent, child);
    else if (child instanceof Node) parent.append(child);
    else if (child !== null && child !== undefined && child !== false) parent.append(visible(child));
  }
}

/** Return at most `letters` letters of a text, with "…" for the others. */
export const short = (text, letters) => (text.length > letters ? `${text.slice(0, letters)}…` : text);

/** Replace what is in an element. */
export function replace(parent, ...children) {
  parent.replaceChildren();
  add(parent, children);
}

/** Change what is in an element into these children. What is equal stays, and so do the focus and the selection. */
export function update(parent, ...children) {
  const made = parent.cloneNode(false);
  add(made, children);
  become(parent, made);
}

/** Make a node equal to a new one, but keep what is equal. The listeners of the new one are not copied. */
export function become(old, made) {
  if (old.isEqualNode(made)) return;
  if (old.nodeType === Node.TEXT_NODE) {
    old.data = made.data;
    return;
  }
  for (const name of old.getAttributeNames()) if (!made.hasAttribute(name)) old.removeAttribute(name);
  for (const name of made.getAttributeNames()) {
    if (old.getAttribute(name) !== made.getAttribute(name)) old.setAttribute(name, made.getAttribute(name));
  }
  const [ours, theirs] = [[...old.childNodes], [...made.childNodes]];
  const alike = ours.length === theirs.length && ours.every((each, n) => each.nodeName === theirs[n].nodeName);
  if (alike) ours.forEach((each, n) => become(each, theirs[n]));
  else old.replaceChildren(...theirs);
}

/** Set the text of an element if it is another one, so that screen readers do not read it again. */
export function setText(of, text) {
  const shown = visible(text);
  if (of.textContent !== shown) of.textContent = shown;
}
