#include "match_work.h"

#include <stdlib.h>

void *brick_match_grown(void *array, size_t *room, size_t needed, size_t size)
{
    size_t more = *room > 0 ? *room : 64;
    while (more < needed)
        more *= 2;
    if (more == *room)
        return array;
    void *grown = realloc(array, more * size);
    if (grown != NULL)
        *room = more;
    return grown;
}

int brick_match_collect(struct work *w)
{
    const struct brick_fingerprints *p = w->p;
    struct brick_match *m = w->m;
    w->places = brick_places(m->workers, m->count, &w->places_count);
    w->entries = malloc((size_t)(p->end - p->first + 1) * sizeof *w->entries);
    m->edges = calloc(m->count + 1, sizeof *m->edges);
    if (w->places == NULL || w->entries == NULL || m->edges == NULL)
        return 0;
    for (size_t i = 0; i < m->count; i++)
        m->edges[i].first = UINT64_MAX;
    for (uint64_t n = p->first; n < p->end; n++) {
        const struct brick_kept_fingerprint *fingerprint = brick_fingerprints_at(p, n);
        const uint32_t place = brick_match_place(w, fingerprint);
        if (place == UINT32_MAX || fingerprint->ticks < m->since[place] || brick_fingerprint_tier(fingerprint) != m->tier)
            continue;
        struct brick_match_worker *edge = &m->edges[place];
        /* `edges` has the first and the last time of all steps, even if only one step is compared. */
        edge->first = fingerprint->ticks < edge->first ? fingerprint->ticks : edge->first;
        edge->last = fingerprint->ticks > edge->last ? fingerprint->ticks : edge->last;
        if (m->step != NULL && fingerprint->step != *m->step)
            continue;
        edge->fingerprints++;
        w->entries[w->entries_count++] = (struct entry){.fingerprint = fingerprint, .number = n, .worker = place};
    }
    m->fingerprints = w->entries_count;
    return 1;
}

static int by_run(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    UNLESS_EQUAL(x->fingerprint->site, y->fingerprint->site);
    UNLESS_EQUAL(x->fingerprint->step, y->fingerprint->step);
    UNLESS_EQUAL(x->fingerprint->position, y->fingerprint->position);
    UNLESS_EQUAL(x->fingerprint->shard, y->fingerprint->shard);
    UNLESS_EQUAL(x->work, y->work);
    UNLESS_EQUAL(x->worker, y->worker);
    /* The fingerprints of several threads may have arrived in another order, so sort by their times. */
    UNLESS_EQUAL(x->fingerprint->ticks, y->fingerprint->ticks);
    return ORDER(x->number, y->number);
}

int brick_match_by_input(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    UNLESS_EQUAL(x->fingerprint->site, y->fingerprint->site);
    UNLESS_EQUAL(x->fingerprint->inputs, y->fingerprint->inputs);
    UNLESS_EQUAL(x->fingerprint->context, y->fingerprint->context);
    UNLESS_EQUAL(x->worker, y->worker);
    UNLESS_EQUAL(x->fingerprint->output, y->fingerprint->output);
    return ORDER(x->number, y->number);
}

int brick_match_by_output(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    UNLESS_EQUAL(x->fingerprint->output, y->fingerprint->output);
    UNLESS_EQUAL(x->fingerprint->context, y->fingerprint->context);
    return ORDER(x->worker, y->worker);
}

void brick_match_sort(struct work *w)
{
    qsort(w->entries, w->entries_count, sizeof *w->entries, w->m->by_input ? brick_match_by_input : by_run);
}

static int same_group(const struct entry *a, const struct entry *b, int same_input)
{
    const struct brick_kept_fingerprint *x = a->fingerprint, *y = b->fingerprint;
    if (x->site != y->site)
        return 0;
    return same_input ? x->inputs == y->inputs : x->step == y->step && x->position == y->position;
}

size_t brick_match_group_end(const struct work *w, size_t from)
{
    size_t end = from + 1;
    while (end < w->entries_count && same_group(&w->entries[from], &w->entries[end], w->m->by_input))
        end++;
    return end;
}

int brick_match_make_room(struct work *w)
{
    struct brick_match *m = w->m;
    const size_t count = m->count + 1;
    size_t sites = 0;
    for (size_t i = 0; i < w->entries_count; i++)
        sites += i == 0 || w->entries[i].fingerprint->site != w->entries[i - 1].fingerprint->site;
    m->sites = calloc(sites + 1, sizeof *m->sites);
    w->row = malloc(count * sizeof *w->row);
    w->sorted = malloc(count * sizeof *w->sorted);
    w->outputs = malloc(count * sizeof *w->outputs);
    w->alone = malloc(count * sizeof *w->alone);
    w->marked = malloc(count);
    return m->sites != NULL && w->row != NULL && w->sorted != NULL && w->outputs != NULL && w->alone != NULL
           && w->marked != NULL;
}

void brick_match_work_free(struct work *w)
{
    free(w->places);
    free(w->entries);
    free(w->visits);
    free(w->alike);
    free(w->row);
    free(w->sorted);
    free(w->outputs);
    free(w->alone);
    free(w->marked);
}
