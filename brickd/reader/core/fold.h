/* core/fold.h - sums the summaries of many workers, row by row, in ns. A row is a brick, a path or a service. */
#ifndef BRICKD_FOLD_H
#define BRICKD_FOLD_H

#include "brick_shm.h"

struct brick_row {
    uint64_t count;
    double total, self, inclusive, squares, min, max; /* ns */
    uint64_t elements, bytes;
    double flops;
    double histogram[BRICK_BUCKETS]; /* the number of spans in each bucket; buckets are in ticks of grid_ns (below) */
};

/* One path of one worker. */
struct brick_part {
    const struct brick_summary *summary;
    double tick_ns;  /* 1 for a path with times in ns */
    double given_ns; /* ns inside its spans that belong to other paths */
    int outer;       /* whether no path above it is in the same row; otherwise the time would count twice */
};

enum brick_part_flags { BRICK_PART_OUTER = 1, BRICK_PART_NS = 2 };

/* Returns the path's time outside of its children; 0 if the given times exceed it. */
double brick_self_ns(const struct brick_part *part);

/* Adds a part to a row. grid_ns: the tick of the row's buckets. */
void brick_row_add(struct brick_row *row, const struct brick_part *part, double grid_ns);

/* Returns the duration that this fraction of the spans does not exceed, to within a bucket; 0 for an empty row. */
double brick_row_quantile(const struct brick_row *row, double fraction, double grid_ns);

/* The durations of the spans at a place, exact, so that a sum never decreases while its parts grow. Recursive spans
 * count one by one; in the sums, time inside several of them counts once. */
#define BRICK_BOUNDS 16u
struct brick_durations {
    uint64_t count, ticks, ns;
    uint64_t within[BRICK_BOUNDS]; /* counts per bound: the first that a span's bucket does not exceed */
};

/* Adds a part. bounds: for each bucket, the index of its bound; the last bound has no limit. */
void brick_durations_add(struct brick_durations *into, const struct brick_summary *s, uint8_t flags,
                         const uint8_t *bounds);

/* Adds the durations of another worker, whose ticks have the same length. */
void brick_durations_join(struct brick_durations *into, const struct brick_durations *of);

#endif
