// Numbers, counts, durations and sizes as text.
//
// Owns: units and rounding, the same as brickd/base/units.py. Must not know: what is measured. Invariants: A number has
// the text that `brickd` prints for it. It is rounded once, from the exact number; ties go away from zero. null is "-".

const NS = [[1n, " ns"], [10n ** 3n, " µs"], [10n ** 6n, " ms"], [10n ** 9n, " s"], [60n * 10n ** 9n, " min"],
  [3600n * 10n ** 9n, " h"], [86400n * 10n ** 9n, " d"]];
const COUNTS = [[1n, ""], [10n ** 6n, "M"], [10n ** 9n, "G"], [10n ** 12n, "T"], [10n ** 15n, "P"], [10n ** 18n, "E"]];
const BYTES = ["B", "K", "M", "G", "T", "P", "E"].map((name, power) => [1024n ** BigInt(power), name]);

/** Return nanoseconds as text, such as "3.1 ms". */
export const duration = (ns) => scaled(ns, NS, 100n);

/** Return nanoseconds as text. A bound is never shown as a measurement. */
export const atMost = (ns, isBound) => `${isBound ? "≤ " : ""}${duration(ns)}`;

/** Return a count as text, such as "1,234" or "1.2M". */
export const count = (n) => scaled(n, COUNTS, 100n);

/** Return bytes as text, such as "9.9K". */
export const size = (bytes) => scaled(bytes, BYTES, 10n);

/** Return a percentage as text. A small percentage is never "0 %". */
export function percent(value) {
  if (!Number.isFinite(value)) return "-";
  if (value === 0) return "0 %";
  const sign = value < 0 ? "-" : "";
  const tenths = inTenths(...ratio(Math.abs(value)), 10n);
  return tenths === 0n ? `${sign}<0.1 %` : `${sign}${figure(tenths, 10n)} %`;
}

/** Return a number of things with its noun, such as "1 span" or "1,234 spans". */
export const many = (n, one, more = `${one}s`) => `${count(n)} ${n === 1 ? one : more}`;

/** Return a relative error with two digits, such as "3.1e-4". */
export function relative(error) {
  if (!Number.isFinite(error)) return "-";
  if (error < 1e-6) return "<1e-6";
  if (error >= 0.00995 && error < 99.5) return String(Number(twoDigits(error)));
  const [mantissa, exponent] = twoDigits(error).split("e");
  return `${mantissa.replace(/\.0$/, "")}e${Number(exponent)}`;
}

/** Return a number with two digits; a tie goes to the even digit, because Python's formats do this. */
function twoDigits(error) {
  const tie = /^(\d\.[02468])50+(e.*)$/.exec(error.toExponential(30));
  return tie ? tie[1] + tie[2] : error.toExponential(1);
}

/** Return the time of the day in UTC of a time in seconds since 1970. */
export const clock = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 19);

/** Return a time in seconds since 1970 as a date and a time in UTC. */
export const moment = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ") + " UTC";

/** Return a time of a document in seconds since 1970. */
export const seconds = (time) => Date.parse(time) / 1000;

/** Return the period of a document as text. */
export function period({ from, to, over_ns: ns }) {
  if (from === null) return ns === null ? "since the start" : `last ${duration(ns)}`;
  const [begin, end] = [moment(seconds(from)), clock(seconds(to))];
  return begin.startsWith(to.slice(0, 10)) ? `${begin.slice(11, 19)} to ${end} UTC` : `${begin} to ${moment(seconds(to))}`;
}

function scaled(value, units, decimalBelow) {
  if (!Number.isFinite(value)) return "-";
  const [top, bottom] = ratio(Math.abs(value));
  let [below, tenths, name] = [0n, inTenths(top, bottom, 0n), units[0][1]];
  for (let n = 1; n < units.length; n++) {
    const [unit, [next, nextName]] = [units[n - 1][0], units[n]];
    if (tenths * unit < 10n * next) break;
    [below, tenths, name] = [decimalBelow, inTenths(top, bottom * next, decimalBelow), nextName];
  }
  return `${value < 0 && tenths !== 0n ? "-" : ""}${figure(tenths, below)}${name}`;
}

/** Return a number as a fraction of whole numbers, without an error. */
function ratio(value) {
  let bottom = 1n;
  while (!Number.isInteger(value)) {
    value *= 2;
    bottom *= 2n;
  }
  return [BigInt(value), bottom];
}

function inTenths(top, bottom, decimalBelow) {
  const tenths = (20n * top + bottom) / (2n * bottom);
  return tenths < 10n * decimalBelow ? tenths : 10n * ((2n * top + bottom) / (2n * bottom));
}

function figure(tenths, decimalBelow) {
  const [whole, tenth] = [tenths / 10n, tenths % 10n];
  return whole < decimalBelow ? `${whole}.${tenth}` : whole.toLocaleString("en-US");
}
