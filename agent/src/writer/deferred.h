/* deferred.h - deferred work that no finalize has covered yet. */
#ifndef BRICK_DEFERRED_H
#define BRICK_DEFERRED_H

#include "common.h"

/* As brick_defer, of work that began at a time of CLOCK_MONOTONIC_RAW; NULL: now. */
BRICK_HIDDEN unsigned brick_defer_since(uint32_t brick, const void *key, const uint64_t *start_ns, uint64_t stream,
                                        const uint64_t *step, uint64_t elements, uint64_t bytes, uint64_t *id);

/* A stream, or NULL for every stream. */
BRICK_HIDDEN void brick_pending_add(uint64_t stream);
BRICK_HIDDEN int brick_pending_any(const uint64_t *stream);
BRICK_HIDDEN void brick_pending_cover(const uint64_t *stream);
BRICK_HIDDEN void brick_pending_forget(void); /* in a forked child: its parent's */

#endif
