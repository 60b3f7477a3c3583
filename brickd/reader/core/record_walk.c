#include "record_walk.h"

#include <string.h>

uint64_t brick_walk(const struct brick_record *slots, uint64_t at, uint64_t from)
{
    while (at < from) {
        if (slots[at].slots == 0)
            return UINT64_MAX;
        at += slots[at].slots;
    }
    return at;
}

void brick_walk_checked(const struct brick_record *slots, uint64_t at, uint64_t count, struct brick_record *to,
                        struct brick_walked *w)
{
    w->cut = count;
    w->slots = w->missing = w->rejected = 0;
    for (; at < count && slots[at].slots > 0; at += slots[at].slots) {
        const struct brick_record *r = &slots[at];
        const int checked = r->kind == BRICK_KIND_CHECKED, follows = r->sequence > w->last;
        if (checked && (!follows || !brick_checked_possible((const struct brick_checked *)(const void *)r))) {
            w->rejected++;
            continue;
        }
        if (checked && r->slots > count - at) { /* this checksum is incomplete; do not copy it */
            w->cut = at;
            return;
        }
        if (follows) {
            w->missing += w->last != 0 ? r->sequence - w->last - 1 : 0;
            w->last = r->sequence;
        }
        if (checked) {
            memcpy(to + w->slots, r, r->slots * sizeof *r);
            w->slots += r->slots;
        }
    }
    w->rejected += at < count; /* a record with no slots: the start of the next record cannot be known */
}
