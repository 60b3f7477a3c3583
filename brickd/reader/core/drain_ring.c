#include "drain_ring.h"

#include <string.h>

static double most(double a, double b) { return a > b ? a : b; }

/* A ring as one pass sees it. */
struct ring {
    uint32_t lane, which;
    uint64_t at; /* the offset of the ring in the file */
    uint64_t slots, head;
};

static struct ring ring_of(const struct brick_drain *d, uint32_t n, uint32_t which)
{
    const struct brick_drained_lane *l = &d->lanes[n];
    const struct brick_lane *lane = &d->scratch->lanes[n];
    const struct brick_reader *r = &d->reader;
    uint64_t first = r->layout.first + n * r->layout.stride;
    if (which == BRICK_RING_SPANS)
        return (struct ring){n, which, first + r->layout.span_ring, r->header.span_slots,
                             lane->span_head + l->spans_salvaged};
    return (struct ring){n, which, first + r->layout.event_ring, r->header.event_slots,
                         lane->event_head + l->events_salvaged};
}

static int judge_head(struct brick_drain *d, const struct ring *ring, uint64_t cursor)
{
    const char *name = ring->which == BRICK_RING_SPANS ? "span ring" : "event ring";
    if (ring->head < cursor)
        return brick_refuse(&d->reader, "lane %u: the head of the %s moved back from at least %llu to %llu", ring->lane,
                            name, (unsigned long long)cursor, (unsigned long long)ring->head);
    if (ring->head - cursor > ring->slots)
        return brick_refuse(&d->reader, "lane %u: the head of the %s jumped from at most %llu to %llu", ring->lane, name,
                            (unsigned long long)(cursor + ring->slots), (unsigned long long)ring->head);
    return 1;
}

/* Copied slots. They are in the spool if it had room (`recorded`), otherwise in the batch. */
struct copied {
    struct brick_record *slots;
    uint64_t count; /* 0: the segment was refused */
    int recorded;
};

/* Copies slots from `at` on: at most `limit` slots, at most a batch, not beyond the head or the end of the ring. The
 * next record begins at `next`. */
static struct copied copy(struct brick_drain *d, const struct ring *ring, uint64_t at, uint64_t next, uint64_t limit)
{
    uint64_t slot = at & (ring->slots - 1);
    uint64_t count = brick_least(brick_least(ring->slots - slot, ring->head - at), brick_least(BRICK_BATCH, limit));
    const struct brick_stretch stretch = {ring->lane, ring->which, at, count, next - at};
    struct brick_record *room = brick_track_room(&d->track, &stretch);
    struct brick_record *to = room != NULL ? room : d->scratch->batch;
    if (!brick_fetch(&d->reader, ring->at + slot * sizeof *to, to, count * sizeof *to))
        count = 0;
    return (struct copied){to, count, room != NULL};
}

/* Counts `count` of the copied slots as recorded, or as lost for the recording. These slots are not copied again. */
static void looked_at(struct brick_drain *d, const struct copied *c, uint64_t count)
{
    if (c->recorded)
        brick_track_took(&d->track, count);
    else
        brick_track_lost(&d->track, count);
}

static int no_memory(struct brick_drain *d) { return brick_refuse(&d->reader, "no memory for the segment's events"); }

/* Returns how many slots the pass may copy next. This is the rest of its budget. If no budget is left, it is the rest
 * of a record that was copied in part. If that rest is longer than any record can be, it is not copied: the slots up to
 * `next` were skipped, because it is not known where a record begins among them. */
static uint64_t more(const struct brick_drain *d, const struct ring *ring, uint64_t at, uint64_t next)
{
    const uint64_t left = d->left[ring->which], rest = at < next ? next - at : 0;
    return left > 0 ? left : rest <= UINT16_MAX ? rest : 0;
}

static void count_copied(struct brick_drain *d, const struct ring *ring, uint64_t count)
{
    d->left[ring->which] -= brick_least(d->left[ring->which], count);
}

static void pass_over(struct brick_drain *d, uint64_t at, uint64_t next)
{
    if (at < next)
        brick_track_lost(&d->track, next - at);
}

/* A record may extend past the copied slots. Then its other slots are copied next, and not validated again. */
static int take_spans(struct brick_drain *d, const struct ring *ring)
{
    struct brick_drained_lane *l = &d->lanes[ring->lane];
    uint64_t *cursor = &l->cursor.span;
    struct brick_spans spans; /* too large to be filled with zeros each time */
    spans.sequence = l->span_sequence;
    spans.kept = 0;
    uint64_t at = *cursor;
    for (uint64_t limit; at < ring->head && (limit = more(d, ring, at, *cursor)) > 0;) {
        struct copied c = copy(d, ring, at, *cursor > at ? *cursor : at, limit);
        if (c.count == 0)
            return 0;
        if (*cursor < at + c.count) {
            uint64_t skip = *cursor - at;
            uint64_t done = brick_details_take(&d->details, &spans, c.slots + skip, c.count - skip, ring->head - *cursor);
            if (done == 0)
                return 0;
            *cursor += done;
            l->span_sequence = spans.sequence;
        }
        looked_at(d, &c, c.count);
        at += c.count;
        count_copied(d, ring, c.count);
    }
    pass_over(d, at, *cursor);
    brick_details_keep(&d->details, &spans);
    return 1;
}

