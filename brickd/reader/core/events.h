/* core/events.h - the event records of one pass over a segment. */
#ifndef BRICKD_EVENTS_H
#define BRICKD_EVENTS_H

#include "cursor.h"

#include <stddef.h>

struct brick_events {
    struct brick_record *records; /* records of one slot (deferred work, sources), in order within a lane */
    size_t count, room;
    struct brick_record *checked; /* checksums, slot after slot, in order within a lane */
    size_t slots, whole, slots_room; /* whole: the slots of complete checksums */
    uint64_t owed;                   /* the number of missing slots of the last checksum */
    uint32_t paths, sites; /* the counts in the header */
    uint64_t rejected; /* invalid records */
    uint64_t skipped;  /* records of unknown kinds */
    uint64_t gaps;     /* sequence numbers of dropped records */
};

/* Reads `count` ring slots from the cursor on; there are `left` slots up to the head. Stops after `most` records and
 * checksum slots. Returns 0 if out of memory. */
int brick_events_take(struct brick_events *e, struct brick_event_cursor *cursor, const struct brick_record *slots,
                      uint64_t count, uint64_t left, size_t most);

/* Appends the missing slots of the last checksum. The cursor has already passed these slots. */
void brick_events_rest(struct brick_events *e, const struct brick_record *slots, uint64_t count);

#endif
