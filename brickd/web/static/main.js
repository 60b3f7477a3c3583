// The page: it asks for documents, and shows a view.
//
// Owns: the loop, the frame around the views, the keys of the page. Must not know: what a view shows. Invariants: One
// round of requests at a time; a slow answer delays the next round and never queues it. The last documents stay if an
// answer fails, and the page says what is wrong and of which time they are: an old verdict never reads as a present one.
// A view that cannot draw a document does not stop the page. A page that nobody sees asks for nothing.

import { bricks } from "./bricks.js";
import { element, replace, setText } from "./dom.js";
import { clock, moment, seconds } from "./figures.js";
import { hang } from "./hang.js";
import { latency } from "./latency.js";
import { ledger } from "./ledger.js";
import { numerics } from "./numerics.js";
import { overview } from "./overview.js";
import { changed, parsed, written } from "./place.js";
import { knows, servicesOf } from "./services.js";
import { SourceError, hasToken, pageSource, requestPath } from "./source.js";
import { tree } from "./tree.js";
import { health, oldHealth } from "./verdict.js";
import { workers } from "./workers.js";

const VIEWS = [overview, workers, bricks, latency, tree, numerics, hang, ledger];
const EVERY = 2; // seconds between two documents of the stream
const LATE = 6; // seconds after which a status that did not come is late
const AGAIN = 2000; // milliseconds before a stream that ended is opened again
const PASSING = new Set(["unreachable", "busy", "no_daemon"]); // errors after which the same request may succeed
const STEP = 60; // seconds by which the keys move the time

