/* lifecycle.h - the agent of this process: opens, replaces and closes its segment, also after a fork. */
#ifndef BRICK_LIFECYCLE_H
#define BRICK_LIFECYCLE_H

#include "clock.h"
#include "intern.h"
#include "segment_file.h"

struct brick_thread; /* writer/lane.h: the private half of a lane */

struct brick_agent {
    /* Every record reads these fields. `gate` points to two words on a page that the kernel wipes in a forked child.
     * The first word is an enum brick_state. The second word is 1 while `segment` belongs to this process; in a forked
     * child it is 0 until the child opens its own segment. */
    uint32_t *gate;
    uint32_t clock;
    struct brick_tables tables;
    struct brick_thread *threads; /* one struct per lane */
    struct brick_segment *segment;
    /* A digest of the weights' generation; 0 before the second load, unless the host gives generations. A record made
     * while the generation changes may have the old or the new digest. A forked child inherits the digest together with
     * the weights. */
    uint64_t generation;
    /* Rarely used fields. */
    uint32_t reopening;  /* a thread is opening the next segment now */
    uint32_t closed;     /* recording has ended permanently */
    uint32_t wanted_off; /* recording was turned off by brick_enable(0) or BRICKD=0 */
    uint64_t missed;     /* spans begun while the segment was being opened, which the segment does not yet count */
    struct brick_plan plan;
};
extern BRICK_HIDDEN struct brick_agent brick_agent;

/* Acquire: a thread that gets the segment also sees its mapping and header. */
static inline struct brick_segment *brick_segment_now(void) { return __atomic_load_n(&brick_agent.segment, __ATOMIC_ACQUIRE); }

static inline int brick_agent_owns(void) { return brick_agent.gate[1] != 0; }

/* Opens the segment if needed. Returns 1 if the caller may record. While another thread opens it, counts `spans` spans
 * as not recorded. */
BRICK_HIDDEN int brick_agent_ready(unsigned spans);
/* Returns whether the segment has this service and this worker. NULL or an empty text matches any service or worker. */
BRICK_HIDDEN int brick_segment_is_of(const char *service, const char *worker);
/* The settings of this process's segments. */
static inline const struct brick_header *brick_segment_settings(void) { return &brick_agent.plan.header; }
/* Counts a call that a language binding has refused. */
BRICK_HIDDEN void brick_count_refused(const void *key);
/* Opens another segment to replace a lost one. */
BRICK_HIDDEN void brick_agent_reopen(struct brick_segment *lost);

BRICK_HIDDEN int brick_threads_make(uint32_t lanes);
BRICK_HIDDEN int brick_thread_known(void); /* whether the calling thread has a lane or is taking one */
BRICK_HIDDEN void brick_threads_retire(uint32_t lanes); /* makes every thread run brick_obey at its next record */
BRICK_HIDDEN void brick_threads_move(void);             /* moves lanes without a thread into the current segment */

#endif
