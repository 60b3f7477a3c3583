/* pending.h - counts this process's deferred work that no finalize has covered yet, by stream. */
#ifndef BRICK_PENDING_H
#define BRICK_PENDING_H

#include "common.h"

/* A NULL `stream` means every stream. */
BRICK_HIDDEN void brick_pending_add(uint64_t stream);
BRICK_HIDDEN int brick_pending_any(const uint64_t *stream);
BRICK_HIDDEN void brick_pending_cover(const uint64_t *stream);
BRICK_HIDDEN uint64_t brick_pending_sum(void);
BRICK_HIDDEN void brick_pending_forget(void); /* in a forked child: forgets the parent's work */

#endif
