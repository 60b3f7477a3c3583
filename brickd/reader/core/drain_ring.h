/* core/drain_ring.h - reads one ring of one lane in a pass.
 *
 * Each slot is copied once, into the spool if the spool has room, and the copy is validated. Each function returns 0
 * when it refuses the segment.
 */
#ifndef BRICKD_DRAIN_RING_H
#define BRICKD_DRAIN_RING_H

#include "drain.h"

/* The share of an event ring that is reserved for new events. The rest may hold events that were read, but that are in
 * no checkpoint yet. */
#define BRICK_FRESH_PART 0.5

int brick_drain_ring(struct brick_drain *d, uint32_t lane, uint32_t which);
/* A writer may die after it completed a record and before it moved the head. Reads such a record from each ring of the
 * lane. */
int brick_drain_salvage(struct brick_drain *d, uint32_t lane);

#endif
