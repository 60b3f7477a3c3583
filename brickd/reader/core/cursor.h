/* core/cursor.h - how far a lane has been read: the start of reading, and the tails that tell the writer which slots
 * are free.
 *
 * A tail that is read from a segment may have any value, like all data there. Reading starts at the checkpoint's
 * cursor, if its slot is still in the ring. A tail beyond the cursor shows that a reader read more records after its
 * checkpoint; these are lost.
 */
#ifndef BRICKD_CURSOR_H
#define BRICKD_CURSOR_H

#include "brick_shm.h"

struct brick_event_cursor {
    uint64_t position; /* slots */
    uint64_t records;
    uint64_t sequence; /* the sequence of the last record; unknown if it is 0 and records > 0 */
};

/* The part of a lane that a checkpoint stores. */
struct brick_cursor {
    uint64_t span; /* slots */
    struct brick_event_cursor event;
    uint64_t spans_lost; /* details that an earlier reader read and lost */
};

/* Moves the cursor of a checkpoint, or a cursor of zeros, to the start of reading. Skipped details count as lost. */
void brick_span_start(struct brick_cursor *c, const struct brick_consumer *line, uint64_t head, uint64_t slots);
/* Moves a cursor of events in the same way. A cursor of zeros is a real position only if `saved`, that is, if it comes
 * from a checkpoint. Returns 1 if events are missing. */
int brick_event_start(struct brick_cursor *c, const struct brick_consumer *line, const struct brick_lane *lane,
                      uint64_t slots, int saved);

/* Returns the share of the event ring that the writer cannot reuse until the tail moves. */
double brick_event_held(const struct brick_cursor *c, const struct brick_consumer *line, uint64_t head, uint64_t slots);

/* Sets the lines to write: `halfway` first, then `whole` (O12). Returns 0 if the file already has them. Without
 * `events`, only the tail of spans moves. */
int brick_cursor_publish(const struct brick_cursor *c, const struct brick_consumer *line, int events,
                         struct brick_consumer *halfway, struct brick_consumer *whole);

#endif
