/* core/fold.h - summaries of many workers added up by row, in nanoseconds. A row may be a brick, a path or a service. */
#ifndef BRICKD_FOLD_H
#define BRICKD_FOLD_H

#include "brick_shm.h"

struct brick_row {
    uint64_t count;
    double total, self, inclusive, squares, min, max; /* ns */
    uint64_t elements, bytes;
    double flops;
    double histogram[BRICK_BUCKETS]; /* in buckets of the fold's own tick */
};

/* One path of one worker. */
struct brick_part {
    const struct brick_summary *summary;
    double tick_ns;  /* 1 for a path with times in ns */
    double given_ns; /* times in ns inside its spans, which are not its own */
    int outer;       /* no path above it belongs to the same row, which would count its time twice */
};

enum brick_part_flags { BRICK_PART_OUTER = 1, BRICK_PART_NS = 2 };

/* The path's time outside of its children; 0 where the given times exceed it. */
double brick_self_ns(const struct brick_part *part);

/* grid_ns: the tick of the row's buckets. */
void brick_row_add(struct brick_row *row, const struct brick_part *part, double grid_ns);

/* The duration below which a fraction of the spans is, within a bucket's width; 0 for an empty row. */
double brick_row_quantile(const struct brick_row *row, double fraction, double grid_ns);

#endif
