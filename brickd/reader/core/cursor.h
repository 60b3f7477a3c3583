/* core/cursor.h - how far a lane has been read. Decides which slot is read first, and computes the tails, which tell
 * the writer which slots are free.
 *
 * A tail that is read from a segment may have any value, like all data there. Reading starts at the checkpoint's
 * cursor, if its slot is still in the ring. A tail beyond the cursor shows that a reader freed more records after it
 * saved its checkpoint. These records are lost.
 */
#ifndef BRICKD_CURSOR_H
#define BRICKD_CURSOR_H

#include "brick_shm.h"

struct brick_event_cursor {
    uint64_t position; /* the next slot to read */
    uint64_t records;
    uint64_t sequence; /* the sequence of the last record read; if it is 0 and records > 0, it is unknown */
};

/* The part of a lane that a checkpoint stores. */
struct brick_cursor {
    uint64_t span; /* the next slot of the span ring to read */
    struct brick_event_cursor event;
    uint64_t spans_lost; /* span records that were freed or overwritten before this reader read them */
};

/* Moves the cursor to the first slot of the span ring that can be read. Before the call, the cursor has the values of a
 * checkpoint, or only zeros. Skipped span records count as lost. */
void brick_span_start(struct brick_cursor *c, const struct brick_consumer *line, uint64_t head, uint64_t slots);
/* Does the same for the event ring. `saved`: whether the cursor comes from a checkpoint. If not, it is zeros, which are
 * no position. Returns 1 if events are missing. */
int brick_event_start(struct brick_cursor *c, const struct brick_consumer *line, const struct brick_lane *lane,
                      uint64_t slots, int saved);

/* Returns the share of the event ring that was read, but that the writer may not reuse before the tail moves. */
double brick_event_held(const struct brick_cursor *c, const struct brick_consumer *line, uint64_t head, uint64_t slots);

/* Computes two versions of a consumer line: `halfway` has the new complements but the old positions, `whole` has both.
 * The caller must write `halfway` first and `whole` second (O12 in brick_shm.h). Returns 0 if the file already has
 * these values. If `events` is 0, only the tail of the span ring moves. */
int brick_cursor_publish(const struct brick_cursor *c, const struct brick_consumer *line, int events,
                         struct brick_consumer *halfway, struct brick_consumer *whole);

#endif
