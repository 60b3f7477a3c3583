#include "cursor.h"
#include "segment_copy.h"

void brick_span_start(struct brick_cursor *c, const struct brick_consumer *line, uint64_t head, uint64_t slots)
{
    uint64_t start = c->span;
    int believed = brick_tail_believed(&line->span, head, slots);
    if (believed && line->span.position > start)
        start = line->span.position;
    /* If only one word of the tail was written, it is not known which slots the writer may reuse. So assume all. */
    if (!brick_ring_holds(head, slots, start) || (!believed && !brick_tail_untouched(&line->span, head, slots)))
        start = head;
    c->spans_lost += start > c->span ? start - c->span : 0;
    c->span = start;
}

int brick_event_start(struct brick_cursor *c, const struct brick_consumer *line, const struct brick_lane *lane,
                      uint64_t slots, int saved)
{
    struct brick_event_cursor *e = &c->event;
    const struct brick_tail *tail = &line->event;
    uint64_t head = lane->event_head;
    if (brick_tail_believed(tail, head, slots) && (!saved || tail->position > e->position))
        *e = (struct brick_event_cursor){.position = tail->position,
                                         .records = brick_least(line->events_read, tail->position)};
    else if (saved ? brick_ring_holds(head, slots, e->position) : brick_tail_untouched(tail, head, slots))
        return 0;
    else
        *e = (struct brick_event_cursor){.position = head, .records = brick_least(lane->event_records, head)};
    return saved || e->position > 0;
}

double brick_event_held(const struct brick_cursor *c, const struct brick_consumer *line, uint64_t head, uint64_t slots)
{
    const struct brick_tail *tail = &line->event;
    if (!brick_tail_untouched(tail, head, slots) && !brick_tail_believed(tail, head, slots))
        return 1; /* an invalid tail frees no slot */
    return (double)(c->event.position - tail->position) / (double)slots;
}

/* Moves a tail, which is a position and its complement. Returns 0 if the tail already has this position. Two words of 0
 * also mean position 0. */
static int move(uint64_t position, const struct brick_tail *from, struct brick_tail *halfway, struct brick_tail *whole)
{
    if (from->position == position && (from->complement == ~position || (position == 0 && from->complement == 0)))
        return 0;
    halfway->complement = whole->complement = ~position;
    whole->position = position;
    return 1;
}

int brick_cursor_publish(const struct brick_cursor *c, const struct brick_consumer *line, int events,
                         struct brick_consumer *halfway, struct brick_consumer *whole)
{
    *halfway = *whole = *line;
    int moved = move(c->span, &line->span, &halfway->span, &whole->span);
    whole->spans_lost = c->spans_lost;
    if (events) {
        moved |= move(c->event.position, &line->event, &halfway->event, &whole->event);
        whole->events_read = c->event.records;
    }
    return moved || whole->spans_lost != line->spans_lost || whole->events_read != line->events_read;
}
