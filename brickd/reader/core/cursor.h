/* core/cursor.h - how far a lane has been read: where that begins, and the tails that say it to the writer.
 *
 * Tails in a file are hostile like all else in it. A cursor from a checkpoint
 * is the truth where the ring can still hold it; the tail then tells what was
 * read after that checkpoint, and is lost with whoever read it.
 */
#ifndef BRICKD_CURSOR_H
#define BRICKD_CURSOR_H

#include "brick_shm.h"

struct brick_event_cursor {
    uint64_t position; /* slots */
    uint64_t records;
    uint64_t sequence; /* of the last record; 0 although some were read: not known */
};

/* What a checkpoint keeps of a lane. */
struct brick_cursor {
    uint64_t span; /* slots */
    struct brick_event_cursor event;
    uint64_t spans_lost; /* details that somebody read, and nobody has */
};

/* Decides where to go on from a checkpoint's cursor, or from zeros: details that
 * a consumer read and that no checkpoint has are lost with it. */
void brick_span_start(struct brick_cursor *c, const struct brick_consumer *line, uint64_t head, uint64_t slots);
/* The same of the events, whose zeros count only when `saved` says that a
 * checkpoint has them. 1: a break, what others read is known to nobody. */
int brick_event_start(struct brick_cursor *c, const struct brick_consumer *line, const struct brick_lane *lane,
                      uint64_t slots, int saved);

/* How much of its event ring the writer will not have back before the tail moves, as a share. */
double brick_event_held(const struct brick_cursor *c, const struct brick_consumer *line, uint64_t head, uint64_t slots);

/* The line as it is to be written, first `halfway` and then `whole` (O12); 0 when
 * it stands there already. Without `events` only the spans' tail moves. */
int brick_cursor_publish(const struct brick_cursor *c, const struct brick_consumer *line, int events,
                         struct brick_consumer *halfway, struct brick_consumer *whole);

#endif
