/* writer/canary.h - orders and results of canaries. Only this package runs canaries, so no host includes this file. */
#ifndef BRICK_WRITER_CANARY_H
#define BRICK_WRITER_CANARY_H

#include "common.h"

/* Returns the word of BRICK_CONTROL_CANARY; 0: no order. */
uint64_t brick_canary_order(void);

/* Writes the result of a canary, like brick_source_tell. A text of more than 64 KiB is counted as dropped. */
unsigned brick_canary_tell(const char *text, size_t length, const void *key, uint64_t *piece);

#endif
