#include "drain_ring.h"

#include <stdlib.h>
#include <string.h>

/* Every 64th pass looks at all lanes, and not only up to the first unused lane: a thread that got no memory for its
 * lane leaves an unused lane between used ones. */
#define LOOK_AROUND 64u

int brick_drain_open(struct brick_drain *d, uint64_t file_size)
{
    struct brick_reader *r = &d->reader;
    if (!brick_reader_open(r, file_size))
        return 0;
    d->lanes = calloc(r->header.lanes, sizeof *d->lanes);
    if (d->lanes == NULL)
        return brick_refuse(r, "no memory for %u lanes", r->header.lanes);
    d->details.reader = r;
    d->events.paths = r->header.paths;
    d->events.sites = r->header.sites;
    d->complete = 1;
    return 1;
}

void brick_drain_free(struct brick_drain *d)
{
    brick_details_free(&d->details);
    free(d->events.records);
    free(d->events.checked);
    free(d->lanes);
}

uint64_t brick_drain_resident(const struct brick_drain *d)
{
    return d->reader.header.lanes * sizeof *d->lanes + brick_details_resident(&d->details);
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

static double most(double a, double b) { return a > b ? a : b; }

/* Reads the process line, and the lane lines up to the first lane that no thread has used. */
static int look(struct brick_drain *d, uint32_t *seen)
{
    struct brick_reader *r = &d->reader;
    struct brick_scratch *lines = d->scratch;
    uint32_t all = r->header.lanes;
    *seen = d->passes % LOOK_AROUND == 0 || d->salvage ? all : (uint32_t)brick_least(d->used + UINT64_C(1), all);
    for (;;) {
        if (!brick_fetch(r, r->layout.process, &lines->process, sizeof lines->process + *seen * sizeof lines->lanes[0]))
            return 0;
        d->ended = lines->process.reserved[BRICK_PROCESS_ENDED] != 0;
        for (uint32_t n = d->used; n < *seen; n++)
            if (lines->lanes[n].opened != 0)
                d->used = n + 1;
        if (d->used < *seen || *seen == all)
            return 1;
        *seen = (uint32_t)brick_least(*seen * UINT64_C(2), all);
    }
}

static int start(struct brick_drain *d, uint32_t seen)
{
    struct brick_reader *r = &d->reader;
    for (; d->started < seen; d->started++) {
        struct brick_drained_lane *l = &d->lanes[d->started];
        const struct brick_lane *lane = &d->scratch->lanes[d->started];
        int saved = d->started < d->saved;
        if (!brick_fetch(r, r->layout.consumers + d->started * (uint64_t)sizeof l->line, &l->line, sizeof l->line))
            return 0;
        brick_span_start(&l->cursor, &l->line, lane->span_head, r->header.span_slots);
        d->breaks += (uint32_t)brick_event_start(&l->cursor, &l->line, lane, r->header.event_slots, saved);
    }
    return 1;
}

int brick_drain_pass(struct brick_drain *d, struct brick_scratch *scratch)
{
    uint32_t seen;
    d->scratch = scratch;
    d->left[BRICK_RING_SPANS] = d->left[BRICK_RING_EVENTS] = BRICK_PASS_SLOTS;
    d->events.count = d->events.slots = d->events.whole = d->events.owed = 0;
    d->fill = d->held = 0;
    d->complete = 1;
    if (d->refused)
        return 0;
    d->refused = 1;
    if (!look(d, &seen))
        return 0;
    brick_fence_acquire(); /* O11 in brick_shm.h: the records below these heads are complete */
    if (!start(d, seen))
        return 0;
    d->passes++;
    d->activity = 0;
    for (uint32_t n = 0; n < d->used; n++) {
        const struct brick_lane *lane = &scratch->lanes[n];
        d->activity += lane->begun + lane->summarized + lane->event_attempts;
        if (!brick_drain_ring(d, n, BRICK_RING_SPANS) || !brick_drain_ring(d, n, BRICK_RING_EVENTS))
            return 0;
        const struct brick_drained_lane *l = &d->lanes[n];
        d->held = most(d->held, brick_event_held(&l->cursor, &l->line, lane->event_head, d->reader.header.event_slots));
    }
    for (uint32_t n = 0; d->salvage && d->complete && n < d->used; n++)
        if (!brick_drain_salvage(d, n))
            return 0;
    d->salvage &= !d->complete;
    d->refused = 0;
    return 1;
}

static double waiting(uint64_t head, uint64_t cursor, double room)
{
    return head < cursor ? 1 : (double)(head - cursor) / room;
}

double brick_drain_waiting(struct brick_drain *d, struct brick_scratch *scratch)
{
    const struct brick_reader *r = &d->reader;
    const struct brick_header *h = &r->header;
    uint32_t seen = (uint32_t)brick_least(d->used + UINT64_C(1), h->lanes);
    double fullest = 0;
    if (d->refused)
        return 0;
    if (!brick_fetch(&d->reader, r->layout.lanes, scratch->lanes, seen * sizeof scratch->lanes[0]))
        return 1; /* the caller then makes a pass, which reports the reason */
    for (uint32_t n = 0; n < seen; n++) {
        const struct brick_drained_lane *l = &d->lanes[n];
        const struct brick_lane *lane = &scratch->lanes[n];
        fullest = most(fullest, waiting(lane->span_head + l->spans_salvaged, l->cursor.span, h->span_slots));
        fullest = most(fullest, waiting(lane->event_head + l->events_salvaged, l->cursor.event.position,
                                        h->event_slots * BRICK_FRESH_PART));
    }
    return fullest;
}

/* ---- the tails to write ------------------------------------------------- */

uint32_t brick_drain_tails(struct brick_drain *d, int events, uint32_t *first, struct brick_consumer *halfway,
                           struct brick_consumer *whole)
{
    uint32_t end = 0;
    *first = 0;
    for (uint32_t n = 0; n < d->used && n < d->started; n++) {
        struct brick_drained_lane *l = &d->lanes[n];
        struct brick_cursor cursor = l->cursor; /* a tail beyond the head is invalid, so subtract salvaged slots */
        cursor.span -= l->spans_salvaged;
        cursor.event.position -= l->events_salvaged;
        if (brick_cursor_publish(&cursor, &l->line, events, &halfway[n], &whole[n])) {
            *first = end == 0 ? n : *first;
            end = n + 1;
        }
        l->line = whole[n];
    }
    return end - *first;
}
