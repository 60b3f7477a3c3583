/* bucket.c - the histogram of the format, for tests of the boundaries of its buckets. */
#include "brick_shm.h"

uint32_t bucket(uint64_t ticks);
uint32_t bucket(uint64_t ticks) { return brick_bucket(ticks); }
