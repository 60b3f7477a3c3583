/* core/row_census.h - counts over the rows of a service: rows of other contexts, and rows that a worker repeated.
 *
 * Only the newest rows count, at most BRICK_ROW_CENSUS_MAX, because counting holds the window's lock.
 */
#ifndef BRICKD_ROW_CENSUS_H
#define BRICKD_ROW_CENSUS_H

#include "fingerprint_window.h"

#define BRICK_ROW_CENSUS_MAX ((size_t)16384)

/* Counts the rows that another worker of the service had at the same site, but only in another context. Returns
 * UINT64_MAX if out of memory. */
uint64_t brick_rows_in_other_contexts(const struct brick_fingerprints *p, uint32_t service);

/* Counts rows of all workers at a site. A row counts if its worker had the same output for it in several steps, and no
 * output that differs by more than rounding. A site that mixes the rows of a batch has few such rows. Returns
 * UINT64_MAX if out of memory. */
uint64_t brick_rows_repeated(const struct brick_fingerprints *p, uint32_t service, uint64_t site);

#endif
