#include "events.h"

#include "record_walk.h"

#include <stdlib.h>
#include <string.h>

static int known(uint16_t kind) { return kind >= BRICK_KIND_DEFER && kind <= BRICK_KIND_SOURCE; }

/* No time and no amount that can be has the highest bit. */
static int possible(const struct brick_record *r, uint32_t paths, uint32_t sites)
{
    const struct brick_checked *checked = (const struct brick_checked *)(const void *)r;
    const struct brick_defer *defer = (const struct brick_defer *)(const void *)r;
    const struct brick_finalize *finalize = (const struct brick_finalize *)(const void *)r;
    const struct brick_measured *measured = (const struct brick_measured *)(const void *)r;
    if (r->kind == BRICK_KIND_CHECKED)
        return brick_checked_possible(checked) && checked->site < sites;
    if (r->slots != 1)
        return 0;
    if (r->kind == BRICK_KIND_DEFER)
        return defer->path < paths && (int64_t)(defer->start | defer->elements | defer->bytes) >= 0;
    if (r->kind == BRICK_KIND_FINALIZE)
        return (int64_t)finalize->ticks >= 0;
    return r->kind != BRICK_KIND_MEASURED || (int64_t)measured->elapsed_ns >= 0;
}

/* Room for so many more. 0: there is no memory. */
static int grow(struct brick_record **slots, size_t count, size_t *room, size_t more)
{
    if (count + more <= *room)
        return 1;
    size_t wanted = *room > 0 ? 2 * *room : 64;
    struct brick_record *moved = realloc(*slots, wanted * sizeof *moved);
    if (moved == NULL)
        return 0;
    *slots = moved;
    *room = wanted;
    return 1;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

void brick_events_rest(struct brick_events *e, const struct brick_record *slots, uint64_t count)
{
    const uint64_t here = least(e->owed, count);
    if (here == 0)
        return;
    memcpy(e->checked + e->slots, slots, here * sizeof *slots);
    e->slots += here;
    e->owed -= here;
    e->whole = e->owed == 0 ? e->slots : e->whole;
}

/* With as many of its slots as there are; for the others there is room. */
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

/* Numbers between two records were drops; between nothing known and a record nothing can be said. */
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
        if (r->slots == 0 || r->slots > left - i) { /* where the next one begins is not known */
            e->rejected++;
            c->records++;
            c->position += left - i;
            return 1;
        }
        if (r->sequence <= c->sequence || (known(r->kind) && !possible(r, e->paths, e->sites))) {
            e->rejected++;
        } else {
            if (known(r->kind) && !append(e, r, count - i))
                return 0;
            e->skipped += !known(r->kind);
            follow(e, c, r->sequence);
        }
        c->records++;
        c->position += r->slots;
        i += r->slots;
    }
    return 1;
}
