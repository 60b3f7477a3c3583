#include "details.h"
#include "entry.h"

#include <stdlib.h>
#include <string.h>

/* Above it lies no time and no amount that can be. */
#define LIMIT_BITS 62

/* All at once: one branch for a record that can be, which is every one of an honest worker. */
static inline int possible(const struct brick_span *s, uint32_t paths, uint64_t sequence)
{
    uint64_t large = (s->start | s->duration | s->child | s->elements | s->bytes) >> LIMIT_BITS;
    return (s->path < paths) & (large == 0) & (s->sequence > sequence)
           & ((s->kind == BRICK_KIND_SPAN) | (s->bytes <= s->elements));
}

static struct brick_detail *detail_make(struct brick_details *d, uint32_t path)
{
    if (d->by_path == NULL && (d->by_path = calloc(d->paths, sizeof *d->by_path)) == NULL)
        return NULL;
    if (d->by_path[path] == NULL)
        d->by_path[path] = calloc(1, sizeof *d->by_path[path]);
    d->end = d->end > path ? d->end : path + 1;
    return d->by_path[path];
}

static inline int fold(struct brick_details *d, const struct brick_span *s)
{
    struct brick_detail *to = d->by_path != NULL ? d->by_path[s->path] : NULL;
    if (to == NULL && (to = detail_make(d, s->path)) == NULL)
        return 0;
    /* A step's rows are in its record; its summary has the valid ones, and no bytes. */
    int is_step = s->kind == BRICK_KIND_STEP;
    uint64_t elements = is_step ? s->bytes : s->elements, bytes = is_step ? 0 : s->bytes;
    if (s->duration > to->summary.max || to->summary.count == 0) {
        to->start = s->start;
        to->step = s->step;
        to->elements = elements;
    }
    brick_entry_span(&to->summary, s->duration, s->child, elements, bytes);
    d->spans++;
    return 1;
}

uint64_t brick_details_fold(struct brick_details *d, struct brick_spans *lane, const struct brick_record *slots,
                            uint64_t count, uint64_t left)
{
    for (uint64_t i = 0; i < count;) {
        const struct brick_span *s = (const struct brick_span *)(const void *)&slots[i];
        if (s->slots == 0 || s->slots > left - i) { /* where the next one begins is not known */
            d->rejected++;
            return left;
        }
        if (s->kind != BRICK_KIND_SPAN && s->kind != BRICK_KIND_STEP) {
            d->skipped++;
        } else if (s->slots != 1 || !possible(s, d->paths, lane->sequence)) {
            d->rejected++;
        } else {
            if (!fold(d, s))
                return 0;
            lane->sequence = s->sequence;
            if (left - i <= BRICK_RECENT)
                lane->newest[lane->kept++] = *s;
        }
        i += s->slots;
        if (i >= count)
            return i;
    }
    return count;
}

/* When a span ended. Of a time that was given it lies too late; then others stand before it that came after. */
static uint64_t end_of(const struct brick_span *s) { return s->start + s->duration; }

void brick_details_keep(struct brick_details *d, const struct brick_spans *lane)
{
    struct brick_span merged[BRICK_RECENT];
    uint32_t old = d->kept, new = lane->kept, at = BRICK_RECENT;
    while (at > 0 && old + new > 0) { /* from the newest on; each side keeps its order */
        int takes_new = old == 0 || (new > 0 && end_of(&lane->newest[new - 1]) >= end_of(&d->recent[old - 1]));
        merged[--at] = takes_new ? lane->newest[--new] : d->recent[--old];
    }
    d->kept = BRICK_RECENT - at;
    memcpy(d->recent, merged + at, d->kept * sizeof *merged);
}

void brick_details_free(struct brick_details *d)
{
    for (uint32_t path = 0; d->by_path != NULL && path < d->end; path++)
        free(d->by_path[path]);
    free(d->by_path);
    d->by_path = NULL;
}