static int take_events(struct brick_drain *d, const struct ring *ring)
{
    struct brick_event_cursor *c = &d->lanes[ring->lane].cursor.event;
    const struct brick_events *e = &d->events;
    uint64_t at = c->position;
    for (uint64_t limit; at < ring->head && (at < c->position || e->count + e->slots < BRICK_EVENTS_MAX)
                        && (limit = more(d, ring, at, c->position)) > 0;) {
        struct copied copied = copy(d, ring, at, c->position, limit);
        if (copied.count == 0)
            return 0;
        brick_events_rest(&d->events, copied.slots, brick_least(copied.count, c->position - at));
        if (c->position < at + copied.count) {
            uint64_t skip = c->position - at;
            if (!brick_events_take(&d->events, c, copied.slots + skip, copied.count - skip, ring->head - c->position,
                                   BRICK_EVENTS_MAX))
                return no_memory(d);
        }
        uint64_t done = brick_least(copied.count, c->position - at);
        looked_at(d, &copied, done);
        at += done;
        count_copied(d, ring, copied.count);
    }
    pass_over(d, at, c->position);
    return 1;
}

int brick_drain_ring(struct brick_drain *d, uint32_t n, uint32_t which)
{
    const struct ring ring = ring_of(d, n, which);
    const int spans = which == BRICK_RING_SPANS;
    const uint64_t *cursor = spans ? &d->lanes[n].cursor.span : &d->lanes[n].cursor.event.position;
    const uint64_t from = *cursor;
    if (from == ring.head)
        return 1;
    if (!judge_head(d, &ring, from))
        return 0;
    const int whole = spans ? take_spans(d, &ring) : take_events(d, &ring);
    const double fill = spans ? (double)(ring.head - from) / (double)ring.slots
                              : (double)(*cursor - from) / ((double)ring.slots * BRICK_FRESH_PART);
    brick_track_end(&d->track);
    d->fill = most(d->fill, fill);
    d->complete &= *cursor == ring.head;
    return whole;
}

/* ---- salvage ----------------------------------------------------------- */

static int slot_at(struct brick_drain *d, const struct ring *ring, uint64_t at, struct brick_record *slot)
{
    return brick_fetch(&d->reader, ring->at + (at & (ring->slots - 1)) * sizeof *slot, slot, sizeof *slot);
}

/* Reads the first slot of the record at the head of a dead writer's ring. The record is complete (O9 in brick_shm.h) if
 * its sequence is the last one that the writer assigned, and above the sequence of the record before it. If the record
 * is incomplete, sets its `slots` to 0. Returns 0 if the segment is refused. */
static int salvaged(struct brick_drain *d, const struct ring *ring, uint64_t head, uint64_t below, uint64_t attempts,
                    struct brick_record *record)
{
    struct brick_record last = {.sequence = below};
    if (below == 0 && head > 0 && !slot_at(d, ring, head - 1, &last))
        return 0;
    if (last.sequence > attempts) /* this slot is not the start of a record, but the end of a longer one */
        last.sequence = 0;
    if (!slot_at(d, ring, head, record))
        return 0;
    if (record->sequence != attempts || record->sequence <= last.sequence)
        record->slots = 0;
    return 1;
}

static void record_some(struct brick_drain *d, const struct ring *ring, uint64_t at, const struct brick_record *slots,
                        uint64_t count)
{
    const struct brick_stretch stretch = {ring->lane, ring->which, at, count, 0};
    struct copied c = {.slots = brick_track_room(&d->track, &stretch), .count = count};
    c.recorded = c.slots != NULL;
    if (c.recorded)
        memcpy(c.slots, slots, count * sizeof *slots);
    looked_at(d, &c, count);
    brick_track_end(&d->track);
}

static int salvage_span(struct brick_drain *d, uint32_t n)
{
    struct brick_drained_lane *l = &d->lanes[n];
    const struct brick_lane *lane = &d->scratch->lanes[n];
    const struct ring ring = ring_of(d, n, BRICK_RING_SPANS);
    struct brick_spans spans = {.sequence = l->span_sequence, .kept = 0};
    struct brick_record record;
    if (!salvaged(d, &ring, lane->span_head, l->span_sequence, lane->span_attempts, &record))
        return 0;
    if (record.slots != 1)
        return 1;
    if (brick_details_take(&d->details, &spans, &record, 1, 1) == 0)
        return 0;
    brick_details_keep(&d->details, &spans);
    record_some(d, &ring, l->cursor.span, &record, 1);
    l->span_sequence = spans.sequence;
    l->cursor.span++;
    l->spans_salvaged++;
    return 1;
}

static int salvage_event(struct brick_drain *d, uint32_t n)
{
    struct brick_drained_lane *l = &d->lanes[n];
    const struct brick_lane *lane = &d->scratch->lanes[n];
    const struct ring ring = ring_of(d, n, BRICK_RING_EVENTS);
    uint64_t before = l->cursor.event.position;
    struct brick_record slots[BRICK_CHECKED_SLOTS_MAX];
    if (!salvaged(d, &ring, lane->event_head, l->cursor.event.sequence, lane->event_attempts, slots))
        return 0;
    const uint64_t count = slots[0].slots;
    if (count != 1 && (slots[0].kind != BRICK_KIND_CHECKED || count == 0 || count > brick_least(BRICK_CHECKED_SLOTS_MAX, ring.slots)))
        return 1;
    for (uint64_t i = 1; i < count; i++)
        if (!slot_at(d, &ring, lane->event_head + i, &slots[i]))
            return 0;
    if (!brick_events_take(&d->events, &l->cursor.event, slots, count, count, SIZE_MAX))
        return no_memory(d);
    record_some(d, &ring, before, slots, count);
    l->events_salvaged += l->cursor.event.position - before;
    return 1;
}

int brick_drain_salvage(struct brick_drain *d, uint32_t n) { return salvage_span(d, n) && salvage_event(d, n); }
