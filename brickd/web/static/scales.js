// Colours for figures.
//
// Owns: the two scales, dark and light. Must not know: documents, what is drawn. Invariants: People with any kind of
// colour blindness can read both scales: the lightness changes along each, and the two ends of the diverging one are
// blue and orange. The middle of a scale differs from the ground of the page, which means "no figure".

const STEPS = 256; // colours of a scale
const STOPS = {
  light: {
    diverging: [[11, 79, 158], [116, 169, 220], [222, 225, 230], [240, 163, 94], [156, 66, 0]],
    sequential: [[214, 227, 243], [91, 147, 201], [10, 47, 102]],
  },
  dark: {
    diverging: [[140, 200, 255], [63, 127, 191], [54, 59, 68], [190, 104, 30], [255, 196, 128]],
    sequential: [[35, 50, 77], [124, 123, 120], [255, 234, 70]],
  },
};

/** Return whether the page is dark now. */
const isDark = () => getComputedStyle(document.documentElement).colorScheme === "dark";

/** A scale: the colours of the numbers from 0 to 1. */
class Scale {
  constructor(stops) {
    this.colours = Array.from({ length: STEPS }, (_, n) => between(stops, (n / (STEPS - 1)) * (stops.length - 1)));
    this._pixels = new Uint32Array(Uint8Array.from(this.colours.flatMap((colour) => [...colour, 255])).buffer);
  }

  /** Return the red, green and blue of a number. A number outside of 0 to 1 has the colour of the nearest end. */
  colour(number) {
    return this.colours[step(number)];
  }

  /** Return the colours of numbers as pixels; the pixel of NaN is transparent. */
  pixels(numbers) {
    const pixels = new Uint32Array(numbers.length); // a loop, because `from` takes twice as long
    for (let n = 0; n < pixels.length; n++) if (!Number.isNaN(numbers[n])) pixels[n] = this._pixels[step(numbers[n])];
    return pixels;
  }

  /** Return the colour as CSS. */
  css(number) {
    return `rgb(${this.colour(number).join(" ")})`;
  }

  /** Return the colour of text that can be read on the colour of a number. */
  ink(number) {
    const [red, green, blue] = this.colour(number);
    return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#000000" : "#ffffff";
  }
}

const step = (number) => Math.round(Math.min(1, Math.max(0, number)) * (STEPS - 1));

function between(stops, place) {
  const first = Math.min(stops.length - 2, Math.floor(place));
  return stops[first].map((value, n) => Math.round(value + (stops[first + 1][n] - value) * (place - first)));
}

const SCALES = Object.fromEntries(Object.entries(STOPS).map(([theme, kinds]) =>
  [theme, Object.fromEntries(Object.entries(kinds).map(([kind, stops]) => [kind, new Scale(stops)]))]));

/** Return the scale of a kind, "diverging" or "sequential", in the colours that the page has now. */
export const scaleOf = (kind) => SCALES[isDark() ? "dark" : "light"][kind];
