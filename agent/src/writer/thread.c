/* writer/thread.c - a thread takes a lane, applies the control flags, and frees the lane. Outside of the usual record
 * path: a thread's first record, its end, a change of the control flags, new memory. */
#include "record_path.h"

#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

__thread struct brick_thread *brick_self __attribute__((tls_model("initial-exec")));

/* Why this thread was last refused a lane. After NO_MEMORY, it does not try again. */
enum { NEVER, NO_LANE, NO_MEMORY };
static __thread int last_refusal __attribute__((tls_model("initial-exec")));
static __thread int joining __attribute__((tls_model("initial-exec")));

static pthread_key_t exit_key;
static uint32_t exit_key_made;

/* The control page of threads that no longer own their segment. */
static const struct brick_control retired = {.flags = BRICK_CONTROL_OFF};

static void at_thread_end(void *unused)
{
    (void)unused;
    brick_thread_exit();
}

/* At dlclose: a thread that ends later must not call unmapped code. */
__attribute__((destructor)) static void forget_threads(void)
{
    if (exit_key_made)
        pthread_key_delete(exit_key);
}

int brick_threads_make(uint32_t lanes)
{
    if (!exit_key_made && pthread_key_create(&exit_key, at_thread_end) != 0)
        return 0;
    exit_key_made = 1;
    struct brick_thread *threads = (struct brick_thread *)brick_private_memory(lanes * sizeof *threads);
    if (threads == NULL)
        return 0;
    for (uint32_t n = 0; brick_agent.threads != NULL && n < lanes; n++) /* the parent's, in a forked child */
        threads[n].given = threads[n].inherited = brick_agent.threads[n].given;
    brick_agent.threads = threads;
    last_refusal = NEVER; /* in a forked child, the lane and refusal are the parent's */
    joining = 0;
    return 1;
}

void brick_threads_retire(uint32_t lanes)
{
    for (uint32_t n = 0; brick_agent.threads != NULL && n < lanes; n++)
        __atomic_store_n(&brick_agent.threads[n].control, &retired, __ATOMIC_RELEASE);
}

/* Acquire: the next load of the segment finds its replacement. */
static int is_retired(const struct brick_thread *t) { return __atomic_load_n(&t->control, __ATOMIC_ACQUIRE) == &retired; }

/* ---- memory ------------------------------------------------------------ */

int brick_nodes_more(struct brick_thread *t)
{
    if (t->chunks == BRICK_CHUNKS)
        return 0;
    union brick_node *nodes = (union brick_node *)brick_private_memory(BRICK_NODES * sizeof *nodes);
    if (nodes == NULL)
        return 0;
    t->chunks++;
    for (uint32_t i = BRICK_NODES; i-- > 0;)
        brick_node_give(t, &nodes[i]);
    return 1;
}

static int area_commit(const struct brick_thread *t, uint64_t within, uint64_t bytes)
{
    const struct brick_segment *s = t->segment;
    if (brick_segment_commit(s, s->layout.first + t->number * s->layout.stride + within, bytes))
        return 1;
    brick_fetch_add(&brick_process_of(s)->blocks_refused, 1);
    return 0;
}

/* Returns whether the summary of this path has memory. Requests a block once. */
int brick_block_commit(struct brick_thread *t, uint32_t path)
{
    const uint64_t bytes = BRICK_BLOCK * sizeof(struct brick_summary);
    uint32_t block = path / BRICK_BLOCK;
    uint64_t bit = UINT64_C(1) << block % 64;
    if ((t->committed[block / 64] & bit) != 0)
        return 1;
    if ((t->refused[block / 64] & bit) != 0)
        return 0;
    if (!area_commit(t, t->segment->layout.summaries + block * bytes, bytes)) {
        t->refused[block / 64] |= bit;
        return 0;
    }
    t->committed[block / 64] |= bit;
    return 1;
}

