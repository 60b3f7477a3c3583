/* core/recording_tap.h - copies the ring slots that one drain reads into a spool, unchanged.
 *
 * The drain requests room and copies slots there. Each run of slots of one ring becomes one or more pieces. If there is
 * no room, the drain copies the slots to its own memory and counts them as refused.
 */
#ifndef BRICKD_RECORDING_TAP_H
#define BRICKD_RECORDING_TAP_H

#include "record_queue.h"

/* The limit of slots in one piece. */
#define BRICK_TRACK_SLOTS 16384u

struct brick_track {
    struct brick_spool *spool; /* NULL: nothing is recorded */
    uint32_t worker;           /* the worker's number in the recording */
    uint8_t *place;            /* the start of the open piece; NULL: no piece is open */
    uint64_t slots;            /* the number of slots in the open piece */
};

/* Consecutive slots of one ring. */
struct brick_stretch {
    uint32_t lane, ring;
    uint64_t first, count;
    uint64_t inside; /* how many slots at the start belong to an earlier record */
};

/* Returns where to copy these slots: they continue the open piece or begin a piece. Returns NULL if there is no
 * room. */
struct brick_record *brick_track_room(struct brick_track *t, const struct brick_stretch *s);
/* Keeps `count` slots that were copied to the place that brick_track_room returned. */
void brick_track_took(struct brick_track *t, uint64_t count);
/* Counts slots for which there was no room. */
void brick_track_lost(struct brick_track *t, uint64_t count);
/* Publishes the open piece. */
void brick_track_end(struct brick_track *t);

#endif
