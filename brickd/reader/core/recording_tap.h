/* core/recording_tap.h - what one drain puts into a spool: the slots that it copies, as they stand in the rings.
 *
 * Room is asked for before slots are copied, and they are copied there. Each
 * run of slots of one ring is a piece, or several. What finds no room is
 * counted; the drain never learns of it but by that the slots go elsewhere.
 */
#ifndef BRICKD_RECORDING_TAP_H
#define BRICKD_RECORDING_TAP_H

#include "record_queue.h"

/* Slots of one piece at most. */
#define BRICK_TRACK_SLOTS 16384u

struct brick_track {
    struct brick_spool *spool; /* NULL: nothing is recorded */
    uint32_t worker;           /* its number in the recording */
    uint8_t *place;            /* of the open piece; NULL: none is */
    uint64_t slots;            /* that are in it */
};

/* Slots of one ring. */
struct brick_stretch {
    uint32_t lane, ring;
    uint64_t first, count;
    uint64_t inside; /* so many of them belong to a record that began before */
};

/* Where these slots are to be copied: behind those of the last call, of the same ring, or after an end. NULL: elsewhere. */
struct brick_record *brick_track_room(struct brick_track *t, const struct brick_stretch *s);
/* So many of them were copied there, and stay. */
void brick_track_took(struct brick_track *t, uint64_t count);
/* So many were copied elsewhere. */
void brick_track_lost(struct brick_track *t, uint64_t count);
/* What is open is whole. */
void brick_track_end(struct brick_track *t);

#endif
