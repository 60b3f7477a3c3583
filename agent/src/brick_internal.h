/* brick_internal.h - what the writer's own files share. Nothing here is public.
 *
 * One process has one agent. Its state is private memory; what others may see
 * is in the segment. The arrows between the files:
 *
 *   brick_span.c (spans), brick_mark.c (marks), brick_event.c, brick_checked.c, brick_weights.c, brick_source.c (events)
 *        -> brick_lane.c (threads), brick_pending.c
 *        -> brick_agent.c (life: open, fork, close) -> brick_intern.c (names, paths, sites), brick_secret.c
 *        -> brick_removed.c (dead segments) -> brick_segment.c (the file) -> brick_memory.c, brick_clock.c
 */
#ifndef BRICK_INTERNAL_H
#define BRICK_INTERNAL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* an engine's build need not know */
#endif

#include "brick_agent.h"
#include "brick_shm.h"

#include <sys/types.h>
#include <time.h>

#define BRICK_LIKELY(x) __builtin_expect(!!(x), 1)
#define BRICK_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define BRICK_HIDDEN __attribute__((visibility("hidden")))
#define BRICK_ALWAYS static inline __attribute__((always_inline)) /* on the record path, though called from several places */

/* Named steps of each write. A build for tests kills the process at one. */
#ifdef BRICK_TEST_POINTS
extern void (*brick_test_point)(const char *name);
#define BRICK_POINT(name) (brick_test_point ? brick_test_point(name) : (void)0)
#else
#define BRICK_POINT(name) ((void)0)
#endif

/* What was in vain is tried again the first, second, fourth, eighth ... time that it is wanted. */
static inline int brick_seldom(uint64_t time) { return (time & (time - 1)) == 0; }

/* ---- clock ------------------------------------------------------------- */

static inline uint64_t brick_clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t brick_ticks(uint32_t clock)
{
#if defined(__x86_64__)
    if (BRICK_LIKELY(clock == BRICK_CLOCK_TSC))
        return __builtin_ia32_rdtsc(); /* __rdtsc, without a header that takes longer to read than all the rest */
#elif defined(__aarch64__)
    if (BRICK_LIKELY(clock == BRICK_CLOCK_CNTVCT)) {
        uint64_t v;
        __asm__ volatile("mrs %0, cntvct_el0" : "=r"(v));
        return v;
    }
#endif
    (void)clock;
    return brick_clock_ns(CLOCK_MONOTONIC_RAW);
}

/* The best clock that `wish` allows; clocksource: the file in which the kernel names its own. */
BRICK_HIDDEN uint32_t brick_clock_choose(const char *wish, const char *clocksource);
/* Ticks and CLOCK_MONOTONIC_RAW of one moment. */
BRICK_HIDDEN void brick_clock_pair(uint32_t clock, uint64_t *ticks, uint64_t *ns);
/* The length of a segment's tick, by its first pair and one of now; 0 where that cannot be known. */
BRICK_HIDDEN double brick_clock_tick_ns(const struct brick_header *h);

/* ---- the file ---------------------------------------------------------- */

struct brick_segment {
    int fd;
    dev_t device;
    ino_t inode;
    char name[96];
    uint8_t *base;
    struct brick_header *header;
    struct brick_layout layout;
    uint64_t name_blocks[16]; /* blocks of names that have memory, a bit each */
};

/* What a segment is made from, settled before anything is opened. */
struct brick_plan {
    char prefix[40];
    uint32_t rate; /* of which steps checksums are recorded; 0: the host does not say */
    struct brick_header header;
};

/* NULL when the segment is there, locked and has its first memory, though not
 * yet published; else a constant text that says what failed, with errno set. */
BRICK_HIDDEN const char *brick_segment_create(struct brick_segment *s, const struct brick_plan *plan);
BRICK_HIDDEN void brick_segment_publish(struct brick_segment *s);

/* Memory for a range of the file, ready to be written without a fault: 1, or 0. */
BRICK_HIDDEN int brick_segment_commit(const struct brick_segment *s, uint64_t offset, uint64_t length);

