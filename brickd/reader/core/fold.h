/* core/fold.h - sums the summaries of many workers, row by row, in ns. A row is a brick, a path or a service. */
#ifndef BRICKD_FOLD_H
#define BRICKD_FOLD_H

#include "brick_shm.h"

struct brick_row {
    uint64_t count;
    double total, self, inclusive, squares, min, max; /* ns */
    uint64_t elements, bytes;
    double flops;
    double histogram[BRICK_BUCKETS]; /* the number of spans in each bucket; a bucket's limits are in ticks of grid_ns */
};

/* One path of one worker. */
struct brick_part {
    const struct brick_summary *summary;
    double tick_ns;  /* 1 for a path with times in ns */
    double given_ns; /* the times in ns that the host gave for paths directly below this one */
    int outer;       /* whether no path above it is in the same row; otherwise, its time is already in the row */
};

enum brick_part_flags { BRICK_PART_OUTER = 1, BRICK_PART_NS = 2 };

/* Returns the time of the path minus the times of the paths directly below it; 0 if the difference is negative. */
double brick_self_ns(const struct brick_part *part);

/* Adds one worker's path to a row. grid_ns: the length of the tick in which the row's buckets are measured. */
void brick_row_add(struct brick_row *row, const struct brick_part *part, double grid_ns);

/* Returns the quantile: the duration that this fraction of the spans does not exceed. It is interpolated within a
 * bucket. Returns 0 for an empty row. */
double brick_row_quantile(const struct brick_row *row, double fraction, double grid_ns);

/* The durations of the spans at one place. These are integers: a sum of rounded numbers might decrease although its
 * parts grow. `count` includes each recursive span. In the sums of times, time that is inside several spans of a
 * recursion counts only once. */
#define BRICK_BOUNDS 16u
struct brick_durations {
    uint64_t count, ticks, ns;
    uint64_t within[BRICK_BOUNDS]; /* each span is counted at the first bound that its bucket does not exceed */
};

/* Adds a summary. bounds: for each bucket, the index of its bound; the last bound has no upper limit. */
void brick_durations_add(struct brick_durations *into, const struct brick_summary *s, uint8_t flags,
                         const uint8_t *bounds);

/* Adds the durations of another worker, whose ticks have the same length. */
void brick_durations_join(struct brick_durations *into, const struct brick_durations *of);

#endif
