/* core/drain_ring.h - reads one ring of one lane in a pass.
 *
 * Slots are copied once, into the spool if it has room, and validated there. Each function returns 0 when it refuses
 * the segment.
 */
#ifndef BRICKD_DRAIN_RING_H
#define BRICKD_DRAIN_RING_H

#include "drain.h"

/* The share of an event ring reserved for new events; the rest may hold events that wait for a checkpoint. */
#define BRICK_FRESH_PART 0.5

int brick_drain_ring(struct brick_drain *d, uint32_t lane, uint32_t which);
/* Reads the record above each head of a dead writer's lane, if it is complete. */
int brick_drain_salvage(struct brick_drain *d, uint32_t lane);

#endif
