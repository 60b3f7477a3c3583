/* core/span_details.h - what the span records of one segment come to.
 *
 * How many there were, the longest of each path, and the newest of all: what
 * they add up to, the worker's own summaries say. Memory for a path is taken
 * when its first span comes.
 */
#ifndef BRICKD_SPAN_DETAILS_H
#define BRICKD_SPAN_DETAILS_H

#include "segment_copy.h"

#include <stddef.h>

#define BRICK_RECENT 64u

struct brick_longest {
    uint64_t duration, start, step, elements;
    int given; /* the path's times were given, and are no ticks */
};

struct brick_details {
    struct brick_reader *reader;
    struct brick_longest **by_path; /* as many as the header says that there are: a record of another one cannot be */
    uint32_t end;                  /* above the last path that has any */
    uint32_t paths;                /* that have any */
    uint64_t spans;                /* records that were taken */
    uint64_t rejected;             /* records that could not be */
    uint64_t skipped;              /* records of unknown kinds */
    uint32_t kept;                 /* how many of `recent` there are, oldest first */
    struct brick_span recent[BRICK_RECENT];
};

/* One lane's way to one head. */
struct brick_spans {
    uint64_t sequence; /* of the last record; each is greater than the one before */
    uint32_t kept;     /* those among the last slots before the head, in order */
    struct brick_span newest[BRICK_RECENT];
};

/* Takes `count` slots of a ring, of the `left` that there are up to its head.
 * Returns how many of those are done, which is more than `count` where a record
 * reaches beyond; 0: refused. */
uint64_t brick_details_take(struct brick_details *d, struct brick_spans *lane, const struct brick_record *slots,
                            uint64_t count, uint64_t left);

/* Takes a lane's newest among those of the segment. */
void brick_details_keep(struct brick_details *d, const struct brick_spans *lane);
void brick_details_free(struct brick_details *d);
/* Bytes that it holds. */
uint64_t brick_details_resident(const struct brick_details *d);

#endif
