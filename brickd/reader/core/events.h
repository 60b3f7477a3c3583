/* core/events.h - the event records of one pass over a segment. */
#ifndef BRICKD_EVENTS_H
#define BRICKD_EVENTS_H

#include "cursor.h"

#include <stddef.h>

struct brick_events {
    struct brick_record *records; /* of one slot each, of deferred work and sources; in order within each lane */
    size_t count, room;
    struct brick_record *checked; /* the slots of checksums, one after the other; in order within each lane */
    size_t slots, whole, slots_room; /* whole: without those of an incomplete one */
    uint64_t owed;                   /* slots of the last of them that are still to come */
    uint32_t paths, sites; /* as the header says */
    uint64_t rejected; /* invalid records */
    uint64_t skipped;  /* records of unknown kinds */
    uint64_t gaps;     /* numbers without a record: dropped by the writer */
};

/* Takes `count` slots of a ring from the cursor on, of the `left` slots up to its head; stops at `most` records and slots of
 * checksums. 0: no memory. */
int brick_events_take(struct brick_events *e, struct brick_event_cursor *cursor, const struct brick_record *slots,
                      uint64_t count, uint64_t left, size_t most);

/* Appends the slots of the last checksum that follow, of slots that the cursor has passed. */
void brick_events_rest(struct brick_events *e, const struct brick_record *slots, uint64_t count);

#endif
