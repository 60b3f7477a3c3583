// Where documents come from: a daemon, or the page itself if it is a report.
//
// Owns: the token, requests, the stream, their errors. Must not know: views. Invariants: The token is in no address and
// no message. A request only reads.

/** An error that the page can explain. `kind` is that of the API, or "unreachable". */
export class SourceError extends Error {
  constructor(kind, message) {
    super(message);
    this.kind = kind;
  }
}

/** Return the path of a request. Parameters are texts, numbers, or lists of these; null leaves one out. */
export function requestPath(view, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const each of Array.isArray(value) ? value : [value]) if (each !== null) query.append(name, String(each));
  }
  query.sort();
  const text = query.toString();
  return `${view}${text ? `?${text}` : ""}`;
}

const TOKEN = "brickd-token";

/** Return whether the address has a token. */
export const hasToken = () => new URLSearchParams(location.hash.slice(1)).has("token");

/** Move the token from the address to the session's storage, and return it; null if there is none. */
function takenToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) history.replaceState(null, "", location.pathname);
  try {
    if (given) sessionStorage.setItem(TOKEN, given);
    return sessionStorage.getItem(TOKEN);
  } catch { // this browser stores nothing: the token stays until the page is loaded again
    return given;
  }
}

/** A daemon, or a process that forwards requests to it. */
class ServerSource {
  recorded = false;

  constructor(token) {
    this._headers = token === null ? {} : { Authorization: `Bearer ${token}` };
  }

  /** Return the document of a view. */
  async get(view, parameters, signal) {
    const response = await this._asked(requestPath(view, parameters), signal);
    return await response.json();
  }

  /** Call `take` with each document of a stream, until the stream ends. */
  async stream(view, parameters, take, signal) {
    const response = await this._asked(requestPath(`${view}/stream`, parameters), signal);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (text + value).split("\n\n");
      text = parts.pop();
      for (const part of parts) this._take(part, view, take);
    }
  }

  _take(part, view, take) {
    const fields = Object.fromEntries(part.split("\n").map((line) => line.split(/: (.*)/s, 2)));
    if (fields.event === "error") throw errorOf(JSON.parse(fields.data));
    if (fields.event === view) take(JSON.parse(fields.data));
  }

  async _asked(path, signal) {
    let response;
    try {
      response = await fetch(`v1/${path}`, { headers: this._headers, signal, cache: "no-store" });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new SourceError("unreachable", "no answer from the daemon (brickd status shows whether it runs)");
    }
    if (response.ok) return response;
    throw errorOf(await response.json().catch(() => null), response.status);
  }
}

function errorOf(document, status) {
  const error = document?.error;
  return new SourceError(error?.kind ?? "unknown", error?.message ?? `the server answered with status ${status}`);
}

/** A report, which has its documents in the page. `made` is the time at which it was made. */
class EmbeddedSource {
  recorded = true;

  constructor({ made, requests }) {
    this.made = made;
    this._answers = new Map(requests.map((each) => [requestPath(each.view, each.parameters), each]));
  }

  /** Return the document of a view. */
  async get(view, parameters) {
    const found = this._answers.get(requestPath(view, parameters));
    if (!found) throw new SourceError("not_in_report", "the report does not have this (use brickd, or the page of a daemon)");
    if (found.document === null) throw new SourceError("not_known", found.error);
    return found.document;
  }
}

/** Return the source of this page. */
export function pageSource() {
  const embedded = document.getElementById("documents");
  return embedded ? new EmbeddedSource(JSON.parse(embedded.textContent)) : new ServerSource(takenToken());
}
