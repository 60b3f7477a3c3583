/* core/events.h - the event records that one pass over a segment brought. */
#ifndef BRICKD_EVENTS_H
#define BRICKD_EVENTS_H

#include "cursor.h"

#include <stddef.h>

struct brick_events {
    struct brick_record *records; /* of one slot each, of deferred work and sources; in order within each lane */
    size_t count, room;
    struct brick_record *checked; /* the slots of whole checksums, one behind the other; in order within each lane */
    size_t slots, whole, slots_room; /* whole: without those of one that was cut */
    uint64_t owed;                   /* slots of the last of them that are still to come */
    uint32_t paths, sites; /* as the header says */
    uint64_t rejected; /* records that could not be */
    uint64_t skipped;  /* records of unknown kinds */
    uint64_t gaps;     /* numbers that no record had: dropped by the writer */
};

/* Takes `count` slots of a ring from the cursor on, of the `left` that there are
 * up to its head; stops where `most` records and slots of checksums are there.
 * 0: there is no memory. */
int brick_events_take(struct brick_events *e, struct brick_event_cursor *cursor, const struct brick_record *slots,
                      uint64_t count, uint64_t left, size_t most);

/* Of slots that the cursor has passed: those that belong to the last checksum. */
void brick_events_rest(struct brick_events *e, const struct brick_record *slots, uint64_t count);

#endif
