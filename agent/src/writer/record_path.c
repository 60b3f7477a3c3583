/* writer/record_path.c - the rare cases of a record: the first record of a thread, a record in a signal handler, a
 * record while recording is off. */
#include "record_path.h"

/* Counts a call from a signal handler that interrupted a call on the same thread. */
static unsigned nested(struct brick_thread *t)
{
    brick_fetch_add(&t->line->nested, 1);
    return BRICK_REFUSED;
}

/* Remembers a begin that is not recorded, so that the matching end does not end another open span. */
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