/** The page. Views get it to read `place` and to call `go`. */
class Page {
  constructor(source) {
    this.source = source;
    this.place = this._parsed();
    this.documents = {};
    this.mounted = null;
    this._asking = null; // stops the requests of a place that is no longer shown
    this._status = null; // the newest status of the shown time
    this._newest = null; // the newest status of any time: the time of its daemon, and when it came
    this._lost = false; // whether the newest status did not come
    this._wrong = ""; // what is wrong
    this._services = []; // what is asked for at an earlier time
    this._kept = new Map(); // for each view of the API, a document that stays for some seconds
    this._drawn = null; // the place whose documents are drawn, their time, and when they came
    this.main = document.getElementById("main");
    this.line = document.getElementById("line");
    this.notice = document.getElementById("notice");
    this.words = document.getElementById("words");
    this.time = document.getElementById("time");
    this.names = document.getElementById("names");
    this.tabs = VIEWS.map((view, n) => element("a", { title: `key ${n + 1}` }, view.title));
    replace(document.getElementById("views"), this.tabs);
    document.getElementById("earlier").addEventListener("click", () => this.turn(-STEP));
    document.getElementById("later").addEventListener("click", () => this.turn(STEP));
    document.getElementById("now").addEventListener("click", () => this.go({ at: null }));
    document.getElementById("theme").addEventListener("click", () => {
      otherTheme();
      this._redraw();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this._redraw());
    document.getElementById("skip").addEventListener("click", (event) => {
      event.preventDefault(); // the fragment of the address is the place
      this.main.focus();
    });
    document.addEventListener("keydown", (event) => this._key(event));
    window.addEventListener("hashchange", () => {
      if (hasToken()) this.source = pageSource(); // the URL with its token was opened in this tab
      this._arrive(this._parsed());
    });
    setInterval(() => this._lookWhetherLate(), 1000);
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) this._asking.abort();
      else this._arrive(this.place);
      this._lookWhetherLate();
    });
  }

  /** Change the place. The browser's button Back returns to the last one, unless this one `replaces` it. */
  go(changes, { replaces = false } = {}) {
    const address = this.link(changes);
    if (replaces) location.replace(address);
    else location.hash = address;
  }

  /** Return the address of a place that differs from this one, for a link. */
  link(changes) {
    return written(this._possible(changed(this.place, changes)));
  }

  _parsed() {
    return this._possible(parsed(location.hash));
  }

  /** Return a place that the source can show: a report has one time, and all workers together. */
  _possible(place) {
    return this.source.recorded ? { ...place, at: null, names: [] } : place;
  }

  /** Show an earlier or a later time. */
  turn(by) {
    const passed = this._newest ? (performance.now() - this._newest.came) / 1000 : 0;
    const now = (this._newest?.time ?? Date.now() / 1000) + passed;
    const at = Math.round((this.place.at ?? now) + by);
    this.go({ at: at >= now ? null : at });
  }

  /** Ask for documents until the page is left. */
  run() {
    this._arrive(this.place);
  }

  _arrive(place) {
    this._asking?.abort();
    this._asking = new AbortController();
    const view = VIEWS.find((each) => each.name === place.view) ?? overview;
    if (place.at !== this.place.at) [this.documents, this._status] = [{}, null]; // of another time
    if (this.mounted?.view !== view || !(this._status || view.ofPeriod)) {
      replace(this.main);
      this.mounted = { view, shown: view.mount(this.main, this) };
      [this.documents, this._drawn] = [{}, null];
      document.title = `${view.title} · brickd`;
    }
    this.place = place;
    this.main.setAttribute("aria-busy", "true");
    this.main.dataset.place = location.hash; // tests wait until this place is not busy
    this._frame();
    void this._follow(place, this._asking.signal);
  }

  async _follow(place, signal) {
    while (!signal.aborted) {
      try {
        if (place.at !== null || this.source.recorded) {
          const names = this._services = await this._servicesOf(place, signal);
          const parameters = this.source.recorded ? {} : { name: names, at: `@${place.at}` };
          const status = await this.source.get("status", parameters, signal);
          this._take(status);
          await this._round(place, status, signal, names);
          return;
        }
        let round = null; // the requests of the view that are under way
        await this.source.stream("status", { seconds: `${EVERY}s`, name: place.names }, (status) => {
          this._take(status);
          round ??= this._round(place, status, signal).finally(() => { round = null; });
        }, signal);
      } catch (error) {
        if (signal.aborted) return;
        this._lost = true;
        this._say(error);
        this.main.setAttribute("aria-busy", "false");
        if (error.kind === "no_token" || (place.at !== null && !PASSING.has(error.kind))) return;
      }
      await new Promise((resolve) => setTimeout(resolve, AGAIN));
    }
  }

  /** Return the names for the totals of an earlier time: the last day is kept for each service, not for each worker. */
  async _servicesOf({ at, names }, signal) {
    if (at === null || !names.length) return names;
    let workers = this._status?.workers ?? [];
    if (!knows(workers, names)) ({ workers } = await this.source.get("status", { name: names }, signal));
    return servicesOf(workers, names);
  }

  /** Show the verdict of a new status, also while the view waits for its documents. */
  _take(status) {
    this._status = status;
    this._newest = { time: timeOf(status), came: performance.now() };
    if (this._lost) [this._lost, this._wrong] = [false, ""];
    this._frame();
  }

  async _round(place, status, signal, names = place.names) {
    try {
      const asked = { ...place, names, chosen: place.names, recorded: this.source.recorded };
      const needs = Object.entries(this.mounted.view.needs(asked, status));
      const found = await Promise.all(needs.map(([, request]) => this._document(request, signal)));
      if (signal.aborted) return;
      this.documents = { status, ...Object.fromEntries(needs.map(([name], n) => [name, found[n]])) };
      this._drawn = { place, time: timeOf(status), came: performance.now() };
      this.mounted.shown.show(this.documents, place);
      this.main.setAttribute("aria-busy", "false");
      if (!this._lost) this._say(null);
    } catch (error) {
      if (signal.aborted) return;
      this.main.setAttribute("aria-busy", "false");
      this._say(error);
    }
  }

  /** Return the document of a request. A third element is how many seconds the document of the same request stays. */
  async _document([view, parameters, stays = 0], signal) {
    const key = requestPath(view, parameters);
    const kept = this._kept.get(view);
    if (kept?.key === key && performance.now() - kept.since < 1000 * stays) return kept.document;
    const [since, document] = [performance.now(), await this.source.get(view, parameters, signal)];
    if (stays) this._kept.set(view, { key, since, document });
    return document;
  }

  /** Draw the last documents again. */
  _redraw() {
    if (this._drawn && this.documents.status) this.mounted.shown.show(this.documents, this._drawn.place);
  }

  _say(error) {
    if (error !== null && !(error instanceof SourceError)) {
      console.error(error);
      error = { kind: "defect", message: `${error} (a defect of brickd: please report it)` };
    }
    this._wrong = error?.kind === "no_token"
      ? "This page needs a token: open the URL that brickd up --http or brickd web printed."
      : error?.message ?? "";
    this._frame();
  }

  /** Say so if no answers come, although the connection is open. */
  _lookWhetherLate() {
    if (this.place.at !== null || this.source.recorded || document.hidden || this._lost || !this._newest) return;
    const isLate = ({ came }) => performance.now() - came >= 1000 * LATE;
    this._lost = isLate(this._newest);
    if (this._lost) this._say(new SourceError("late", "no answer from the daemon (brickd status shows whether it runs)"));
    else if (!this._wrong && this._drawn && isLate(this._drawn)) this._say(new SourceError("late", "no answer yet for this view"));
  }

  _frame() {
    const { place, _status: status } = this;
    VIEWS.forEach((view, n) => {
      this.tabs[n].setAttribute("href", this.link({ view: view.name }));
      if (view === this.mounted.view) this.tabs[n].setAttribute("aria-current", "page");
      else this.tabs[n].removeAttribute("aria-current");
    });
    const old = this._wrong && this._drawn ? `. Below is the last answer, of ${moment(this._drawn.time)}.` : "";
    this.main.classList.toggle("old", old !== "");
    setText(this.notice, this._wrong + old);
    this.notice.hidden = !this._wrong;
    setText(this.time, this._timeText(status));
    document.getElementById("now").hidden = place.at === null;
    document.getElementById("times").hidden = this.source.recorded;
    replace(this.names, place.names.map((name) => element("a", {
      href: this.link({ names: place.names.filter((each) => each !== name) }), title: "show all workers again",
    }, name, " ×")));
    this._health(status);
  }

  _timeText(status) {
    if (this.place.at !== null && this.mounted.view.onlyNow) {
      return `${moment(this.place.at)}; ${this.mounted.view.title} has no past and shows now`;
    }
    if (this.source.recorded) {
      return status?.recording ? `recorded until ${moment(seconds(status.recording.shown))}` : `as of ${moment(seconds(this.source.made))}`;
    }
    if (this.place.at !== null) return `${moment(this.place.at)}${this._servicesText()}`;
    return this._newest === null ? "" : this._lost ? `as of ${moment(this._newest.time)}` : `now, ${clock(this._newest.time)} UTC`;
  }

  _servicesText() {
    const services = this._services.filter((service) => !this.place.names.includes(service));
    return services.length && this.place.names.length ? `, all of ${services.join(", ")}` : "";
  }

  _health(status) {
    const old = this._lost && this.place.at === null;
    const [colour, text] = status ? (old ? oldHealth(status, this._newest.time) : health(status)) : ["", ""];
    setText(this.line, text);
    this.line.className = colour;
    setText(this.words, status?.words?.join("; ") ?? "");
    this.words.hidden = !status?.words?.length;
  }

  _key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    if (document.getElementById("help").open) return;
    const view = VIEWS[Number(event.key) - 1];
    if (view) this.go({ view: view.name });
    else if (event.key === "[" && !this.source.recorded) this.turn(-STEP);
    else if (event.key === "]" && !this.source.recorded) this.turn(STEP);
    else if (event.key === "n" && !this.source.recorded) this.go({ at: null });
    else if (event.key === "?") document.getElementById("help").showModal();
    else return;
    event.preventDefault();
  }
}

/** Return the time of a status, in seconds since 1970: by the daemon's clock, if a daemon answered. */
function timeOf({ daemon }) {
  return daemon ? seconds(daemon.started) + daemon.uptime_ns / 1e9 : Date.now() / 1000;
}

function otherTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const root = document.documentElement;
  const next = (root.dataset.theme ?? (dark ? "dark" : "light")) === "dark" ? "light" : "dark";
  root.dataset.theme = next;
}

new Page(pageSource()).run();
