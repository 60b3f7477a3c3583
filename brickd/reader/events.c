#include "events.h"

#include <stdlib.h>

static int known(uint16_t kind) { return kind >= BRICK_KIND_DEFER && kind <= BRICK_KIND_CHECKED; }

/* What a first slot alone can tell; its tensors are bits. */
static int checked_possible(const struct brick_record *r, uint32_t sites)
{
    const struct brick_checked *c = (const struct brick_checked *)(const void *)r;
    return c->inputs <= BRICK_INPUTS_MAX && c->slots == BRICK_CHECKED_SLOTS(c->inputs) && c->site < sites
           && c->relation < BRICK_RELATIONS && (int64_t)c->ticks >= 0;
}

/* No time and no amount that can be has the highest bit. */
static int possible(const struct brick_record *r, uint32_t paths, uint32_t sites)
{
    if (r->kind == BRICK_KIND_CHECKED)
        return checked_possible(r, sites);
    const struct brick_defer *defer = (const struct brick_defer *)(const void *)r;
    const struct brick_finalize *finalize = (const struct brick_finalize *)(const void *)r;
    const struct brick_measured *measured = (const struct brick_measured *)(const void *)r;
    if (r->slots != 1)
        return 0;
    if (r->kind == BRICK_KIND_DEFER)
        return defer->path < paths && (int64_t)(defer->start | defer->elements | defer->bytes) >= 0;
    if (r->kind == BRICK_KIND_FINALIZE)
        return (int64_t)finalize->ticks >= 0;
    return (int64_t)measured->elapsed_ns >= 0;
}

static int append(struct brick_events *e, const struct brick_record *r)
{
    if (e->count == e->room) {
        size_t room = e->room > 0 ? 2 * e->room : 64;
        struct brick_record *more = realloc(e->records, room * sizeof *more);
        if (more == NULL)
            return 0;
        e->records = more;
        e->room = room;
    }
    e->records[e->count++] = *r;
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
    for (uint64_t i = 0; i < count && e->count < most;) {
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
            if (known(r->kind) && r->kind != BRICK_KIND_CHECKED && !append(e, r))
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
