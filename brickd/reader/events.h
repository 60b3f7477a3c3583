/* events.h - the event records that one pass over a segment brought. */
#ifndef BRICKD_EVENTS_H
#define BRICKD_EVENTS_H

#include "cursor.h"

#include <stddef.h>

struct brick_events {
    struct brick_record *records; /* of one slot each, of deferred work; in order within each lane */
    size_t count, room;
    uint32_t paths, sites; /* as the header says */
    uint64_t rejected; /* records that could not be */
    uint64_t skipped;  /* records of unknown kinds */
    uint64_t gaps;     /* numbers that no record had: dropped by the writer */
};

/* Takes `count` slots of a ring from the cursor on, of the `left` that there are
 * up to its head; stops where `most` records are there. 0: there is no memory.
 * Checksums are judged and passed over: nobody compares them yet. */
int brick_events_take(struct brick_events *e, struct brick_event_cursor *cursor, const struct brick_record *slots,
                      uint64_t count, uint64_t left, size_t most);

#endif