/* Returns whether the ring, at `within` in the lane's area, has memory. Requests it once. */
int brick_ring_commit(struct brick_thread *t, struct brick_ring *ring, uint64_t within)
{
    if (ring->memory == BRICK_MEMORY_UNTRIED) {
        int there = area_commit(t, within, ring->slots * sizeof(struct brick_record));
        ring->memory = there ? BRICK_MEMORY_THERE : BRICK_MEMORY_REFUSED;
    }
    return ring->memory == BRICK_MEMORY_THERE;
}

/* Follows this segment's control page from now on. O18: without the second look, it would overwrite a reopen's mark. */
static void orders_from(struct brick_thread *t, const struct brick_segment *s)
{
    __atomic_store_n(&t->control, brick_control_of(s), __ATOMIC_RELAXED);
    brick_fence_full();
    if (brick_segment_now() != s)
        __atomic_store_n(&t->control, &retired, __ATOMIC_RELAXED);
}

/* Points the thread to its lane of this segment and allocates its first memory. */
static int lane_bind(struct brick_thread *t, struct brick_segment *s)
{
    uint8_t *area = brick_area_of(s, t->number);
    __atomic_store_n(&t->segment, s, __ATOMIC_RELAXED);
    t->line = brick_lane_of(s, t->number);
    t->sequences = (uint64_t *)(void *)(area + s->layout.sequences);
    t->summaries = (struct brick_summary *)(void *)(area + s->layout.summaries);
    t->span_ring.records = (struct brick_record *)(void *)(area + s->layout.span_ring);
    t->span_ring.slots = s->header->span_slots;
    t->event_ring.records = (struct brick_record *)(void *)(area + s->layout.event_ring);
    t->event_ring.slots = s->header->event_slots;
    t->flags = 0;
    orders_from(t, s);
    return (t->committed[0] & 1) != 0
           || (area_commit(t, s->layout.sequences, s->layout.summaries - s->layout.sequences)
               && brick_block_commit(t, BRICK_OTHER));
}

/* A lane's content in a lost segment. */
struct left {
    const struct brick_segment *segment;
    const struct brick_lane *line;
    const uint64_t *sequences;
    const struct brick_summary *summaries;
    uint64_t committed[16];
};
BRICK_ASSERT(sizeof ((struct left *)0)->committed == sizeof ((struct brick_thread *)0)->committed, "the same blocks");

/* Copies one block of summaries, entry by entry like any other change (O5 to O7), because a reader may read them. */
static void block_move(struct brick_thread *t, const struct left *old, uint32_t first)
{
    for (uint32_t path = first; path < first + BRICK_BLOCK; path++) {
        uint64_t sequence = brick_load_relaxed(&old->sequences[path]);
        if (sequence == 0)
            continue;
        brick_store_relaxed(&t->sequences[path], sequence | 1);
        brick_fence_release();
        t->summaries[path] = old->summaries[path];
        BRICK_POINT("moved");
        brick_store_release(&t->sequences[path], (sequence | 1) + 1);
    }
}

/* Copies the lane's content into the segment that replaced a lost one; only the lane's thread may write to either. Totals
 * and ledger continue. The rings begin empty, because their details were lost with the file. */
static int lane_move(struct brick_thread *t)
{
    struct brick_segment *s = brick_segment_now();
    BRICK_POINT("bind");
    if (t->segment == s) { /* the thread was bound before the reopen's mark */
        orders_from(t, s);
        return 1;
    }
    struct left old = {.segment = t->segment, .line = t->line, .sequences = t->sequences, .summaries = t->summaries};
    memcpy(old.committed, t->committed, sizeof old.committed);
    memset(t->committed, 0, sizeof t->committed);
    memset(t->refused, 0, sizeof t->refused);
    t->span_ring = t->event_ring = (struct brick_ring){0};
    if (!lane_bind(t, s))
        return 0;
    /* A path numbered after the tables were copied is only in the old segment. */
    brick_tables_copy(&brick_agent.tables, t->segment, old.segment);
    for (uint32_t path = 0; path < t->segment->header->paths; path += BRICK_BLOCK)
        if ((old.committed[path / BRICK_BLOCK / 64] >> path / BRICK_BLOCK % 64 & 1) != 0 && brick_block_commit(t, path))
            block_move(t, &old, path);
    struct brick_lane line = *old.line;
    line.span_head = line.span_attempts = line.event_head = line.event_attempts = line.event_records = 0;
    memset(line.span_dropped, 0, sizeof line.span_dropped);
    memset(line.event_dropped, 0, sizeof line.event_dropped);
    *t->line = line;
    return 1;
}

