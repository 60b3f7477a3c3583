/* lifecycle.h - the agent of this process: opened, forked, lost, closed. */
#ifndef BRICK_LIFECYCLE_H
#define BRICK_LIFECYCLE_H

#include "clock.h"
#include "intern.h"
#include "segment_file.h"

struct brick_thread; /* writer/lane.h: a lane's private half */

struct brick_agent {
    /* Read by every record. The gate is an enum brick_state on a page that the kernel wipes in a forked child, where 0
     * means "not my segment". The word after it is 1 while `segment` belongs to this process. */
    uint32_t *gate;
    uint32_t clock;
    struct brick_tables tables;
    struct brick_thread *threads; /* one struct per lane */
    struct brick_segment *segment;
    /* A digest of the weights' generation; 0 before a second load, unless the host names generations. A record made
     * during a change may have the old or the new digest. A forked child inherits the digest with the weights. */
    uint64_t generation;
    /* Cold. */
    uint32_t reopening;  /* a thread is opening the next segment now */
    uint32_t closed;     /* shut down: for good */
    uint32_t wanted_off; /* recording was turned off by brick_enable(0) or BRICKD=0 */
    uint64_t missed;     /* spans begun while the segment was being opened, not yet in its counters */
    struct brick_plan plan;
};
extern BRICK_HIDDEN struct brick_agent brick_agent;

/* Acquire: the thread also sees the segment's mapping and header. */
static inline struct brick_segment *brick_segment_now(void) { return __atomic_load_n(&brick_agent.segment, __ATOMIC_ACQUIRE); }

static inline int brick_agent_owns(void) { return brick_agent.gate[1] != 0; }

/* Opens the segment if needed. Returns 1 if the caller may record. During another thread's opening, counts `spans`. */
BRICK_HIDDEN int brick_agent_ready(unsigned spans);
/* Whether the segment has this service and this worker. NULL or empty: not given. */
BRICK_HIDDEN int brick_segment_is_of(const char *service, const char *worker);
/* The settings of this process's segments. */
static inline const struct brick_header *brick_segment_settings(void) { return &brick_agent.plan.header; }
/* Counts a call that a binding refused. */
BRICK_HIDDEN void brick_count_refused(const void *key);
/* Opens another segment to replace a lost one. */
BRICK_HIDDEN void brick_agent_reopen(struct brick_segment *lost);

BRICK_HIDDEN int brick_threads_make(uint32_t lanes);
BRICK_HIDDEN int brick_thread_known(void); /* the calling thread has a lane, or is about to */
BRICK_HIDDEN void brick_threads_retire(uint32_t lanes); /* every thread's next record goes through brick_obey */
BRICK_HIDDEN void brick_threads_move(void);             /* moves lanes without a thread into the current segment */

#endif
