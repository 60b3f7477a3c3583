/* core/recording_tap.h - copies the ring slots that one drain reads into a spool, unchanged.
 *
 * The drain requests room and copies slots there. Each run of slots of one ring becomes one or more pieces. Without
 * room, the drain copies the slots elsewhere and counts them.
 */
#ifndef BRICKD_RECORDING_TAP_H
#define BRICKD_RECORDING_TAP_H

#include "record_queue.h"

/* The most slots in one piece. */
#define BRICK_TRACK_SLOTS 16384u

struct brick_track {
    struct brick_spool *spool; /* NULL: nothing is recorded */
    uint32_t worker;           /* the worker's number in the recording */
    uint8_t *place;            /* start of the open piece; NULL: none */
    uint64_t slots;            /* slots in the open piece */
};

/* Consecutive slots of one ring. */
struct brick_stretch {
    uint32_t lane, ring;
    uint64_t first, count;
    uint64_t inside; /* the number of them that belong to an earlier record */
};

/* Returns where to copy these slots; they continue the open piece or begin one. NULL: no room, copy elsewhere. */
struct brick_record *brick_track_room(struct brick_track *t, const struct brick_stretch *s);
/* Keeps `count` slots that were copied there. */
void brick_track_took(struct brick_track *t, uint64_t count);
/* Counts slots that were copied elsewhere. */
void brick_track_lost(struct brick_track *t, uint64_t count);
/* Publishes the open piece. */
void brick_track_end(struct brick_track *t);

#endif