void brick_threads_move(void)
{
    for (uint32_t n = 0; n < brick_segment_now()->header->lanes; n++) {
        struct brick_thread *t = &brick_agent.threads[n];
        if (__atomic_load_n(&t->segment, __ATOMIC_RELAXED) == NULL || !brick_claim32(&t->owner, 0, 1))
            continue; /* never used, or its thread moves it */
        lane_move(t);
        brick_store_release32(&t->owner, 0);
    }
}

/* False for the parent's thread, which a fork copied. */
static int is_present(const struct brick_thread *t)
{
    return t >= brick_agent.threads && t < brick_agent.threads + brick_segment_now()->header->lanes;
}

/* Frees the lane. O18: a reopen skips a lane that has a thread, so its content is moved now. */
static void lane_give(struct brick_thread *t)
{
    for (;;) {
        const struct brick_segment *s = t->segment;
        brick_store_release32(&t->owner, 0); /* O16 */
        brick_fence_full();
        if (s == NULL || s == brick_segment_now() || !brick_claim32(&t->owner, 0, 1))
            return;
        lane_move(t);
    }
}

/* ---- join and obey ----------------------------------------------------- */

static struct brick_thread *claim(int *refusal)
{
    struct brick_agent *a = &brick_agent;
    *refusal = NO_LANE;
    struct brick_segment *s = brick_segment_now();
    for (uint32_t n = 0; n < s->header->lanes; n++) {
        struct brick_thread *t = &a->threads[n];
        if (brick_load_relaxed32(&t->owner) != 0 || !brick_claim32(&t->owner, 0, 1)) /* O16 */
            continue;
        t->number = n;
        /* Its last thread may have left content in a lost segment that is not moved yet. */
        int left = t->segment != NULL && t->segment != s;
        BRICK_POINT("bind");
        if ((t->free == NULL && !brick_nodes_more(t)) || !(left ? lane_move(t) : lane_bind(t, s))) {
            *refusal = NO_MEMORY;
            lane_give(t);
            return NULL;
        }
        t->look = brick_ticks(a->clock) + BRICK_LOOK_TICKS;
        brick_memories_forget(t);
        brick_add(&t->line->opened, 1);
        brick_store_relaxed(&t->line->thread, (uint64_t)syscall(SYS_gettid));
        pthread_setspecific(exit_key, t);
        return t;
    }
    return NULL;
}

/* Counts the spans begun before the segment had a counter for them. */
static void count_missed(void)
{
    uint64_t missed = __atomic_exchange_n(&brick_agent.missed, 0, __ATOMIC_RELAXED);
    brick_fetch_add(&brick_process_of(brick_segment_now())->no_lane, missed);
}

int brick_thread_known(void) { return joining || brick_self != NULL; }

struct brick_thread *brick_join(unsigned *outcome, unsigned spans)
{
    if (!brick_agent_ready(spans))
        return NULL;
    struct brick_process *process = brick_process_of(brick_segment_now());
    if (joining) { /* called from a signal handler that interrupted the lines below */
        brick_fetch_add(&process->no_lane, spans);
        return NULL;
    }
    joining = 1;
    brick_fence_signal();
    if (brick_self != NULL) { /* a signal handler interrupted this call, and joined */
        joining = 0;
        return brick_self;
    }
    count_missed();
    int refusal = NO_MEMORY;
    struct brick_thread *t = last_refusal == NO_MEMORY ? NULL : claim(&refusal);
    if (t == NULL) {
        brick_fetch_add(&process->lanes_refused, last_refusal == NEVER);
        brick_fetch_add(&process->no_lane, spans);
        last_refusal = refusal;
    }
    *outcome |= t != NULL ? BRICK_JOINED : BRICK_REFUSED;
    brick_self = t;
    brick_fence_signal();
    joining = 0;
    return t;
}

