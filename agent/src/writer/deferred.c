/* writer/deferred.c - deferred work: events for a start, for a device's measurement, and for a wait of the host.
 *
 * Events go into the lane's event ring, even if no consumer has turned the span ring on. This code makes no system
 * call, allocates nothing, takes no lock and calls no host code, except for a lane's first event.
 */
#include "deferred.h"
#include "event_ring.h"
#include "pending.h"

#include <string.h>

#define NUMBER_BITS 48

/* An id is unique in the process. A forked child continues its parent's count, so it never repeats a parent's id. */
static uint64_t next_id(struct brick_thread *t)
{
    brick_store_relaxed(&t->given, t->given + 1);
    return (uint64_t)(t->number + 1) << NUMBER_BITS | t->given;
}

static int is_given(const struct brick_thread *self, uint64_t id)
{
    const uint64_t lane = (id >> NUMBER_BITS) - 1, number = id & ((UINT64_C(1) << NUMBER_BITS) - 1);
    if (lane >= self->segment->header->lanes)
        return 0;
    const struct brick_thread *t = &brick_agent.threads[lane];
    return number > t->inherited && number <= brick_load_relaxed(&t->given);
}

/* Converts a time of CLOCK_MONOTONIC_RAW to ticks. Returns `now`, the current ticks, if the time is not in the past or
 * cannot be converted. */
static uint64_t ticks_at(const struct brick_thread *t, uint64_t ns, uint64_t now)
{
    /* Read this clock before anything else, because the caller has just read `now`. */
    const double ago_ns = (double)(int64_t)(brick_clock_ns(CLOCK_MONOTONIC_RAW) - ns);
    const double tick_ns = brick_clock_tick_ns(t->segment->header);
    if (!(tick_ns > 0) || !(ago_ns > 0) || ago_ns >= tick_ns * (double)now)
        return now;
    return now - (uint64_t)(ago_ns / tick_ns);
}

unsigned brick_defer(uint32_t brick, const void *key, uint64_t stream, const uint64_t *step, uint64_t elements,
                     uint64_t bytes, uint64_t *id)
{
    return brick_defer_since(brick, key, NULL, stream, step, elements, bytes, id);
}

unsigned brick_defer_since(uint32_t brick, const void *key, const uint64_t *start_ns, uint64_t stream, const uint64_t *step,
                           uint64_t elements, uint64_t bytes, uint64_t *id)
{
    unsigned outcome = BRICK_DONE;
    if (id != NULL)
        *id = 0;
    struct brick_thread *t = brick_enter(key, &outcome, ARRIVES_ENDED);
    if (t == NULL)
        return outcome;
    const uint64_t now = brick_ticks(brick_agent.clock);
    const uint64_t start = start_ns != NULL ? ticks_at(t, *start_ns, now) : now;
    const struct brick_stack *s = brick_stack_of(t, key, 0);
    const struct brick_frame *above = s != NULL ? s->top : NULL;
    uint32_t path = BRICK_OTHER;
    if (brick <= UINT16_MAX && (s == NULL || s->refused == 0)) {
        uint32_t parent = above != NULL ? above->path : BRICK_ROOT, layer = above != NULL ? above->layer : BRICK_NO_LAYER;
        path = (uint32_t)(brick_path_of(t, brick_path_key(parent, brick, layer, BRICK_UNIT_DEFERRED)) & 0xFFFF);
    }
    elements = brick_checked(t, elements);
    bytes = brick_checked(t, bytes);
    brick_event_attempt(t);
    /* The times of path "other" are ticks. The time of deferred work is ns, so it cannot be added there. */
    struct brick_defer *r = path != BRICK_OTHER ? brick_event_slot(t, brick_kept_from_starts(t)) : NULL;
    if (r == NULL) {
        outcome |= brick_event_dropped(t, BRICK_KIND_DEFER);
    } else {
        const uint64_t given = next_id(t);
        r->path = path;
        r->start = start;
        r->stream = stream;
        r->id = given;
        r->step = step != NULL ? *step : above != NULL ? above->step : 0;
        r->elements = elements;
        r->bytes = bytes;
        brick_event_publish(t, r, BRICK_KIND_DEFER, 1);
        brick_pending_add(stream);
        if (id != NULL)
            *id = given;
    }
    brick_event_over(t, now);
    return outcome;
}

/* Like open spans, deferred work can end while recording is off. */
static struct brick_thread *enter_to_end(unsigned *outcome)
{
    struct brick_thread *t = brick_self;
    if (brick_agent.closed)
        return NULL;
    if (t == NULL && brick_load_relaxed32(brick_agent.gate) == BRICK_ON)
        t = brick_join(outcome, 1);
    return brick_enter_still(t, outcome);
}

static int is_off(const struct brick_thread *t)
{
    return brick_load_relaxed32(brick_agent.gate) != BRICK_ON || (t->flags & BRICK_CONTROL_OFF) != 0;
}

unsigned brick_finalize(const uint64_t *stream)
{
    unsigned outcome = BRICK_DONE;
    /* Before its first record, a forked child still has its parent's pending work. */
    if (!brick_agent_owns() || !brick_pending_any(stream))
        return outcome;
    struct brick_thread *t = enter_to_end(&outcome);
    if (t == NULL)
        return outcome;
    brick_event_attempt(t);
    struct brick_finalize *r = brick_event_slot(t, 0);
    if (r != NULL)
        /* Cover the work before the clock is read, so that all covered work began before this time. */
        brick_pending_cover(stream);
    const uint64_t now = brick_ticks(brick_agent.clock);
    if (r == NULL) {
        outcome |= brick_event_dropped(t, BRICK_KIND_FINALIZE);
    } else {
        r->every = stream == NULL;
        r->ticks = now;
        r->stream = stream != NULL ? *stream : 0;
        memset(r->reserved, 0, sizeof r->reserved);
        brick_event_publish(t, r, BRICK_KIND_FINALIZE, 1);
    }
    brick_event_over(t, now);
    return outcome;
}

unsigned brick_measured(uint64_t id, uint64_t elapsed_ns)
{
    unsigned outcome = BRICK_DONE;
    if (id == 0) /* brick_defer dropped the start and counted that */
        return outcome;
    struct brick_thread *t = enter_to_end(&outcome);
    if (t == NULL)
        return outcome;
    const uint64_t now = brick_ticks(brick_agent.clock);
    if (is_off(t) && !brick_pending_any(NULL)) {
        brick_idle(t);
        return outcome;
    }
    if (!is_given(t, id)) {
        brick_add(&t->line->unmatched, 1);
        outcome |= BRICK_UNMATCHED;
    } else if (elapsed_ns > BRICK_AMOUNT_MAX) {
        brick_add(&t->line->amounts, 1);
        outcome |= BRICK_REFUSED;
    } else {
        brick_event_attempt(t);
        struct brick_measured *r = brick_event_slot(t, brick_kept_from_measurements(t));
        if (r == NULL) {
            outcome |= brick_event_dropped(t, BRICK_KIND_MEASURED);
        } else {
            r->reserved0 = 0;
            r->id = id;
            r->elapsed_ns = elapsed_ns;
            memset(r->reserved, 0, sizeof r->reserved);
            brick_event_publish(t, r, BRICK_KIND_MEASURED, 1);
        }
    }
    brick_event_over(t, now);
    return outcome;
}

uint64_t brick_pending(void) { return brick_agent_owns() ? brick_pending_sum() : 0; }
