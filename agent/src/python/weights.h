/* python/weights.h - reads a slice of a model's weights at the end of a step. */
#ifndef BRICK_CORE_WEIGHTS_H
#define BRICK_CORE_WEIGHTS_H

/* Call this only while weights are watched. Returns 0, or -1 with an interrupt set. */
int core_weights_turn(void);

#endif