int brick_never_refused(void) { return last_refusal == NEVER; }

/* Moves this thread's lane. Returns 0 without memory: a store would raise SIGBUS, so the thread stops recording. */
static int follow_segment(struct brick_thread *t)
{
    if (lane_move(t))
        return 1;
    brick_self = NULL;
    last_refusal = NO_MEMORY;
    return 0;
}

struct brick_thread *brick_obey(struct brick_thread *t, unsigned *outcome, unsigned spans)
{
    if (is_retired(t)) {
        if (!is_present(t)) {
            brick_idle(t); /* the parent's lane, which the fork copied */
            brick_self = NULL;
            t = brick_join(outcome, spans);
            if (t == NULL)
                return NULL;
            brick_busy(t);
        } else if (!follow_segment(t)) {
            return NULL;
        }
    }
    /* Use the flags of its segment, even if that is lost: the content moves with the next record. */
    t->flags = brick_load_relaxed32(&brick_control_of(t->segment)->flags); /* O15 */
    if ((t->flags & BRICK_CONTROL_SPANS) != 0)
        brick_ring_commit(t, &t->span_ring, t->segment->layout.span_ring);
    return t;
}

void brick_look(struct brick_thread *t, uint64_t now)
{
    t->look = now + BRICK_LOOK_TICKS;
    count_missed();
    struct brick_segment *s = brick_segment_now();
    const struct brick_control *control = brick_control_of(s);
    if (brick_segment_gone(s) || brick_load_relaxed(&control->reopen) != 0)
        brick_agent_reopen(s);
    if (is_retired(t)) /* immediately: its next record may come much later */
        follow_segment(t);
}

/* ---- rare ways into a record ------------------------------------------- */

/* A call from a signal handler that interrupted a call on this thread. */
static unsigned nested(struct brick_thread *t)
{
    brick_fetch_add(&t->line->nested, 1);
    return BRICK_REFUSED;
}

/* The call is not recorded, but its end must not end an open span. */
static void begin_off(struct brick_thread *t, const void *key)
{
    struct brick_stack *s = brick_stack_open(t, key);
    if (s != NULL)
        s->refused++;
}

struct brick_thread *brick_enter_slowly(struct brick_thread *t, const void *key, unsigned *outcome,
                                        enum brick_arrival what)
{
    const unsigned spans = what == ARRIVES_SPAN || what == ARRIVES_ENDED, ends = what == ARRIVES_SPAN || what == ARRIVES_SCOPE;
    if (brick_load_relaxed32(brick_agent.gate) == BRICK_OFF) {
        if (t != NULL && !t->busy && ends) {
            brick_busy(t);
            begin_off(t, key);
            brick_idle(t);
        }
        return NULL;
    }
    if (!brick_agent_ready(spans) || (t == NULL && (t = brick_join(outcome, spans)) == NULL))
        return NULL;
    if (t->busy) {
        *outcome |= nested(t);
        return NULL;
    }
    brick_busy(t);
    if (brick_wants_attention(t) && (t = brick_obey(t, outcome, spans)) == NULL)
        return NULL;
    if ((t->flags & BRICK_CONTROL_OFF) != 0) {
        if (ends)
            begin_off(t, key);
        brick_idle(t);
        return NULL;
    }
    return t;
}

struct brick_thread *brick_enter_still(struct brick_thread *t, unsigned *outcome)
{
    uint32_t gate = brick_load_relaxed32(brick_agent.gate);
    if (t == NULL || !brick_agent_owns() || (gate != BRICK_ON && gate != BRICK_OFF))
        return NULL;
    if (t->busy) {
        *outcome |= nested(t);
        return NULL;
    }
    brick_busy(t);
    return brick_wants_attention(t) ? brick_obey(t, outcome, 0) : t;
}

