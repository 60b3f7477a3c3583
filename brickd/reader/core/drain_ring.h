/* core/drain_ring.h - what a pass takes from one ring of one lane.
 *
 * Slots are copied once, into the spool if there is one with room, and validated there.
 * Each function returns 0 when it refuses the segment.
 */
#ifndef BRICKD_DRAIN_RING_H
#define BRICKD_DRAIN_RING_H

#include "drain.h"

/* New events have this part of their ring: the rest may wait for a checkpoint. */
#define BRICK_FRESH_PART 0.5

int brick_drain_ring(struct brick_drain *d, uint32_t lane, uint32_t which);
/* Takes the record above each head of a lane whose writer is dead, if it is whole. */
int brick_drain_salvage(struct brick_drain *d, uint32_t lane);

#endif
