#include "drain.h"

#include <stdlib.h>
#include <string.h>

/* A pass that looks at all lanes, not only at those up to the first that nobody owned: a thread that had its lane
 * before another got one may have been refused the memory for it. */
#define LOOK_AROUND 64u

/* What is new in an event ring has this part of it: the rest may be held until a checkpoint has it. */
#define FRESH_PART 0.5

int brick_drain_open(struct brick_drain *d, uint64_t file_size)
{
    struct brick_reader *r = &d->reader;
    if (!brick_reader_open(r, file_size))
        return 0;
    d->lanes = calloc(r->header.lanes, sizeof *d->lanes);
    d->lines = calloc(1, sizeof *d->lines + r->header.lanes * sizeof d->lines->lanes[0]);
    if (d->lanes == NULL || d->lines == NULL)
        return brick_refuse(r, "no memory for %u lanes", r->header.lanes);
    d->details.reader = r;
    d->events.paths = r->header.paths;
    d->complete = 1;
    return 1;
}

void brick_drain_free(struct brick_drain *d)
{
    brick_details_free(&d->details);
    free(d->events.records);
    free(d->lanes);
    free(d->lines);
}

int brick_drain_resume(struct brick_drain *d, const struct brick_cursor *cursor)
{
    if (d->saved == d->reader.header.lanes)
        return 0;
    d->lanes[d->saved++].cursor = *cursor;
    return 1;
}

uint32_t brick_drain_lanes(const struct brick_drain *d) { return d->saved > d->used ? d->saved : d->used; }

/* ---- one pass ---------------------------------------------------------- */

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static double most(double a, double b) { return a > b ? a : b; }

/* The process line and the lanes in use, with one that is not: then no other is. */
static int look(struct brick_drain *d, uint32_t *seen)
{
    struct brick_reader *r = &d->reader;
    uint32_t all = r->header.lanes;
    *seen = d->passes % LOOK_AROUND == 0 || d->salvage ? all : (uint32_t)least(d->used + UINT64_C(1), all);
    for (;;) {
        if (!brick_fetch(r, r->layout.process, d->lines, sizeof *d->lines + *seen * sizeof d->lines->lanes[0]))
            return 0;
        for (uint32_t n = d->used; n < *seen; n++)
            if (d->lines->lanes[n].opened != 0)
                d->used = n + 1;
        if (d->used < *seen || *seen == all)
            return 1;
        *seen = (uint32_t)least(*seen * UINT64_C(2), all);
    }
}

/* Decides for the lanes that came into view. */
static int start(struct brick_drain *d, uint32_t seen)
{
    struct brick_reader *r = &d->reader;
    for (; d->started < seen; d->started++) {
        struct brick_drained_lane *l = &d->lanes[d->started];
        const struct brick_lane *lane = &d->lines->lanes[d->started];
        int saved = d->started < d->saved;
        if (!brick_fetch(r, r->layout.consumers + d->started * (uint64_t)sizeof l->line, &l->line, sizeof l->line))
            return 0;
        brick_span_start(&l->cursor, &l->line, lane->span_head, r->header.span_slots);
        d->breaks += (uint32_t)brick_event_start(&l->cursor, &l->line, lane, r->header.event_slots, saved);
    }
    return 1;
}

static int judge_head(struct brick_drain *d, uint32_t lane, const char *ring, uint64_t cursor, uint64_t head,
                      uint64_t slots)
{
    if (head < cursor)
        return brick_refuse(&d->reader, "lane %u: the head of the %s went back, from at least %llu to %llu", lane, ring,
                            (unsigned long long)cursor, (unsigned long long)head);
    if (head - cursor > slots)
        return brick_refuse(&d->reader, "lane %u: the head of the %s jumped from at most %llu to %llu", lane, ring,
                            (unsigned long long)(cursor + slots), (unsigned long long)head);
    return 1;
}

