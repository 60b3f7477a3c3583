/* core/row_census.h - counts over the rows of a service: rows of other contexts and lineages, and repeated rows.
 *
 * Only the newest rows count, at most BRICK_ROW_CENSUS_MAX, because counting holds the window's lock.
 */
#ifndef BRICKD_ROW_CENSUS_H
#define BRICKD_ROW_CENSUS_H

#include "fingerprint_window.h"

#define BRICK_ROW_CENSUS_MAX ((size_t)16384)

/* Rows that cannot be compared although another worker had them. Each row counts once. */
struct brick_rows_apart {
    uint64_t context; /* another worker had the row at the same site, but only in another context */
    uint64_t lineage; /* another worker had a row with the same history at the same site, but only with another lineage */
};

/* Counts the rows of a service in this tier. Returns 0 if out of memory. */
int brick_rows_apart(const struct brick_fingerprints *p, uint32_t service, enum brick_tier tier, struct brick_rows_apart *apart);

/* Counts rows of all workers at a site. A row counts if its worker had the same output for it in several steps, and no
 * output that differs by more than rounding. A site that mixes the rows of a batch has few such rows. Returns
 * UINT64_MAX if out of memory. */
uint64_t brick_rows_repeated(const struct brick_fingerprints *p, uint32_t service, uint64_t site);

#endif
