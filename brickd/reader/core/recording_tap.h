/* core/recording_tap.h - what one drain puts into a spool: the slots that it copies, as they are in the rings.
 *
 * The drain asks for room and copies slots there. Each run of slots of one ring is one
 * piece or several. Without room slots are counted, and the drain copies them elsewhere.
 */
#ifndef BRICKD_RECORDING_TAP_H
#define BRICKD_RECORDING_TAP_H

#include "record_queue.h"

/* Slots of one piece at most. */
#define BRICK_TRACK_SLOTS 16384u

struct brick_track {
    struct brick_spool *spool; /* NULL: nothing is recorded */
    uint32_t worker;           /* its number in the recording */
    uint8_t *place;            /* of the open piece; NULL: none */
    uint64_t slots;            /* in it */
};

/* Slots of one ring. */
struct brick_stretch {
    uint32_t lane, ring;
    uint64_t first, count;
    uint64_t inside; /* so many of these belong to a record that began before */
};

/* Where to copy these slots: after those of the last call, which are of the same ring, or after an end. NULL: elsewhere. */
struct brick_record *brick_track_room(struct brick_track *t, const struct brick_stretch *s);
/* Keeps so many slots that were copied there. */
void brick_track_took(struct brick_track *t, uint64_t count);
/* Counts slots that were copied elsewhere. */
void brick_track_lost(struct brick_track *t, uint64_t count);
/* Publishes the open piece. */
void brick_track_end(struct brick_track *t);

#endif
