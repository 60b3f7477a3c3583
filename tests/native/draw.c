/* draw.c - which epoch holds, for tests of the second at which a word ends. */
#include "brick_shm.h"

uint32_t epoch_of(uint64_t word, uint64_t second);
uint32_t epoch_of(uint64_t word, uint64_t second) { return brick_epoch_of(word, second); }
