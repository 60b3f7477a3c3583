/* core/span_rows.h - turns the slots of a recorded span ring into rows: times in ns, amounts, counted losses.
 *
 * A recorded slot may have any value, so every value is validated here. Every export and the table of spans are made
 * of these rows.
 */
#ifndef BRICKD_SPAN_ROWS_H
#define BRICKD_SPAN_ROWS_H

#include "brick_shm.h"

#include <stddef.h>
#include <stdint.h>

enum brick_row_kind {
    BRICK_ROW_SPAN,     /* timed by the worker's clock */
    BRICK_ROW_STEP,     /* timed by the worker's clock, and a step of an engine */
    BRICK_ROW_GIVEN,    /* the host gave the duration */
    BRICK_ROW_MEASURED, /* deferred work, with the time that a device measured */
    BRICK_ROW_BOUNDED,  /* deferred work, with a bound of its time */
    BRICK_ROW_KINDS
};

struct brick_span_row {
    int64_t begin_ns;    /* CLOCK_MONOTONIC_RAW of the recorded machine */
    int64_t duration_ns; /* at least 0 */
    int64_t self_ns;     /* the duration without direct children, at least 0 */
    uint64_t step;       /* 0: none, or step 0 */
    uint64_t elements, bytes;
    uint64_t rows;       /* of a step; 0 in other kinds */
    uint32_t path;       /* the id of a known path; otherwise the count of known paths */
    uint32_t lost;       /* records lost in this ring since the previous row; the largest value: this many or more */
    uint32_t kind;       /* enum brick_row_kind */
    uint32_t track;      /* set by brick_tracks_place */
};
BRICK_ASSERT(sizeof(struct brick_span_row) == 72, "brickd/export/span_rows.py has the same layout");

/* A pair of clock values, and the length of a tick from here to the next pair. */
struct brick_knot {
    int64_t ticks, ns;
    double tick_ns;
};
BRICK_ASSERT(sizeof(struct brick_knot) == 24, "brickd/export/clock_map.py writes them");

/* Converts ticks: linear between the pairs, with the first and the last slope outside. The result never decreases if
 * the ticks increase, so spans that nest in ticks also nest in ns. Needs at least one pair, sorted by ticks. */
int64_t brick_knots_ns(const struct brick_knot *knots, size_t count, uint64_t ticks, size_t *hint);

enum {
    BRICK_PATH_GIVEN = 1,    /* durations on this path are in ns */
    BRICK_PATH_LEFT_OUT = 2, /* a filter excludes this path */
};

struct brick_row_rules {
    const uint8_t *paths; /* flags for each known path, then for all unknown ones */
    uint32_t known;
    const struct brick_knot *knots;
    size_t knot_count;
    int64_t longer_ns; /* shorter spans are left out */
    int has_step;
    uint64_t step; /* with has_step: other steps are left out */
};

struct brick_row_state {
    uint64_t sequence; /* the last valid sequence; 0: none yet */
    uint64_t lost;     /* records lost since the last row */
    uint64_t missing, rejected, skipped; /* counted by each call: lost records, invalid ones, those of other kinds */
};

/* Appends the rows of these slots to `to`, which has room for `count` rows. Returns their number. */
size_t brick_span_rows(const struct brick_record *slots, size_t count, const struct brick_row_rules *rules,
                       struct brick_row_state *state, struct brick_span_row *to);

/* Copies the records of deferred work from slots of an event ring, from slot `at` on. Returns their number. */
size_t brick_deferred_slots(const struct brick_record *slots, size_t at, size_t count, struct brick_row_state *state,
                            struct brick_record *to);

#endif
