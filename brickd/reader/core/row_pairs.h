/* core/row_pairs.h - counts, at one site, how often two workers computed different rows from equal input rows.
 *
 * A row-wise site computes a row of its output from the same row of its input. Which kernel runs may depend on the
 * number of rows in the call, and on the row's place in the call. So a healthy worker may have several outputs for one
 * row, which differ by rounding.
 *
 * Two words are used for a pair of workers. An output of one worker is far if it differs by more than rounding from
 * each output that the other worker has for the same row. A worker is apart at a row if the other worker never had
 * exactly this worker's newest output for the row.
 *
 * A worker differs from another worker at a site if one of two rules says so. By the first rule, it differs if it has
 * far outputs for BRICK_ROWS_FAR_MIN or more rows. The second rule applies only if the outputs are rounded to a coarser
 * type than a kernel's sums (bfloat16, float16), because then another kernel changes only few outputs. It looks at the
 * worker's newest BRICK_ROWS_RECENT rows that the other worker also had, so that rows from before a fault do not hide
 * the fault. The worker differs if it is apart at BRICK_ROWS_APART_MIN or more of these rows, and at seven eighths of
 * them. Both rules also require that such rows occur in at least two steps.
 *
 * Rows with a history must be equal to the last bit, so there each output that the other worker does not have is far.
 *
 * A worker contradicts itself if two of its own outputs for a row differ by more than rounding, for BRICK_ROWS_FAR_MIN
 * or more rows. A site is unsteady if most of the workers contradict themselves, or if more than two workers differ from
 * others and no two workers agree. Then it does not compute equal outputs from equal inputs, and no worker is blamed.
 */
#ifndef BRICKD_ROW_PAIRS_H
#define BRICKD_ROW_PAIRS_H

#include "fingerprint_window.h"

#define BRICK_ROWS_FAR_MIN 3u
#define BRICK_ROWS_APART_MIN 8u
#define BRICK_ROWS_RECENT 16u
#define BRICK_ROW_WORKERS_MAX 256u /* at a site, at most this many workers are paired; a pair takes 368 bytes */

struct brick_row_pair {
    uint32_t one, other;    /* the two workers, the lower number first */
    uint32_t rows;          /* how many rows both had */
    /* In each array below, [0] belongs to the worker `one`, [1] to the worker `other`. */
    uint32_t apart[2];      /* at how many of its newest rows the worker is apart */
    uint32_t far[2];        /* for how many rows the worker has a far output */
    uint32_t unlike_own[2]; /* for how many rows two outputs of the worker itself differ by more than rounding */
    uint32_t differs[2];    /* whether the worker differs from the other worker */
    uint32_t coarse;        /* whether the outputs have a coarser type than a kernel's sums */
    uint32_t steps[2];      /* in how many steps the worker had far outputs, at most 2 */
    uint32_t shown[2];      /* whether `newest` has values */
    uint32_t recent_count[2]; /* how many entries `recent` has */
    uint64_t first[2];      /* the first step in which the worker had a far output */
    uint64_t newest[2][2];  /* the fingerprints of both workers for the last row with a far output; if the worker has
                             * none, for the last row at which it is apart */
    uint64_t recent[2][BRICK_ROWS_RECENT]; /* newest first: twice the fingerprint's number, plus 1 if apart */
};

/* Returns whether two outputs for one row differ by more than rounding; for rows with a history, whether they differ. */
int brick_rows_far(const struct brick_fingerprints *p, uint64_t one, uint64_t other);

/* Returns whether a site with these pairs is unsteady; -1 if out of memory. Pairs without rows do not count. */
int brick_rows_unsteady(const struct brick_row_pair *pairs, size_t count);

/* Compares the current rows of a service's workers at a site. Returns the pairs of workers, which the caller frees, and
 * sets *count to their number. Returns NULL if out of memory. */
struct brick_row_pair *brick_row_pairs(const struct brick_fingerprints *p, uint32_t service, uint64_t site, size_t *count);

#endif
