#include "events.h"

#include "record_walk.h"

#include <stdlib.h>
#include <string.h>

/* These functions return whether a record is valid, one for each kind in BRICK_EVENT_KINDS. A valid time or amount
 * never has its highest bit set. */
static int defer_possible(const struct brick_events *e, const struct brick_defer *r)
{
    return r->slots == 1 && r->path < e->paths && (int64_t)(r->start | r->elements | r->bytes) >= 0;
}

static int finalize_possible(const struct brick_events *e, const struct brick_finalize *r)
{
    (void)e;
    return r->slots == 1 && (int64_t)r->ticks >= 0;
}

static int measured_possible(const struct brick_events *e, const struct brick_measured *r)
{
    (void)e;
    return r->slots == 1 && (int64_t)r->elapsed_ns >= 0;
}

static int checked_possible(const struct brick_events *e, const struct brick_checked *r)
{
    return brick_checked_possible(r) && r->site < e->sites;
}

static int source_possible(const struct brick_events *e, const struct brick_source_piece *r)
{
    (void)e;
    return r->slots == 1;
}

static int canary_possible(const struct brick_events *e, const struct brick_source_piece *r)
{
    (void)e;
    return r->slots == 1;
}

static int step_text_possible(const struct brick_events *e, const struct brick_step_text *r)
{
    (void)e;
    return brick_step_text_possible(r);
}

enum judged { IMPOSSIBLE, POSSIBLE, UNKNOWN };

static enum judged judge(const struct brick_events *e, const struct brick_record *r)
{
    switch (r->kind) {
#define KIND(NAME, number, name, record)                                                                                \
    case BRICK_KIND_##NAME:                                                                                             \
        return name##_possible(e, (const struct brick_##record *)(const void *)r) ? POSSIBLE : IMPOSSIBLE;
        BRICK_EVENT_KINDS(KIND)
#undef KIND
    default:
        return UNKNOWN;
    }
}

static int grow(struct brick_record **slots, size_t count, size_t *room, size_t more)
{
    if (count + more <= *room)
        return 1;
    const size_t larger = *room > 0 ? 2 * *room : 64;
    struct brick_record *moved = realloc(*slots, larger * sizeof *moved);
    if (moved == NULL)
        return 0;
    *slots = moved;
    *room = larger;
    return 1;
}

void brick_events_rest(struct brick_events *e, const struct brick_record *slots, uint64_t count)
{
    const uint64_t here = brick_least(e->owed, count);
    if (here == 0)
        return;
    memcpy(e->checked + e->slots, slots, here * sizeof *slots);
    e->slots += here;
    e->owed -= here;
    e->whole = e->owed == 0 ? e->slots : e->whole;
}

/* Appends a record. If it is a checksum of which only the first `there` slots are copied, makes room for the others. */
static int append(struct brick_events *e, const struct brick_record *r, uint64_t there)
{
    if (r->kind != BRICK_KIND_CHECKED) {
        if (!grow(&e->records, e->count, &e->room, 1))
            return 0;
        e->records[e->count++] = *r;
        return 1;
    }
    if (!grow(&e->checked, e->slots, &e->slots_room, r->slots))
        return 0;
    e->owed = r->slots;
    brick_events_rest(e, r, there);
    return 1;
}

/* Counts a dropped record for each sequence number that is missing between this record and the last one. If the last
 * sequence is unknown, counts nothing. */
static void follow(struct brick_events *e, struct brick_event_cursor *c, uint64_t sequence)
{
    if (c->sequence != 0 || c->records == 0)
        e->gaps += sequence - c->sequence - 1;
    c->sequence = sequence;
}

int brick_events_take(struct brick_events *e, struct brick_event_cursor *c, const struct brick_record *slots,
                      uint64_t count, uint64_t left, size_t most)
{
    for (uint64_t i = 0; i < count && e->count + e->slots < most;) {
        const struct brick_record *r = &slots[i];
        if (r->slots == 0 || r->slots > left - i) { /* the start of the next record cannot be known */
            e->rejected++;
            c->records++;
            c->position += left - i;
            return 1;
        }
        const enum judged judged = judge(e, r);
        if (r->sequence <= c->sequence || judged == IMPOSSIBLE) {
            e->rejected++;
        } else {
            if (judged == POSSIBLE && !append(e, r, count - i))
                return 0;
            e->skipped += judged == UNKNOWN;
            follow(e, c, r->sequence);
        }
        c->records++;
        c->position += r->slots;
        i += r->slots;
    }
    return 1;
}
