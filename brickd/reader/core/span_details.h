/* core/span_details.h - the span records of one segment: their number, the longest of each path, and the newest ones.
 *
 * The sums of spans are in the worker's own summaries. A path takes memory at its first span.
 */
#ifndef BRICKD_SPAN_DETAILS_H
#define BRICKD_SPAN_DETAILS_H

#include "segment_copy.h"

#include <stddef.h>

#define BRICK_RECENT 64u

struct brick_longest {
    uint64_t duration, start, step, elements;
    int given; /* the path's times are ns, not ticks */
};

struct brick_details {
    struct brick_reader *reader;
    struct brick_longest **by_path; /* one per path in the header: a record of another path is invalid */
    uint32_t end;                  /* the number after the last path with spans */
    uint32_t paths;                /* paths with spans */
    uint64_t spans;                /* valid records */
    uint64_t rejected;             /* invalid records */
    uint64_t skipped;              /* records of unknown kinds */
    uint32_t kept;                 /* entries of `recent`, oldest first */
    struct brick_span recent[BRICK_RECENT];
};

/* The spans of one lane up to one head. */
struct brick_spans {
    uint64_t sequence; /* the sequence of the last record; each is greater than the one before */
    uint32_t kept;     /* entries of `newest`: the spans in the last slots before the head, in order */
    struct brick_span newest[BRICK_RECENT];
};

/* Reads `count` ring slots; `left` slots remain up to the head. Returns the number of processed slots, more than
 * `count` if a record extends past them; 0 if refused. */
uint64_t brick_details_take(struct brick_details *d, struct brick_spans *lane, const struct brick_record *slots,
                            uint64_t count, uint64_t left);

/* Merges a lane's newest spans into those of the segment. */
void brick_details_keep(struct brick_details *d, const struct brick_spans *lane);
void brick_details_free(struct brick_details *d);
uint64_t brick_details_resident(const struct brick_details *d);

#endif
