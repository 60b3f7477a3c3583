/* writer/thread.h - a thread takes a lane, obeys the control flags, and frees the lane; the thread's open frames. */
#ifndef BRICK_THREAD_H
#define BRICK_THREAD_H

#include "lane.h"

extern BRICK_HIDDEN __thread struct brick_thread *brick_self __attribute__((tls_model("initial-exec")));

/* The open span and the layer that apply to a key's next record. */
struct brick_place {
    uint64_t begun; /* the start of the key's innermost open span; 0: none */
    uint32_t layer;
};
/* In writer/span.c. */
BRICK_HIDDEN struct brick_place brick_place_of(const void *key);
/* In writer/mark.c: forgets the transfers of the lane's previous thread. */
BRICK_HIDDEN void brick_memories_forget(struct brick_thread *t);
/* Returns the thread's lane; takes a lane if it has none. If no lane is free, returns NULL and counts `spans` spans as
 * not recorded. */
BRICK_HIDDEN struct brick_thread *brick_join(unsigned *outcome, unsigned spans);
BRICK_HIDDEN int brick_never_refused(void); /* whether this thread has always got a lane */
/* Reacts to a change of the control flags, a fork or a lost segment. Returns NULL if the thread must not record now. */
BRICK_HIDDEN struct brick_thread *brick_obey(struct brick_thread *t, unsigned *outcome, unsigned spans);
BRICK_HIDDEN struct brick_stack *brick_stack_of(struct brick_thread *t, const void *key, int make);
BRICK_HIDDEN void brick_stack_drop(struct brick_thread *t, struct brick_stack *s);
BRICK_HIDDEN void brick_look(struct brick_thread *t, uint64_t now);

/* Pops the top frame and frees it. The frame's content, except `below`, is valid until the next frame is taken. */
static inline void brick_frame_pop(struct brick_thread *t, struct brick_stack *s)
{
    struct brick_frame *f = s->top;
    s->top = f->below;
    if (!f->scope) {
        if (BRICK_LIKELY(f->newer == NULL))
            t->newest = f->older;
        else
            f->newer->older = f->older;
        if (f->older != NULL)
            f->older->newer = f->newer;
        const struct brick_frame *now = t->newest;
        brick_add(&t->line->open, UINT64_MAX); /* O14: adds -1 */
        brick_store_relaxed(&t->line->current, now != NULL ? brick_open_word(now->start, now->path) : 0);
    } else {
        t->scopes--;
    }
    brick_node_give(t, f);
}

/* Like brick_is_off, but inlined, for callers that check at each span. */
static inline int brick_off_here(void)
{
    uint32_t gate = brick_load_relaxed32(brick_agent.gate);
    if (BRICK_LIKELY(gate < BRICK_OFF))
        return 0;
    const struct brick_thread *t = brick_self;
    return t == NULL || gate == BRICK_FAILED || (t->newest == NULL && t->scopes == 0);
}

static inline void brick_busy(struct brick_thread *t)
{
    __atomic_store_n(&t->busy, 1, __ATOMIC_RELAXED);
    brick_fence_signal();
}

static inline void brick_idle(struct brick_thread *t)
{
    brick_fence_signal();
    __atomic_store_n(&t->busy, 0, __ATOMIC_RELAXED);
}

/* Abandons the frames inside `until`, which will never be ended. */
static inline void brick_abandon(struct brick_thread *t, struct brick_stack *s, const struct brick_frame *until)
{
    while (s->top != until) {
        if (!s->top->scope)
            brick_add(&t->line->abandoned, 1);
        brick_frame_pop(t, s);
    }
    s->refused = 0;
}

#endif
