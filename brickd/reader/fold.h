/* fold.h - summaries of many workers added up by row, in nanoseconds.
 *
 * A row is whatever the caller wants a total of: a brick, a path, a service.
 */
#ifndef BRICKD_FOLD_H
#define BRICKD_FOLD_H

#include "brick_shm.h"

struct brick_row {
    uint64_t count;
    double total, self, inclusive, squares, min, max; /* ns */
    uint64_t elements, bytes;
    double histogram[BRICK_BUCKETS]; /* in buckets of the fold's own tick */
};

/* What of a whole is not in its part: 0 when the part is greater. */
double brick_rest(uint64_t whole, uint64_t part);

/* tick_ns: the worker's tick; grid_ns: the one that the row's buckets are in.
 * outer: no path above this one belongs to the same row, so that its time is
 * the row's and not counted before. */
void brick_row_add(struct brick_row *row, const struct brick_summary *s, double tick_ns, double grid_ns, int outer);

/* The duration below which a fraction of the spans lies, within a bucket's width; 0 for an empty row. */
double brick_row_quantile(const struct brick_row *row, double fraction, double grid_ns);

#endif
