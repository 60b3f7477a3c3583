/* core/recording_tap.h - copies the ring slots that one drain reads into a spool, unchanged.
 *
 * The drain asks for room in the spool and copies slots there. Consecutive slots of one ring become one or more pieces.
 * If the spool has no room, the drain copies the slots to its own memory, and the recording counts them as refused.
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

/* Returns the place in the spool for these slots. They continue the open piece, or begin a new piece. Returns NULL if
 * there is no room. */
struct brick_record *brick_track_room(struct brick_track *t, const struct brick_stretch *s);
/* Adds to the open piece the first `count` slots at the place that brick_track_room returned. */
void brick_track_took(struct brick_track *t, uint64_t count);
/* Counts slots for which there was no room. */
void brick_track_lost(struct brick_track *t, uint64_t count);
/* Publishes the open piece, so that the consumer can write it. */
void brick_track_end(struct brick_track *t);

#endif
