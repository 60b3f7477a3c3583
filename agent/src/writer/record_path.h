/* writer/record_path.h - how a thread enters a record, and the checks of numbers from the host and the consumer. */
#ifndef BRICK_RECORD_H
#define BRICK_RECORD_H

#include "thread.h"

/* What a call records: a span or scope that ends later, a completed span, or nothing. */
enum brick_arrival { ARRIVES_SPAN, ARRIVES_SCOPE, ARRIVES_ENDED, ARRIVES_QUESTION };

/* Returns the thread, marked busy, after applying the control flags. Returns NULL if there is nothing to record, with
 * the reason in *outcome. */
BRICK_HIDDEN struct brick_thread *brick_enter_slowly(struct brick_thread *t, const void *key, unsigned *outcome,
                                                     enum brick_arrival what);
/* Like brick_enter_slowly, for calls that end a span, which may happen even while recording is off. The caller checks
 * whether a span is open. */
BRICK_HIDDEN struct brick_thread *brick_enter_still(struct brick_thread *t, unsigned *outcome);

static inline int brick_wants_attention(const struct brick_thread *t)
{
    uint32_t flags = brick_load_relaxed32(&__atomic_load_n(&t->control, __ATOMIC_RELAXED)->flags); /* O15 */
    return ((flags ^ t->flags) | (flags & BRICK_CONTROL_OFF)) != 0;
}

static inline struct brick_thread *brick_enter(const void *key, unsigned *outcome, enum brick_arrival what)
{
    struct brick_thread *t = brick_self;
    if (BRICK_UNLIKELY(t == NULL || brick_load_relaxed32(brick_agent.gate) != BRICK_ON || t->busy
                       || brick_wants_attention(t)))
        return brick_enter_slowly(t, key, outcome, what);
    brick_busy(t);
    return t;
}

/* Returns the key's stack; NULL if the key has no open spans. */
static inline struct brick_stack *brick_stack_open(struct brick_thread *t, const void *key)
{
    struct brick_stack *s = t->current;
    if (s == NULL || s->key != key)
        s = brick_stack_of(t, key, 0);
    return s != NULL && s->top != NULL ? s : NULL;
}

/* Returns the id of a path; with the flag BRICK_ENTRY_AGAIN if this is a recursion, which uses the path of an
 * ancestor. */
static inline uint64_t brick_path_of(struct brick_thread *t, uint64_t path_key)
{
    uint64_t path = brick_entry_find(&brick_agent.tables, path_key);
    return BRICK_LIKELY(path != 0) ? path : brick_path_intern(&brick_agent.tables, t->segment, path_key);
}

static inline uint64_t brick_checked(struct brick_thread *t, uint64_t amount)
{
    if (BRICK_LIKELY(amount <= BRICK_AMOUNT_MAX))
        return amount;
    brick_add(&t->line->amounts, 1);
    return 0;
}

static inline struct brick_amounts brick_amounts_checked(struct brick_thread *t, struct brick_amounts did)
{
    did.elements = brick_checked(t, did.elements);
    did.bytes = brick_checked(t, did.bytes);
    if (BRICK_LIKELY(did.flops >= 0 && did.flops <= BRICK_FLOPS_MAX))
        return did;
    brick_add(&t->line->amounts, 1);
    did.flops = 0;
    return did;
}

/* Returns whether more than `kept` slots of the ring are free. Reads the consumer's tail only when the slots known to
 * be free are used up, and accepts only a matching pair within the ring. */
static inline int brick_ring_room(struct brick_thread *t, struct brick_ring *ring, const struct brick_tail *tail,
                                  uint64_t kept)
{
    if (BRICK_LIKELY(ring->head - ring->tail + kept < ring->slots))
        return 1;
    uint64_t position = brick_load_acquire(&tail->position); /* O13 */
    uint64_t complement = brick_load_acquire(&tail->complement);
    if (position == ~complement && position <= ring->head && ring->head - position <= ring->slots)
        ring->tail = position;
    else if (position != 0 || complement != 0) /* zeros mean that there was no consumer yet */
        brick_add(&t->line->tails_refused, 1);
    return ring->head - ring->tail + kept < ring->slots;
}

#endif
