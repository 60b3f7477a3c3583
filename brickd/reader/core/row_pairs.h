/* core/row_pairs.h - how often two workers computed different rows from equal input rows, at one site.
 *
 * A row-wise site computes a row of its output from the same row of its input. The kernel may depend on the number of
 * rows of the call, so a worker may have several outputs for a row. Two workers are apart at a row if they have no
 * output in common, in one context.
 *
 * Two workers differ at a site if they are apart at BRICK_ROWS_BEYOND_MIN or more rows by more than rounding, or at
 * BRICK_ROWS_NEAR_MIN or more rows, and seven eighths of those that both had: kernels are chosen by the shape of a call,
 * so healthy workers are apart now and then, by rounding. In any case, one of them must have such rows in two steps.
 */
#ifndef BRICKD_ROW_PAIRS_H
#define BRICKD_ROW_PAIRS_H

#include "fingerprint_window.h"

#define BRICK_ROWS_BEYOND_MIN 3u
#define BRICK_ROWS_NEAR_MIN 8u
#define BRICK_ROW_WORKERS_MAX 256u /* further workers of a site are not paired: the pairs take 80 bytes each */

struct brick_row_pair {
    uint32_t one, other;  /* workers, the lower first */
    uint32_t rows;        /* rows that both had */
    uint32_t apart;       /* rows where they are apart */
    uint32_t beyond;      /* rows where they are apart by more than rounding */
    uint32_t steps[2];    /* steps of each at the rows that are apart: 0, 1, or 2 for more */
    uint64_t first[2];    /* the first of these steps */
    /* Fingerprints of one and other at a row where they are apart, if possible beyond rounding: at the row that `one`, or
     * `other`, had last. */
    uint64_t newest[2][2];
};

static inline int brick_row_pair_differs(const struct brick_row_pair *pair)
{
    const int is_far = pair->beyond >= BRICK_ROWS_BEYOND_MIN;
    const int is_always = pair->apart >= BRICK_ROWS_NEAR_MIN && 8 * (uint64_t)pair->apart >= 7 * (uint64_t)pair->rows;
    return (is_far || is_always) && (pair->steps[0] > 1 || pair->steps[1] > 1);
}

/* Returns the pairs of workers of a service at a site of rows, from their current fingerprints, or from all if p is a copy
 * without groups; *count: how many. Free it. NULL if out of memory. */
struct brick_row_pair *brick_row_pairs(const struct brick_fingerprints *p, uint32_t service, uint64_t site, size_t *count);

#endif
