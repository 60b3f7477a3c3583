/* core/row_pairs.h - counts, at one site, how often two workers computed different rows from equal input rows.
 *
 * A row-wise site computes a row of its output from the same row of its input. Which kernel runs may depend on the
 * number of rows in the call, and on the row's place in the call. So a healthy worker may have several outputs for one
 * row, which differ by rounding.
 *
 * An output of a worker is far if it differs by more than rounding from each output that the other worker has for the
 * same row. A worker is apart at a row if the other worker never had this worker's newest output for the row.
 *
 * A worker differs from another worker at a site if it has far outputs at BRICK_ROWS_FAR_MIN or more rows. A second
 * rule applies to outputs of a coarser type than a kernel's sums (bfloat16, float16), because another kernel changes
 * only few such outputs. This rule uses the worker's newest BRICK_ROWS_RECENT rows that the other worker also had, so
 * that rows from before a fault do not hide the fault. The worker also differs if it is apart at BRICK_ROWS_APART_MIN
 * or more of these rows, and at seven eighths of them. Both rules also require such rows in two steps.
 */
#ifndef BRICKD_ROW_PAIRS_H
#define BRICKD_ROW_PAIRS_H

#include "fingerprint_window.h"

#define BRICK_ROWS_FAR_MIN 3u
#define BRICK_ROWS_APART_MIN 8u
#define BRICK_ROWS_RECENT 16u
#define BRICK_ROW_WORKERS_MAX 256u /* the most workers of a site that are paired; a pair takes 368 bytes */

struct brick_row_pair {
    uint32_t one, other;    /* the two workers, the lower number first */
    uint32_t rows;          /* number of rows that both had */
    uint32_t apart[2];      /* number of rows, among the newest, where `one`, or `other`, is apart */
    uint32_t far[2];        /* number of rows where `one`, or `other`, has a far output */
    uint32_t unlike_own[2]; /* number of rows where two outputs of the same worker differ by more than rounding */
    uint32_t differs[2];    /* whether `one`, or `other`, differs from the other worker */
    uint32_t coarse;        /* whether the outputs are coarser than sums */
    uint32_t steps[2];      /* number of steps in which the worker was far, at most 2 */
    uint32_t shown[2];      /* whether `newest` is set */
    uint32_t recent_count[2]; /* number of entries of `recent` */
    uint64_t first[2];      /* the first step in which the worker was far */
    uint64_t newest[2][2];  /* both fingerprints at the last row where `one`, or `other`, was far (else apart) */
    uint64_t recent[2][BRICK_ROWS_RECENT]; /* newest first: twice the fingerprint's number, plus 1 if apart */
};

/* Returns whether two outputs for one row differ by more than rounding. */
int brick_rows_far(const struct brick_fingerprints *p, uint64_t one, uint64_t other);

/* Returns the pairs of workers of a service at a site of rows, from the current fingerprints; *count: the number of
 * pairs. The caller frees the result. Returns NULL if out of memory. */
struct brick_row_pair *brick_row_pairs(const struct brick_fingerprints *p, uint32_t service, uint64_t site, size_t *count);

#endif
