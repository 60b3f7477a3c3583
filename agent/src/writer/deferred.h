/* deferred.h - deferred work that began some time ago. */
#ifndef BRICK_DEFERRED_H
#define BRICK_DEFERRED_H

#include "common.h"

/* Like brick_defer, for work that began at a given time of CLOCK_MONOTONIC_RAW; NULL: now. */
BRICK_HIDDEN unsigned brick_defer_since(uint32_t brick, const void *key, const uint64_t *start_ns, uint64_t stream,
                                        const uint64_t *step, uint64_t elements, uint64_t bytes, uint64_t *id);

#endif