/* Copies what lies below the head, as far as batch and ring go in one piece: how many slots; 0: refused. */
static uint64_t copy(struct brick_drain *d, uint64_t ring, uint64_t slots, uint64_t at, uint64_t head,
                     struct brick_record *batch)
{
    uint64_t slot = at & (slots - 1), count = least(least(slots - slot, head - at), BRICK_BATCH);
    return brick_fetch(&d->reader, ring + slot * sizeof *batch, batch, count * sizeof *batch) ? count : 0;
}

static uint64_t ring_of(const struct brick_drain *d, uint32_t lane, uint64_t within)
{
    return d->reader.layout.first + lane * d->reader.layout.stride + within;
}

static int no_memory(struct brick_drain *d) { return brick_refuse(&d->reader, "no memory for its events"); }

static int drain_spans(struct brick_drain *d, uint32_t n, struct brick_record *batch)
{
    struct brick_drained_lane *l = &d->lanes[n];
    uint64_t head = d->lines->lanes[n].span_head + l->spans_salvaged, slots = d->reader.header.span_slots;
    uint64_t ring = ring_of(d, n, d->reader.layout.span_ring), from = l->cursor.span;
    if (from == head)
        return 1;
    if (!judge_head(d, n, "span ring", from, head, slots))
        return 0;
    struct brick_spans spans; /* not all zeros: it has room for many */
    spans.sequence = l->span_sequence;
    spans.kept = 0;
    while (l->cursor.span < head) {
        uint64_t count = copy(d, ring, slots, l->cursor.span, head, batch);
        if (count == 0)
            return 0;
        uint64_t done = brick_details_take(&d->details, &spans, batch, count, head - l->cursor.span);
        if (done == 0)
            return 0;
        l->cursor.span += done;
        l->span_sequence = spans.sequence;
    }
    brick_details_keep(&d->details, &spans);
    d->fill = most(d->fill, (double)(head - from) / (double)slots);
    return 1;
}

static int drain_events(struct brick_drain *d, uint32_t n, struct brick_record *batch)
{
    struct brick_event_cursor *c = &d->lanes[n].cursor.event;
    uint64_t head = d->lines->lanes[n].event_head + d->lanes[n].events_salvaged, slots = d->reader.header.event_slots;
    uint64_t ring = ring_of(d, n, d->reader.layout.event_ring), from = c->position;
    if (from == head)
        return 1;
    if (!judge_head(d, n, "event ring", from, head, slots))
        return 0;
    while (c->position < head && d->events.count < BRICK_EVENTS_MAX) {
        uint64_t count = copy(d, ring, slots, c->position, head, batch);
        if (count == 0)
            return 0;
        if (!brick_events_take(&d->events, c, batch, count, head - c->position, BRICK_EVENTS_MAX))
            return no_memory(d);
    }
    d->fill = most(d->fill, (double)(c->position - from) / ((double)slots * FRESH_PART));
    d->complete &= c->position == head;
    return 1;
}

/* ---- salvage ----------------------------------------------------------- */

/* The record at the head of a ring whose writer is dead, if it is whole (O9): the last number that was given, and above
 * that of the record below. 0: refused. */
static int salvaged(struct brick_drain *d, uint64_t ring, uint64_t slots, uint64_t head, uint64_t below,
                    uint64_t attempts, struct brick_record *record)
{
    struct brick_record last = {.sequence = below};
    uint64_t last_at = ring + ((head - 1) & (slots - 1)) * sizeof last;
    if (below == 0 && head > 0 && !brick_fetch(&d->reader, last_at, &last, sizeof last))
        return 0;
    if (!brick_fetch(&d->reader, ring + (head & (slots - 1)) * sizeof *record, record, sizeof *record))
        return 0;
    if (record->sequence != attempts || record->sequence <= last.sequence)
        record->slots = 0;
    return 1;
}

