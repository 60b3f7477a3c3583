/* core/row_pairs.h - how often two workers computed different rows from equal input rows, at one site.
 *
 * A row-wise site computes a row of its output from the same row of its input. The kernel may depend on the number of
 * rows of the call, and on the row's place in the call. So a healthy worker may have several outputs for a row, which
 * differ by rounding.
 *
 * An output of a worker is far if it differs from each output of the other worker, for the same row, by more than
 * rounding. Two workers are apart at a row if they have no output in common.
 *
 * A worker differs from another one at a site if it has far outputs at BRICK_ROWS_FAR_MIN or more rows. If the outputs
 * are coarser than the sums of a kernel (bfloat16, float16), two workers also differ if they are apart at
 * BRICK_ROWS_APART_MIN or more rows, and at seven eighths of those that both had: other kernels change few such outputs.
 * In any case, the worker must have such rows in two steps.
 */
#ifndef BRICKD_ROW_PAIRS_H
#define BRICKD_ROW_PAIRS_H

#include "fingerprint_window.h"

#define BRICK_ROWS_FAR_MIN 3u
#define BRICK_ROWS_APART_MIN 8u
#define BRICK_ROW_WORKERS_MAX 256u /* further workers of a site are not paired: a pair takes 96 bytes */

struct brick_row_pair {
    uint32_t one, other;    /* workers, the lower first */
    uint32_t rows;          /* rows that both had */
    uint32_t apart;         /* rows where they are apart */
    uint32_t far[2];        /* rows where `one`, or `other`, has a far output */
    uint32_t unlike_own[2]; /* rows where an output of it differs from another one of its own by more than rounding */
    uint32_t steps[2];      /* steps in which it was far or apart: 0, 1, or 2 for more */
    uint32_t coarse;        /* whether their outputs are coarser than sums */
    uint64_t first[2];      /* the first of these steps */
    uint64_t newest[2][2];  /* fingerprints of `one` and `other` at the row where `one`, or `other`, was last far, else apart */
};

/* Returns whether `one` (side 0), or `other`, differs from the other worker. */
static inline int brick_row_differs(const struct brick_row_pair *pair, int side)
{
    const int is_far = pair->far[side] >= BRICK_ROWS_FAR_MIN;
    const int is_always = pair->coarse && pair->apart >= BRICK_ROWS_APART_MIN
                          && 8 * (uint64_t)pair->apart >= 7 * (uint64_t)pair->rows;
    return (is_far || is_always) && pair->steps[side] > 1;
}

/* Returns whether two outputs for one row differ by more than rounding. */
int brick_rows_far(const struct brick_fingerprints *p, uint64_t one, uint64_t other);

/* Returns the pairs of workers of a service at a site of rows, from their current fingerprints; *count: how many. Free it.
 * NULL if out of memory. */
struct brick_row_pair *brick_row_pairs(const struct brick_fingerprints *p, uint32_t service, uint64_t site, size_t *count);

#endif
