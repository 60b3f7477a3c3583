/* core/span_details.h - the span records of one segment: their count, the longest span of each path, and the newest
 * spans.
 *
 * Totals of spans are not here, but in the worker's own summaries. A path takes memory at its first span.
 */
#ifndef BRICKD_SPAN_DETAILS_H
#define BRICKD_SPAN_DETAILS_H

#include "segment_copy.h"

#include <stddef.h>

#define BRICK_RECENT 64u

struct brick_longest {
    uint64_t duration, start, step, elements;
    int given; /* 1: the path's times are ns, not ticks */
};

struct brick_details {
    struct brick_reader *reader;
    struct brick_longest **by_path; /* one per path in the header: a record of another path is invalid */
    uint32_t end;                  /* the id of the last path with spans, plus 1 */
    uint32_t paths;                /* the number of paths with spans */
    uint64_t spans;                /* the number of valid records */
    uint64_t rejected;             /* the number of invalid records */
    uint64_t skipped;              /* the number of records of unknown kinds */
    uint32_t kept;                 /* the number of entries of `recent`, oldest first */
    struct brick_span recent[BRICK_RECENT];
};

/* The spans of one lane up to a head. */
struct brick_spans {
    uint64_t sequence; /* the sequence of the last record; sequences increase */
    uint32_t kept;     /* the number of entries of `newest`: the spans in the last slots before the head, in order */
    struct brick_span newest[BRICK_RECENT];
};

/* Reads `count` ring slots; there are `left` slots up to the head. Returns the number of processed slots, which is more
 * than `count` if a record extends past them; 0 if refused. */
uint64_t brick_details_take(struct brick_details *d, struct brick_spans *lane, const struct brick_record *slots,
                            uint64_t count, uint64_t left);

/* Merges a lane's newest spans into those of the segment. */
void brick_details_keep(struct brick_details *d, const struct brick_spans *lane);
void brick_details_free(struct brick_details *d);
uint64_t brick_details_resident(const struct brick_details *d);

#endif
