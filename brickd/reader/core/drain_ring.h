/* core/drain_ring.h - what a pass takes out of one ring of one lane.
 *
 * The slots are copied once, into the spool where there is one that has room,
 * and judged where they lie then. Each function returns 0 where the
 * segment is refused.
 */
#ifndef BRICKD_DRAIN_RING_H
#define BRICKD_DRAIN_RING_H

#include "drain.h"

/* What is new in an event ring has this part of it: the rest may be held until a checkpoint has it. */
#define BRICK_FRESH_PART 0.5

int brick_drain_spans(struct brick_drain *d, uint32_t lane);
int brick_drain_events(struct brick_drain *d, uint32_t lane);
/* Of a lane whose writer is dead: the record above each head, where it is whole. */
int brick_drain_salvage(struct brick_drain *d, uint32_t lane);

#endif
