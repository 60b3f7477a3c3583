/* core/span_rows.h - turns the slots of a recorded span ring into rows. A row has the times of a span in ns, its
 * amounts, and how many records were lost before it.
 *
 * A recorded slot may have any value, so every value is validated here. All exports and the table of spans use these
 * rows.
 */
#ifndef BRICKD_SPAN_ROWS_H
#define BRICKD_SPAN_ROWS_H

#include "brick_shm.h"

#include <stddef.h>
#include <stdint.h>

enum brick_row_kind {
    BRICK_ROW_SPAN,     /* timed by the worker's clock */
    BRICK_ROW_STEP,     /* a step of an engine, timed by the worker's clock */
    BRICK_ROW_GIVEN,    /* the host gave the duration */
    BRICK_ROW_MEASURED, /* deferred work whose time a device measured */
    BRICK_ROW_BOUNDED,  /* deferred work of which only an upper bound of the time is known */
    BRICK_ROW_KINDS
};

struct brick_span_row {
    int64_t begin_ns;    /* on the CLOCK_MONOTONIC_RAW of the recorded machine */
    int64_t duration_ns; /* at least 0 */
    int64_t self_ns;     /* the duration minus those of its direct children, at least 0 */
    uint64_t step;       /* 0 means no step or step 0 */
    uint64_t elements, bytes;
    uint64_t rows;       /* how many rows a step has; 0 in rows of other kinds */
    uint32_t path;       /* the id of its path; if the path is not known, the number of known paths */
    uint32_t lost;       /* how many records this ring lost since the previous row; UINT32_MAX: this many or more */
    uint32_t kind;       /* enum brick_row_kind */
    uint32_t track;      /* set by brick_tracks_place */
};
BRICK_ASSERT(sizeof(struct brick_span_row) == 72, "brickd/export/span_rows.py has the same layout");

/* The value of two clocks at one moment, and the length of a tick until the next such pair. */
struct brick_knot {
    int64_t ticks, ns;
    double tick_ns;
};
BRICK_ASSERT(sizeof(struct brick_knot) == 24, "brickd/export/clock_map.py has the same layout");

/* Converts ticks to ns by linear interpolation between the pairs. Outside of the pairs, it uses the first or the last
 * tick length. If the ticks increase, the result never decreases, so spans that nest in ticks also nest in ns. There
 * must be at least one pair, and the pairs must be sorted by ticks. */
int64_t brick_knots_ns(const struct brick_knot *knots, size_t count, uint64_t ticks, size_t *hint);

enum {
    BRICK_PATH_GIVEN = 1,    /* durations on this path are in ns */
    BRICK_PATH_LEFT_OUT = 2, /* spans on this path make no rows */
};

struct brick_row_rules {
    const uint8_t *paths; /* flags: one element for each known path, and a last one for all unknown paths */
    uint32_t known;
    const struct brick_knot *knots;
    size_t knot_count;
    int64_t longer_ns; /* shorter spans make no rows */
    int has_step;
    uint64_t step; /* if has_step: spans of other steps make no rows */
};

struct brick_row_state {
    uint64_t sequence; /* the sequence of the last valid record; 0: there was none yet */
    uint64_t lost;     /* how many records were lost since the last row */
    uint64_t missing, rejected, skipped; /* counts of the last call: records lost, invalid, of other kinds */
};

/* Appends the rows of these slots to `to`, which has room for `count` rows. Returns their number. */
size_t brick_span_rows(const struct brick_record *slots, size_t count, const struct brick_row_rules *rules,
                       struct brick_row_state *state, struct brick_span_row *to);

/* Copies the records of deferred work from slots of an event ring, from slot `at` on. Returns their number. */
size_t brick_deferred_slots(const struct brick_record *slots, size_t at, size_t count, struct brick_row_state *state,
                            struct brick_record *to);

#endif
