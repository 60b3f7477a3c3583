/* core/births.h - counts births of NaN and infinities: outputs that have a NaN or infinity although no recorded input
 * has any.
 *
 * Births are counted per worker and site from the first fingerprint on. This distinguishes a site that always produced
 * NaN from a site that began to produce NaN later. A fingerprint shows a birth only if all its inputs are known. The
 * table has one row per worker and site, and at most BRICK_BIRTHS_MAX rows, of which each service may use a share. A
 * fingerprint that gets no row counts as untracked.
 */
#ifndef BRICKD_BIRTHS_H
#define BRICKD_BIRTHS_H

#include "fingerprint_window.h"

#define BRICK_BIRTHS_ROWS_MAX 8192u

/* Counts the newest fingerprint of the window p, and its births. If there is no free row, the fingerprint counts as
 * untracked. */
void brick_births_count(struct brick_fingerprints *p, const struct brick_kept_fingerprint *fingerprint,
                        const struct brick_record *slots);

/* Drops the counts of these workers. `workers` is sorted. */
void brick_births_forget(struct brick_fingerprints *p, const uint32_t *workers, size_t count);

/* Copies up to `most` rows: first the rows with births, then other rows at the same sites. Returns the number
 * of copied rows, or SIZE_MAX if out of memory. */
size_t brick_births_rows(const struct brick_fingerprints *p, struct brick_births *rows, size_t most);

#endif
