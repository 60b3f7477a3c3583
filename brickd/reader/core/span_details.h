/* core/span_details.h - the span records of one segment: their count, the longest span of each path, and the newest
 * spans.
 *
 * The totals of all spans are not here: they are in the worker's summaries. Memory for a path is allocated at its first
 * span.
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
    struct brick_longest **by_path; /* for each path that the header allows; a record of any other path is invalid */
    uint32_t end;                  /* the id of the last path with spans, plus 1 */
    uint32_t paths;                /* how many paths have spans */
    uint64_t spans;                /* the number of valid records */
    uint64_t rejected;             /* the number of invalid records */
    uint64_t skipped;              /* the number of records of unknown kinds */
    uint32_t kept;                 /* how many entries `recent` has; the oldest is first */
    struct brick_span recent[BRICK_RECENT];
};

/* What one lane adds: the spans that a pass reads from its ring. */
struct brick_spans {
    uint64_t sequence; /* the sequence of the last valid record; the next one must be larger */
    uint32_t kept;     /* how many entries `newest` has, which are the last spans before the head, in order */
    struct brick_span newest[BRICK_RECENT];
};

/* Reads `count` ring slots; there are `left` slots up to the head. Returns the number of processed slots, which exceeds
 * `count` if the last record extends past them. Returns 0 if the segment is refused. */
uint64_t brick_details_take(struct brick_details *d, struct brick_spans *lane, const struct brick_record *slots,
                            uint64_t count, uint64_t left);

/* Merges a lane's newest spans into those of the segment. */
void brick_details_keep(struct brick_details *d, const struct brick_spans *lane);
void brick_details_free(struct brick_details *d);
uint64_t brick_details_resident(const struct brick_details *d);

#endif
