// Where the lines of an axis are.
//
// Owns: which values have a line, and where a value is on an axis. Must not know: what is drawn. Invariant: Times are in
// UTC.

const MINUTE = 60;
const TIME_STEPS = [10, 30, MINUTE, 5 * MINUTE, 10 * MINUTE, 30 * MINUTE, 3600, 2 * 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400];

/** Return the times of lines between two times, at most `most` of them. */
export function timeLines(from, to, most) {
  const step = TIME_STEPS.find((each) => (to - from) / each <= most) ?? TIME_STEPS.at(-1);
  return multiples(from, to, step);
}

/** Return the text of a time on an axis: the date at midnight. */
export function timeText(time) {
  const text = new Date(time * 1000).toISOString();
  if (time % 86400 === 0) return text.slice(5, 10);
  return time % MINUTE === 0 ? text.slice(11, 16) : text.slice(11, 19);
}

/** An axis from 0. `at(value)` is between 0 (the bottom) and 1. */
export function linear(values) {
  const most = Math.max(0, ...values) || 1;
  const step = [1, 2, 5, 10].map((each) => each * 10 ** Math.floor(Math.log10(most / 4))).find((each) => most / each <= 5);
  const top = step * Math.ceil(most / step);
  return { at: (value) => value / top, lines: multiples(0, top, step) };
}

/** A logarithmic axis of whole decades. A value below 1 is at 1. */
export function logarithmic(values) {
  const sorted = values.map((value) => Math.log10(Math.max(1, value)));
  const low = Math.floor(Math.min(...sorted, Infinity));
  const [bottom, top] = Number.isFinite(low) ? [low, Math.max(low + 1, Math.ceil(Math.max(...sorted)))] : [0, 1];
  return {
    at: (value) => (Math.log10(Math.max(1, value)) - bottom) / (top - bottom),
    lines: Array.from({ length: top - bottom + 1 }, (_, n) => 10 ** (bottom + n)),
  };
}

function multiples(from, to, step) {
  const found = [];
  for (let n = Math.ceil(from / step); n * step <= to; n++) found.push(n * step);
  return found;
}
