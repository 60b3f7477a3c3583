/* core/cursor.h - how far a lane has been read: where reading starts, and the tails for the writer.
 *
 * Tails in a file are hostile, like everything in it. A checkpoint's cursor decides while the ring still holds it. A tail
 * beyond it shows what was read after the checkpoint; those records are lost with their reader.
 */
#ifndef BRICKD_CURSOR_H
#define BRICKD_CURSOR_H

#include "brick_shm.h"

struct brick_event_cursor {
    uint64_t position; /* slots */
    uint64_t records;
    uint64_t sequence; /* of the last record; 0 with records > 0: unknown */
};

/* The part of a lane that a checkpoint stores. */
struct brick_cursor {
    uint64_t span; /* slots */
    struct brick_event_cursor event;
    uint64_t spans_lost; /* details that an earlier reader read and lost */
};

/* Moves a checkpoint's cursor, or zeros, to where reading starts. The details that it skips are lost. */
void brick_span_start(struct brick_cursor *c, const struct brick_consumer *line, uint64_t head, uint64_t slots);
/* The same for events. Zeros count only if `saved`: they are a checkpoint's. Returns 1 for a break: events are missing. */
int brick_event_start(struct brick_cursor *c, const struct brick_consumer *line, const struct brick_lane *lane,
                      uint64_t slots, int saved);

/* The share of the event ring that the writer cannot reuse until the tail moves. */
double brick_event_held(const struct brick_cursor *c, const struct brick_consumer *line, uint64_t head, uint64_t slots);

/* Sets the line to write: `halfway` first, then `whole` (O12). Returns 0 if it is written already. Without `events` only
 * the spans' tail moves. */
int brick_cursor_publish(const struct brick_cursor *c, const struct brick_consumer *line, int events,
                         struct brick_consumer *halfway, struct brick_consumer *whole);

#endif
