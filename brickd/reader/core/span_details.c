#include "span_details.h"

#include <stdlib.h>
#include <string.h>

/* A valid time or amount never has its highest bit set. */
static inline int amounts_possible(const struct brick_span *s)
{
    return (int64_t)(s->start | s->duration | s->child | s->elements | s->bytes) >= 0;
}

static inline void be_longest(struct brick_longest *to, const struct brick_span *s, uint64_t elements)
{
    to->duration = s->duration;
    to->start = s->start;
    to->step = s->step;
    to->elements = elements;
}

/* Path, slots and kind are in one word of 64 bits. Returns this word XOR the bits of the usual slots and kind. So the
 * result is the path of a usual span, and an impossible path for every other record. */
static inline uint64_t usual_path(const struct brick_span *s)
{
    uint64_t word;
    memcpy(&word, (const char *)s + offsetof(struct brick_span, path), sizeof word);
    return word ^ (UINT64_C(1) << 32 | (uint64_t)BRICK_KIND_SPAN << 48);
}

/* Reads spans of one slot on known paths, and stops at the first other record. This is the hot loop. */
static uint64_t take_usual(struct brick_details *d, struct brick_spans *lane, const struct brick_record *slots,
                           uint64_t count)
{
    struct brick_longest **by_path = d->by_path;
    const uint64_t paths = by_path != NULL ? d->reader->header.paths : 0;
    const struct brick_span *s = (const struct brick_span *)(const void *)slots, *first = s, *end = s + count;
    uint64_t sequence = lane->sequence;
    for (; s < end; s++) {
        uint64_t path = usual_path(s);
        if (path >= paths || by_path[path] == NULL || !amounts_possible(s) || s->sequence <= sequence)
            break;
        sequence = s->sequence;
        if (__builtin_expect(s->duration > by_path[path]->duration, 0))
            be_longest(by_path[path], s, s->elements);
    }
    lane->sequence = sequence;
    d->spans += (uint64_t)(s - first);
    return (uint64_t)(s - first);
}

/* Creates the entry of a path at its first record. The path is already in the table of paths, because the writer stores
 * it there before it writes the record. */
static struct brick_longest *longest_make(struct brick_details *d, uint32_t path)
{
    uint64_t key;
    if (!brick_fetch(d->reader, d->reader->layout.paths + path * (uint64_t)sizeof key, &key, sizeof key))
        return NULL;
    if (d->by_path == NULL)
        d->by_path = calloc(d->reader->header.paths, sizeof *d->by_path);
    struct brick_longest *made = d->by_path != NULL ? calloc(1, sizeof *made) : NULL;
    if (made == NULL) {
        brick_refuse(d->reader, "no memory for the spans of path %u", path);
        return NULL;
    }
    made->given = brick_key_unit(key) == BRICK_UNIT_NS;
    d->by_path[path] = made;
    d->paths++;
    d->end = d->end > path ? d->end : path + 1;
    return made;
}

static int take_any(struct brick_details *d, struct brick_spans *lane, const struct brick_span *s, int newest)
{
    /* The record of a step has the number of its valid rows in `bytes`. It is used as the number of elements. */
    int is_step = s->kind == BRICK_KIND_STEP;
    if (!is_step && s->kind != BRICK_KIND_SPAN) {
        d->skipped++;
        return 1;
    }
    if (s->slots != 1 || s->path >= d->reader->header.paths || !amounts_possible(s) || s->sequence <= lane->sequence
        || (is_step && s->bytes > s->elements)) {
        d->rejected++;
        return 1;
    }
    struct brick_longest *to = d->by_path != NULL ? d->by_path[s->path] : NULL;
    int first = to == NULL;
    if (first && (to = longest_make(d, s->path)) == NULL)
        return 0;
    if (first || s->duration > to->duration)
        be_longest(to, s, is_step ? s->bytes : s->elements);
    d->spans++;
    lane->sequence = s->sequence;
    if (newest)
        lane->newest[lane->kept++] = *s;
    return 1;
}

uint64_t brick_details_take(struct brick_details *d, struct brick_spans *lane, const struct brick_record *slots,
                            uint64_t count, uint64_t left)
{
    uint64_t older = left > BRICK_RECENT ? left - BRICK_RECENT : 0;
    uint64_t i = 0;
    while (i < count) { /* `i` may exceed `count` if a record extends past the slots */
        uint64_t end = i + take_usual(d, lane, slots + i, count - i), newest = i > older ? i : older;
        if (newest < end) {
            memcpy(&lane->newest[lane->kept], &slots[newest], (end - newest) * sizeof *slots);
            lane->kept += (uint32_t)(end - newest);
        }
        i = end;
        if (i == count)
            break;
        const struct brick_span *s = (const struct brick_span *)(const void *)&slots[i];
        if (s->slots == 0 || s->slots > left - i) { /* the start of the next record cannot be known */
            d->rejected++;
            return left;
        }
        if (!take_any(d, lane, s, i >= older))
            return 0;
        i += s->slots;
    }
    return i;
}

/* Returns the time at which the span of a record ended. */
static uint64_t end_of(const struct brick_details *d, const struct brick_span *s)
{
    return d->by_path[s->path]->given ? s->start : s->start + s->duration;
}

void brick_details_keep(struct brick_details *d, const struct brick_spans *lane)
{
    uint32_t old = d->kept, new = lane->kept, at = BRICK_RECENT;
    if (new == BRICK_RECENT && (old == 0 || end_of(d, &lane->newest[0]) >= end_of(d, &d->recent[old - 1]))) {
        memcpy(d->recent, lane->newest, sizeof d->recent);
        d->kept = new;
        return;
    }
    struct brick_span merged[BRICK_RECENT];
    while (at > 0 && old + new > 0) { /* merge from the newest on; the spans of each side keep their order */
        int takes_new = old == 0 || (new > 0 && end_of(d, &lane->newest[new - 1]) >= end_of(d, &d->recent[old - 1]));
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
    d->end = d->paths = d->kept = 0;
}

uint64_t brick_details_resident(const struct brick_details *d)
{
    const uint64_t table = d->by_path != NULL ? d->reader->header.paths * sizeof *d->by_path : 0;
    return table + d->paths * sizeof **d->by_path;
}
