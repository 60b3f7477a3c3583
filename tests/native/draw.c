/* draw.c - tells which epoch is valid. The tests check the moment at which the word of an epoch expires. */
#include "brick_shm.h"

uint32_t epoch_of(uint64_t word, uint64_t second);
uint32_t epoch_of(uint64_t word, uint64_t second) { return brick_epoch_of(word, second); }
