/* core/events.h - the event records of one pass over a segment. */
#ifndef BRICKD_EVENTS_H
#define BRICKD_EVENTS_H

#include "cursor.h"

#include <stddef.h>

struct brick_events {
    struct brick_record *records; /* records of one slot (deferred work, sources), in order within a lane */
    size_t count, room;
    struct brick_record *checked; /* all slots of the checksums, in order within a lane */
    size_t slots, whole, slots_room; /* whole: how many of these slots belong to complete checksums */
    uint64_t owed;                   /* how many slots of the last checksum are not copied yet */
    uint32_t paths, sites; /* the counts of paths and sites in the header */
    uint64_t rejected; /* the number of invalid records */
    uint64_t skipped;  /* the number of records of unknown kinds */
    uint64_t gaps;     /* the number of dropped records, known from missing sequence numbers */
};

/* Reads `count` ring slots from the cursor on; there are `left` slots up to the head. Stops when `e` has `most` records
 * and checksum slots. Returns 0 if out of memory. */
int brick_events_take(struct brick_events *e, struct brick_event_cursor *cursor, const struct brick_record *slots,
                      uint64_t count, uint64_t left, size_t most);

/* Appends the slots that the last checksum still lacks. The cursor has already passed these slots. */
void brick_events_rest(struct brick_events *e, const struct brick_record *slots, uint64_t count);

#endif