BRICK_HIDDEN int brick_segment_ours(const struct brick_segment *s);     /* its descriptor still leads to it */
BRICK_HIDDEN int brick_segment_gone(const struct brick_segment *s);     /* unlinked by somebody */
BRICK_HIDDEN int brick_segment_consumed(const struct brick_segment *s); /* a consumer is attached, or was */
BRICK_HIDDEN void brick_segment_remove(struct brick_segment *s);        /* unlink, if it is still the one */
BRICK_HIDDEN void brick_segment_close(struct brick_segment *s);         /* give up descriptor and lock */
BRICK_HIDDEN int brick_locked_byte(int fd, off_t byte);                 /* another process holds this lock */
/* At a clean end: a record of it is appended, and it may be removed. 0: it must stay. */
BRICK_HIDDEN int brick_segment_account(const struct brick_segment *s, const char *prefix);
BRICK_HIDDEN void brick_segment_reap(const char *prefix);               /* dead ones beyond BRICK_DEAD_SHARE */
BRICK_HIDDEN ssize_t brick_read_file(const char *path, char *text, size_t size); /* closed by a zero; -1 */
BRICK_HIDDEN int brick_memory_allows(uint64_t bytes);                   /* no memory cgroup would kill for them */

/* Regions of the segment. */
static inline struct brick_control *brick_control_of(const struct brick_segment *s)
{
    return (struct brick_control *)(void *)(s->base + s->layout.control);
}
static inline struct brick_consumer *brick_consumer_of(const struct brick_segment *s, uint32_t lane)
{
    return (struct brick_consumer *)(void *)(s->base + s->layout.consumers) + lane;
}
static inline struct brick_process *brick_process_of(const struct brick_segment *s)
{
    return (struct brick_process *)(void *)(s->base + s->layout.process);
}
static inline struct brick_lane *brick_lane_of(const struct brick_segment *s, uint32_t lane)
{
    return (struct brick_lane *)(void *)(s->base + s->layout.lanes) + lane;
}
static inline struct brick_name *brick_names_of(const struct brick_segment *s)
{
    return (struct brick_name *)(void *)(s->base + s->layout.names);
}
static inline uint64_t *brick_paths_of(const struct brick_segment *s)
{
    return (uint64_t *)(void *)(s->base + s->layout.paths);
}
static inline uint64_t *brick_sites_of(const struct brick_segment *s)
{
    return (uint64_t *)(void *)(s->base + s->layout.sites);
}
static inline uint8_t *brick_area_of(const struct brick_segment *s, uint32_t lane)
{
    return s->base + s->layout.first + lane * s->layout.stride;
}

/* ---- names, paths, sites ----------------------------------------------- */

/* A path's or a site's number by its key, in private memory. An entry is claimed by its
 * value and published by its key, so nobody ever waits for anybody: a thread
 * that meets a claimed entry goes past it, and at worst one key has two
 * numbers, whose summaries readers add up. */
struct brick_entry {
    uint64_t key;   /* 0 until published (O3) */
    uint64_t value; /* number | flags; 0 = free */
};
#define BRICK_ENTRY_CLAIMED (UINT64_C(1) << 32)
#define BRICK_ENTRY_AGAIN (UINT64_C(1) << 16) /* recursion: the path of an ancestor */
#define BRICK_ENTRY_OFF (UINT64_C(1) << 17)   /* a site that is not looked at */

struct brick_tables {
    struct brick_entry *entries;
    uint64_t entry_mask;
    uint32_t entry_shift;
    uint32_t *numbers; /* name number + 1 by hash; 0 = free */
    uint64_t number_mask;
    uint64_t recursions; /* entries of theirs, to stop while the table is still thin */
    uint64_t next_name;  /* here and not in a segment: one number is never given twice, whatever became of a segment */
    uint64_t next_path, next_site;
};

static inline uint64_t brick_entry_place(const struct brick_tables *t, uint64_t key)
{
    return key * UINT64_C(0x9E3779B97F4A7C15) >> t->entry_shift;
}

/* A site's key in the private table: of a unit that no span asks for, since what stands below path 0 is looked up there. */
static inline uint64_t brick_site_entry(uint32_t name, uint32_t layer) { return brick_site_key(name, layer, 0x7F); }
/* The same of a parameter: its numbers say nothing of customers, whatever it is called, so it is never off. */
static inline uint64_t brick_weight_entry(uint32_t name, uint32_t layer) { return brick_site_key(name, layer, 0x7E); }

/* The usual case: the value on the first look. 0: not published (path 0 has no entry). */
static inline uint64_t brick_entry_find(const struct brick_tables *t, uint64_t key)
{
    for (uint64_t i = brick_entry_place(t, key);; i = (i + 1) & t->entry_mask) {
        const struct brick_entry *e = &t->entries[i];
        uint64_t found = brick_load_acquire(&e->key);
        if (BRICK_LIKELY(found == key))
            return brick_load_relaxed(&e->value);
        if (found == 0)
            return 0;
    }
}

