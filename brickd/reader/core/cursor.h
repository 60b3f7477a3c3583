/* core/cursor.h - how far a lane has been read: where reading starts, and the tails for the writer.
 *
 * Tails in a file are hostile, like all of its data. A checkpoint's cursor decides if its slot is still in the ring. A
 * tail beyond it shows that records were read after the checkpoint; these are lost with their reader.
 */
#ifndef BRICKD_CURSOR_H
#define BRICKD_CURSOR_H

#include "brick_shm.h"

struct brick_event_cursor {
    uint64_t position; /* slots */
    uint64_t records;
    uint64_t sequence; /* sequence of the last record; 0 with records > 0: unknown */
};

/* The part of a lane that a checkpoint stores. */
struct brick_cursor {
    uint64_t span; /* slots */
    struct brick_event_cursor event;
    uint64_t spans_lost; /* details that an earlier reader read and lost */
};

/* Moves a checkpoint's cursor, or zeros, to the start of reading. Skipped details are lost. */
void brick_span_start(struct brick_cursor *c, const struct brick_consumer *line, uint64_t head, uint64_t slots);
/* Does the same for events. Zeros count only if `saved`, that is, from a checkpoint. Returns 1 if events are
 * missing. */
int brick_event_start(struct brick_cursor *c, const struct brick_consumer *line, const struct brick_lane *lane,
                      uint64_t slots, int saved);

/* The share of the event ring that the writer cannot reuse until the tail moves. */
double brick_event_held(const struct brick_cursor *c, const struct brick_consumer *line, uint64_t head, uint64_t slots);

/* Sets the lines to write: `halfway` first, then `whole` (O12). Returns 0 if it is already written. Without `events`,
 * only the spans' tail moves. */
int brick_cursor_publish(const struct brick_cursor *c, const struct brick_consumer *line, int events,
                         struct brick_consumer *halfway, struct brick_consumer *whole);

#endif