static int salvage(struct brick_drain *d, uint32_t n)
{
    struct brick_drained_lane *l = &d->lanes[n];
    const struct brick_lane *lane = &d->lines->lanes[n];
    const struct brick_header *h = &d->reader.header;
    const struct brick_layout *layout = &d->reader.layout;
    struct brick_record record;
    struct brick_spans spans = {.sequence = l->span_sequence, .kept = 0};
    if (!salvaged(d, ring_of(d, n, layout->span_ring), h->span_slots, lane->span_head, l->span_sequence,
                  lane->span_attempts, &record))
        return 0;
    if (record.slots == 1) {
        if (brick_details_take(&d->details, &spans, &record, 1, 1) == 0)
            return 0;
        brick_details_keep(&d->details, &spans);
        l->span_sequence = spans.sequence;
        l->cursor.span++;
        l->spans_salvaged++;
    }
    if (!salvaged(d, ring_of(d, n, layout->event_ring), h->event_slots, lane->event_head, l->cursor.event.sequence,
                  lane->event_attempts, &record))
        return 0;
    uint64_t before = l->cursor.event.position;
    if (record.slots == 1
        && !brick_events_take(&d->events, &l->cursor.event, &record, 1, 1, BRICK_EVENTS_MAX + BRICK_LANES_MAX))
        return no_memory(d);
    l->events_salvaged += l->cursor.event.position - before;
    return 1;
}

int brick_drain_pass(struct brick_drain *d, struct brick_record *batch)
{
    uint32_t seen;
    d->events.count = 0;
    d->fill = d->held = 0;
    d->complete = 1;
    if (d->refused)
        return 0;
    d->refused = 1;
    if (!look(d, &seen))
        return 0;
    brick_fence_acquire(); /* O11 */
    if (!start(d, seen))
        return 0;
    d->passes++;
    d->activity = 0;
    for (uint32_t n = 0; n < d->used; n++) {
        const struct brick_lane *lane = &d->lines->lanes[n];
        d->activity += lane->begun + lane->summarized + lane->event_attempts;
        if (!drain_spans(d, n, batch) || !drain_events(d, n, batch))
            return 0;
        const struct brick_drained_lane *l = &d->lanes[n];
        d->held = most(d->held, brick_event_held(&l->cursor, &l->line, lane->event_head, d->reader.header.event_slots));
    }
    for (uint32_t n = 0; d->salvage && d->complete && n < d->used; n++)
        if (!salvage(d, n))
            return 0;
    d->salvage &= !d->complete;
    d->refused = 0;
    return 1;
}

static double waiting(uint64_t head, uint64_t cursor, double room)
{
    return head < cursor ? 1 : (double)(head - cursor) / room;
}

double brick_drain_waiting(struct brick_drain *d)
{
    const struct brick_reader *r = &d->reader;
    const struct brick_header *h = &r->header;
    uint32_t seen = (uint32_t)least(d->used + UINT64_C(1), h->lanes);
    double fullest = 0;
    if (d->refused)
        return 0;
    if (!brick_fetch(&d->reader, r->layout.lanes, d->lines->lanes, seen * sizeof d->lines->lanes[0]))
        return 1; /* the pass will say why */
    for (uint32_t n = 0; n < seen; n++) {
        const struct brick_drained_lane *l = &d->lanes[n];
        const struct brick_lane *lane = &d->lines->lanes[n];
        fullest = most(fullest, waiting(lane->span_head + l->spans_salvaged, l->cursor.span, h->span_slots));
        fullest = most(fullest, waiting(lane->event_head + l->events_salvaged, l->cursor.event.position,
                                        h->event_slots * FRESH_PART));
    }
    return fullest;
}

/* ---- what is to be written --------------------------------------------- */

uint32_t brick_drain_tails(struct brick_drain *d, int events, uint32_t *first, struct brick_consumer *halfway,
                           struct brick_consumer *whole)
{
    uint32_t end = 0;
    *first = 0;
    for (uint32_t n = 0; n < d->used && n < d->started; n++) {
        struct brick_drained_lane *l = &d->lanes[n];
        struct brick_cursor given = l->cursor; /* no further than the head: the writer would not believe it */
        given.span -= l->spans_salvaged;
        given.event.position -= l->events_salvaged;
        if (brick_cursor_publish(&given, &l->line, events, &halfway[n], &whole[n])) {
            *first = end == 0 ? n : *first;
            end = n + 1;
        }
        l->line = whole[n];
    }
    return end - *first;
}