BRICK_HIDDEN int brick_tables_make(struct brick_tables *t, const struct brick_header *h);
/* Name 0, path 0. */
BRICK_HIDDEN void brick_tables_begin(struct brick_tables *t, struct brick_segment *s);
/* What is in one segment and not in the other, under its numbers; 0: no memory. */
BRICK_HIDDEN int brick_tables_copy(struct brick_tables *t, struct brick_segment *to, const struct brick_segment *from);
/* In a forked child: what other threads were about is undone. */
BRICK_HIDDEN void brick_tables_forked(struct brick_tables *t);
/* A name that is not there yet gets a number below `room`, or there is none: counted, but where the room is not all there is. */
BRICK_HIDDEN uint32_t brick_name_intern(struct brick_tables *t, struct brick_segment *s, const char *text, size_t length,
                                        uint64_t room);
/* As brick_name, of what has no time: only while it takes no name from the half that is kept for what has one. */
BRICK_HIDDEN uint32_t brick_name_for_mark(const char *text, size_t length, const char *category);
/* Whether marks may take one more name. */
BRICK_HIDDEN int brick_room_for_marks(void);
/* Whether a name has this number: a host may say any. "Other" is many. */
BRICK_HIDDEN int brick_name_is_given(const struct brick_segment *s, uint32_t number);
BRICK_HIDDEN uint64_t brick_path_intern(struct brick_tables *t, struct brick_segment *s, uint64_t key);
/* 0: its kernel has no name of its own, or there is no room. */
BRICK_HIDDEN uint64_t brick_site_intern(struct brick_tables *t, struct brick_segment *s, uint64_t entry);

/* ---- deferred work that pends ------------------------------------------ */

/* As brick_defer, of work that began at a time of CLOCK_MONOTONIC_RAW; NULL: now. */
BRICK_HIDDEN unsigned brick_defer_since(uint32_t brick, const void *key, const uint64_t *start_ns, uint64_t stream,
                                        const uint64_t *step, uint64_t elements, uint64_t bytes, uint64_t *id);

/* A stream, or NULL for every stream. */
BRICK_HIDDEN void brick_pending_add(uint64_t stream);
BRICK_HIDDEN int brick_pending_any(const uint64_t *stream);
BRICK_HIDDEN void brick_pending_cover(const uint64_t *stream);
BRICK_HIDDEN void brick_pending_forget(void); /* in a forked child: its parent's */

/* ---- the service's secret ---------------------------------------------- */

struct brick_secret {
    struct brick_fingerprint_key key; /* 0: there is none */
    uint64_t name;                    /* by which others may know that they have the same */
};
/* Read at its first use, or made; after that the same for good, so that no process has checksums of two keys. 0: it cannot
 * be had now, for a reason that passes. */
BRICK_HIDDEN int brick_secret(struct brick_secret *secret);

/* ---- the agent --------------------------------------------------------- */

struct brick_thread; /* brick_lane.c: a lane's private half */

struct brick_agent {
    /* Read by every record. The gate is an enum brick_state on a page that the
     * kernel wipes in a forked child (by fork, clone, whatever called it): 0
     * there means "not my segment". The word behind it is 1 while `segment` is
     * this process's own. */
    uint32_t *gate;
    uint32_t clock;
    struct brick_tables tables;
    struct brick_thread *threads; /* one per lane */
    struct brick_segment *segment;
    /* A digest of the generation of the weights, 0 before a second one is known of: what is recorded while it changes is of
     * either. A forked child has its parent's weights, and this. */
    uint64_t generation;
    /* Cold. */
    uint32_t reopening;  /* one thread is at it */
    uint32_t closed;     /* shut down: for good */
    uint32_t wanted_off; /* by brick_enable(0) or BRICKD=0 */
    uint64_t missed;     /* begun while the segment was being opened, and not yet in its counters */
    struct brick_plan plan;
};
extern BRICK_HIDDEN struct brick_agent brick_agent;

/* Acquire: its mapping and header are seen with it. */
static inline struct brick_segment *brick_segment_now(void) { return __atomic_load_n(&brick_agent.segment, __ATOMIC_ACQUIRE); }

static inline int brick_agent_owns(void) { return brick_agent.gate[1] != 0; }

/* Opens what is to be opened; 1 when the caller may record. Else the spans that it would have begun are counted. */
BRICK_HIDDEN int brick_agent_ready(unsigned spans);
/* Another segment in the place of one that is gone. */
BRICK_HIDDEN void brick_agent_reopen(struct brick_segment *lost);

BRICK_HIDDEN int brick_threads_make(uint32_t lanes);
BRICK_HIDDEN int brick_thread_known(void); /* the calling thread has a lane, or is about to */
BRICK_HIDDEN void brick_threads_retire(uint32_t lanes); /* every thread's next record goes through brick_obey */
BRICK_HIDDEN void brick_threads_move(void);             /* lanes without a thread follow into the present segment */

#endif
