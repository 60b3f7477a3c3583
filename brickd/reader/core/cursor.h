/* core/cursor.h - how far a lane has been read: where reading starts, and the tails that tell the writer.
 *
 * Tails in a file are hostile, like everything in it. The cursor of a checkpoint decides
 * where the ring can still hold it; the tail then tells what was read after that
 * checkpoint, and is lost with its reader.
 */
#ifndef BRICKD_CURSOR_H
#define BRICKD_CURSOR_H

#include "brick_shm.h"

struct brick_event_cursor {
    uint64_t position; /* slots */
    uint64_t records;
    uint64_t sequence; /* of the last record; 0 although there were some: unknown */
};

/* What a checkpoint keeps of a lane. */
struct brick_cursor {
    uint64_t span; /* slots */
    struct brick_event_cursor event;
    uint64_t spans_lost; /* details that a lost reader had read */
};

/* Moves a checkpoint's cursor, or zeros, to where reading starts: details that were read and are in no checkpoint are lost. */
void brick_span_start(struct brick_cursor *c, const struct brick_consumer *line, uint64_t head, uint64_t slots);
/* The same for events; zeros count only when `saved` says that they are a checkpoint's. 1: a break, events are missing. */
int brick_event_start(struct brick_cursor *c, const struct brick_consumer *line, const struct brick_lane *lane,
                      uint64_t slots, int saved);

/* The share of its event ring that the writer cannot use before the tail moves. */
double brick_event_held(const struct brick_cursor *c, const struct brick_consumer *line, uint64_t head, uint64_t slots);

/* The line to write, first `halfway`, then `whole` (O12); 0: it is written already. Without `events` only the spans' tail
 * moves. */
int brick_cursor_publish(const struct brick_cursor *c, const struct brick_consumer *line, int events,
                         struct brick_consumer *halfway, struct brick_consumer *whole);

#endif