void brick_count_refused(const void *key)
{
    unsigned outcome = BRICK_DONE;
    struct brick_thread *t = brick_enter(key, &outcome, ARRIVES_QUESTION);
    if (t == NULL)
        return;
    brick_add(&t->line->amounts, 1);
    brick_idle(t);
}

/* ---- leave ------------------------------------------------------------- */

struct brick_stack *brick_stack_of(struct brick_thread *t, const void *key, int make)
{
    struct brick_stack **bucket = &t->buckets[(uintptr_t)key * UINT64_C(0x9E3779B97F4A7C15) >> 56];
    struct brick_stack *s = *bucket, *last = t->current;
    while (s != NULL && s->key != key)
        s = s->next;
    if (s == NULL && make) {
        s = (struct brick_stack *)(void *)brick_node_take(t);
        if (s == NULL)
            return NULL;
        *s = (struct brick_stack){.key = key, .top = NULL, .next = *bucket, .refused = 0};
        *bucket = s;
    }
    if (s == NULL)
        return NULL;
    t->current = s;
    if (last != NULL && last != s && last->top == NULL)
        brick_stack_drop(t, last);
    return s;
}

void brick_stack_drop(struct brick_thread *t, struct brick_stack *s)
{
    struct brick_stack **link = &t->buckets[(uintptr_t)s->key * UINT64_C(0x9E3779B97F4A7C15) >> 56];
    while (*link != s)
        link = &(*link)->next;
    *link = s->next;
    if (t->current == s)
        t->current = NULL;
    brick_node_give(t, s);
}

const void *brick_thread_sweep(int (*dead)(const void *key))
{
    struct brick_thread *t = brick_self;
    if (t == NULL || t->busy || is_retired(t) || !brick_agent_owns())
        return NULL;
    const void *key = NULL;
    brick_busy(t);
    struct brick_stack *s = t->buckets[t->hand % BRICK_STACK_BUCKETS];
    while (s != NULL && (s->top == NULL || s->borrowed || !dead(s->key)))
        s = s->next;
    if (s != NULL) {
        key = s->key;
        brick_abandon(t, s, NULL);
        brick_stack_drop(t, s);
    } else {
        t->hand++;
    }
    brick_idle(t);
    return key;
}

/* Returns this thread, if it still owns its lane and can write to it; else NULL. */
static struct brick_thread *own_lane(void)
{
    struct brick_thread *t = brick_self;
    if (t != NULL && (!brick_agent_owns() || (is_retired(t) && (!is_present(t) || !lane_move(t)))))
        brick_self = t = NULL; /* the parent's, or no memory to follow a lost segment */
    return t;
}

static struct brick_stack *first_referenced(const struct brick_thread *t)
{
    for (uint32_t b = 0; b < BRICK_STACK_BUCKETS; b++)
        for (struct brick_stack *s = t->buckets[b]; s != NULL; s = s->next)
            if (s->top != NULL && !s->borrowed)
                return s;
    return NULL;
}

void brick_thread_release(void (*drop)(const void *key))
{
    for (struct brick_thread *t; (t = own_lane()) != NULL;) {
        brick_busy(t);
        struct brick_stack *s = first_referenced(t);
        if (s == NULL) {
            brick_idle(t);
            if (t->newest == NULL && t->scopes == 0)
                brick_thread_exit();
            return;
        }
        const void *key = s->key;
        brick_abandon(t, s, NULL);
        brick_stack_drop(t, s);
        brick_idle(t);
        drop(key); /* this may run any code, which may record: search again */
    }
}

void brick_thread_exit(void)
{
    struct brick_thread *t = own_lane();
    if (t == NULL)
        return;
    brick_busy(t);
    for (uint32_t b = 0; b < BRICK_STACK_BUCKETS; b++)
        for (struct brick_stack *s; (s = t->buckets[b]) != NULL; brick_stack_drop(t, s))
            brick_abandon(t, s, NULL);
    brick_idle(t);
    brick_self = NULL;
    BRICK_POINT("leave");
    brick_store_relaxed(&t->line->thread, 0);
    lane_give(t);
}
