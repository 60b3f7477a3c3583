/* core/births.h - where NaN and infinities are born: in an output while no recorded input holds any.
 *
 * Counted for each worker and site from the first fingerprint on, so that a site which always gives them can be told
 * from one that began to. Only fingerprints whose inputs are all known can show a birth. Bounded: of workers and sites
 * beyond BRICK_BIRTHS_MAX, or the part of it that a service has, the fingerprints are counted as untracked.
 */
#ifndef BRICKD_BIRTHS_H
#define BRICKD_BIRTHS_H

#include "fingerprint_window.h"

#define BRICK_BIRTHS_ROWS_MAX 8192u

/* Counts a fingerprint that p holds since now, and what is born in it. Without memory it is untracked. */
void brick_births_count(struct brick_fingerprints *p, const struct brick_kept_fingerprint *fingerprint,
                        const struct brick_record *slots);

/* Drops what was counted of some workers, by their sorted numbers. */
void brick_births_forget(struct brick_fingerprints *p, const uint32_t *workers, size_t count);

/* Copies at most so many counts at sites where anything was born, those with births first. Returns how many; SIZE_MAX: no memory. */
size_t brick_births_rows(const struct brick_fingerprints *p, struct brick_births *rows, size_t most);

#endif
