/* core/events.h - the event records of one pass over a segment. */
#ifndef BRICKD_EVENTS_H
#define BRICKD_EVENTS_H

#include "cursor.h"

#include <stddef.h>

struct brick_events {
    struct brick_record *records; /* records of one slot: deferred work and sources, in order within a lane */
    size_t count, room;
    struct brick_record *checked; /* checksums, slot after slot, in order within a lane */
    size_t slots, whole, slots_room; /* the number of complete checksums' slots */
    uint64_t owed;                   /* slots of the last checksum that are still to come */
    uint32_t paths, sites; /* from the header */
    uint64_t rejected; /* invalid records */
    uint64_t skipped;  /* records of unknown kinds */
    uint64_t gaps;     /* sequence numbers of dropped records */
};

/* Reads `count` ring slots from the cursor on; `left` slots remain up to the head. Stops at `most` records and checksum
 * slots. Returns 0 if out of memory. */
int brick_events_take(struct brick_events *e, struct brick_event_cursor *cursor, const struct brick_record *slots,
                      uint64_t count, uint64_t left, size_t most);

/* Appends the remaining slots of the last checksum; the cursor has already passed them. */
void brick_events_rest(struct brick_events *e, const struct brick_record *slots, uint64_t count);

#endif
