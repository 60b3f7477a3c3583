/* python/weights.h - the slices of a model's weights, as the ends of steps call them. */
#ifndef BRICK_CORE_WEIGHTS_H
#define BRICK_CORE_WEIGHTS_H

/* Only where weights are watched; -1 with an exception set, for an interrupt. */
int core_weights_turn(void);

#endif
