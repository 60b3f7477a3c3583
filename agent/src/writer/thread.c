/* writer/thread.c - a thread takes a lane, applies the control flags, and frees the lane. This code runs only at a
 * thread's first record, at its end, and when the control flags change. */
#include "thread.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

__thread struct brick_thread *brick_self __attribute__((tls_model("initial-exec")));

/* Why this thread was last refused a lane. After NO_MEMORY, the thread does not try again. */
enum { NEVER, NO_LANE, NO_MEMORY };
static __thread int last_refusal __attribute__((tls_model("initial-exec")));
static __thread int joining __attribute__((tls_model("initial-exec")));

static pthread_key_t exit_key;
static uint32_t exit_key_made;

static void at_thread_end(void *unused)
{
    (void)unused;
    brick_thread_exit();
}

/* Runs at dlclose, so that a thread that ends later does not call unmapped code. */
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
    /* In a forked child, brick_agent.threads still has the parent's threads. */
    for (uint32_t n = 0; brick_agent.threads != NULL && n < lanes; n++)
        threads[n].given = threads[n].inherited = brick_agent.threads[n].given;
    brick_agent.threads = threads;
    last_refusal = NEVER; /* in a forked child, these variables have the parent's values */
    joining = 0;
    return 1;
}

/* Returns false if a fork copied this thread's data from the parent. */
static int is_present(const struct brick_thread *t)
{
    return t >= brick_agent.threads && t < brick_agent.threads + brick_segment_now()->header->lanes;
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
        /* The content that the lane's previous thread has left may still be in a lost segment. */
        int left = t->segment != NULL && t->segment != s;
        BRICK_POINT("bind");
        if ((t->free == NULL && !brick_nodes_more(t)) || !(left ? brick_lane_move(t) : brick_lane_bind(t, s))) {
            *refusal = NO_MEMORY;
            brick_lane_give(t);
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

/* Counts the spans that began while the segment was being opened. */
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
    if (brick_self != NULL) { /* a signal handler interrupted this call and took a lane */
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

/* Moves this thread's lane into the current segment. If there is no memory, returns 0, and this thread records no more:
 * a store would raise SIGBUS. */
static int follow_segment(struct brick_thread *t)
{
    if (brick_lane_move(t))
        return 1;
    brick_self = NULL;
    last_refusal = NO_MEMORY;
    return 0;
}

struct brick_thread *brick_obey(struct brick_thread *t, unsigned *outcome, unsigned spans)
{
    if (brick_lane_retired(t)) {
        if (!is_present(t)) {
            brick_idle(t); /* this is the parent's lane, copied by the fork */
            brick_self = NULL;
            t = brick_join(outcome, spans);
            if (t == NULL)
                return NULL;
            brick_busy(t);
        } else if (!follow_segment(t)) {
            return NULL;
        }
    }
    /* Use the flags of the lane's segment, even if that segment is lost: the next record moves the lane. */
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
    if (brick_lane_retired(t)) /* move the lane now, because the thread's next record may come much later */
        follow_segment(t);
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
    if (t == NULL || t->busy || brick_lane_retired(t) || !brick_agent_owns())
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
    if (t != NULL && (!brick_agent_owns() || (brick_lane_retired(t) && (!is_present(t) || !brick_lane_move(t)))))
        brick_self = t = NULL; /* the lane is the parent's, or there is no memory to move it */
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
        drop(key); /* `drop` may run any code, which may record: search again */
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
    brick_lane_give(t);
}
