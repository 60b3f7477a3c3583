/* bucket.c - the format's histogram, for tests of its bucket boundaries. */
#include "brick_shm.h"

uint32_t bucket(uint64_t ticks);
uint32_t bucket(uint64_t ticks) { return brick_bucket(ticks); }
