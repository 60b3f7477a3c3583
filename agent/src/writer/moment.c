/* writer/moment.c - a moment that the host numbers. */
#include "event_ring.h"

unsigned brick_moment(uint64_t id)
{
    unsigned outcome = BRICK_DONE;
    struct brick_thread *t = brick_enter(NULL, &outcome, ARRIVES_ENDED);
    if (t == NULL)
        return outcome;
    const uint64_t now = brick_ticks(brick_agent.clock);
    brick_event_wanted(t);
    struct brick_moment *r = brick_event_slot(t, brick_kept_from_starts(t));
    if (r == NULL) {
        outcome |= brick_event_dropped(t, BRICK_KIND_MOMENT);
    } else {
        *r = (struct brick_moment){.ticks = now, .id = id};
        brick_event_publish(t, r, BRICK_KIND_MOMENT, 1);
    }
    brick_event_over(t, now);
    return outcome;
}
