// The services of the chosen workers.
//
// Owns: which service a name belongs to. Must not know: places, requests. Invariant: A name that no worker has stays, so
// that a document about it is never one about all workers.

const has = (name) => (worker) => worker.service !== null && (worker.name === name || worker.service === name);

/** Return whether every name is that of a worker or of its service. */
export const knows = (workers, names) => names.every((name) => workers.some(has(name)));

/** Return the services of names of workers and services. Documents that are kept for each service need them. */
export function servicesOf(workers, names) {
  return [...new Set(names.map((name) => workers.find(has(name))?.service ?? name))];
}
