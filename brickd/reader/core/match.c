#include "match_internal.h"

#include <stdlib.h>
#include <string.h>

static int by_run(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    UNLESS_EQUAL(x->fingerprint->site, y->fingerprint->site);
    UNLESS_EQUAL(x->fingerprint->step, y->fingerprint->step);
    UNLESS_EQUAL(x->fingerprint->position, y->fingerprint->position);
    UNLESS_EQUAL(x->fingerprint->shard, y->fingerprint->shard);
    UNLESS_EQUAL(x->work, y->work);
    UNLESS_EQUAL(x->worker, y->worker);
    UNLESS_EQUAL(x->fingerprint->ticks, y->fingerprint->ticks); /* of what several threads say one may come late */
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

static int rows_in_order(const void *a, const void *b)
{
    const struct brick_match_row *x = a, *y = b;
    UNLESS_EQUAL(x->moment, y->moment);
    return ORDER(x->first, y->first);
}

static int alike_in_order(const void *a, const void *b)
{
    const struct alike *x = a, *y = b;
    return ORDER(x->moment, y->moment);
}

void *brick_match_grown(void *array, size_t *room, size_t wanted, size_t size)
{
    size_t more = *room > 0 ? *room : 64;
    while (more < wanted)
        more *= 2;
    if (more == *room)
        return array;
    void *grown = realloc(array, more * size);
    if (grown != NULL)
        *room = more;
    return grown;
}

/* At the edges of what is known of a worker is whatever stands there, also where one step alone is looked at. */
static void count_edge(struct brick_match_worker *edge, uint64_t ticks)
{
    edge->first = ticks < edge->first ? ticks : edge->first;
    edge->last = ticks > edge->last ? ticks : edge->last;
}

static int collect(struct work *w)
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
        if (place == UINT32_MAX || fingerprint->ticks < m->since[place])
            continue;
        struct brick_match_worker *edge = &m->edges[place];
        count_edge(edge, fingerprint->ticks);
        if (m->step != NULL && fingerprint->step != *m->step)
            continue;
        edge->fingerprints++;
        w->entries[w->entries_count++] = (struct entry){.fingerprint = fingerprint, .number = n, .worker = place};
    }
    m->fingerprints = w->entries_count;
    return 1;
}

/* The site of the present group: all of a site stand together. */
static void count_site(struct work *w, const struct entry *e, size_t count)
{
    struct brick_match *m = w->m;
    if (m->sites_count == 0 || brick_site_now(w)->site != e->fingerprint->site)
        m->sites[m->sites_count++] = (struct brick_match_site){.site = e->fingerprint->site, .moment = UINT32_MAX};
    struct brick_match_site *site = brick_site_now(w);
    site->fingerprints += count;
    for (size_t i = 0; i < count; i++)
        site->moment = e[i].moment < site->moment ? e[i].moment : site->moment;
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

static int make_room(struct work *w)
{
    struct brick_match *m = w->m;
    size_t sites = 0;
    for (size_t i = 0; i < w->entries_count; i++)
        sites += i == 0 || w->entries[i].fingerprint->site != w->entries[i - 1].fingerprint->site;
    m->sites = calloc(sites + 1, sizeof *m->sites);
    w->row = malloc((m->count + 1) * sizeof *w->row);
    w->sorted = malloc((m->count + 1) * sizeof *w->sorted);
    w->said = malloc((m->count + 1) * sizeof *w->said);
    w->alone = malloc((m->count + 1) * sizeof *w->alone);
    w->beside = malloc(m->count + 1);
    w->here = malloc(m->count + 1);
    return m->sites != NULL && w->row != NULL && w->sorted != NULL && w->said != NULL && w->alone != NULL && w->beside != NULL && w->here != NULL;
}

static int walk(struct work *w)
{
    struct brick_match *m = w->m;
    m->sites_count = m->rows_count = m->members_count = w->alike_count = 0;
    for (size_t i = 0; i < m->count; i++)
        m->edges[i].missing = m->edges[i].uncertain = 0;
    for (size_t from = 0, end; from < w->entries_count; from = end) {
        const struct entry *e = &w->entries[from];
        end = brick_match_group_end(w, from);
        count_site(w, e, end - from);
        if (!(m->by_input ? brick_group_by_input : brick_group_by_run)(w, e, end - from))
            return 0;
    }
    return 1;
}

static void count_classes(struct brick_match *m)
{
    for (size_t i = 0; i < m->rows_count; i++) {
        const struct brick_match_row *row = &m->rows[i];
        struct brick_match_site *site = &m->sites[row->site];
        for (uint32_t n = 0; n < row->members; n++)
            site->classes[m->members[row->first + n].class] += n != row->reference;
        if (row->class == BRICK_CLASS_WITHIN && row->error > site->error)
            site->error = row->error;
    }
}

/* What was equal, and what could not be compared, before each row; rows stand in their order. */
static void count_before(struct work *w)
{
    struct brick_match *m = w->m;
    struct brick_before before = {0};
    size_t passed = 0;
    if (w->alike_count > 0)
        qsort(w->alike, w->alike_count, sizeof *w->alike, alike_in_order);
    for (size_t i = 0; i < m->rows_count; i++) {
        struct brick_match_row *row = &m->rows[i];
        for (; passed < w->alike_count && w->alike[passed].moment < row->moment; passed++)
            before.identical += w->alike[passed].comparisons;
        row->before = before;
        for (uint32_t n = 0; n < row->members; n++) {
            const uint8_t class = m->members[row->first + n].class;
            before.identical += n != row->reference && class == BRICK_CLASS_IDENTICAL;
            before.within += class == BRICK_CLASS_WITHIN;
            before.not_comparable += class > BRICK_CLASS_DIVERGED;
        }
    }
}

int brick_match(const struct brick_fingerprints *p, struct brick_match *m)
{
    struct work w = {.p = p, .m = m};
    int whole = collect(&w) && (m->by_input || brick_steps_find(&w));
    if (whole) {
        qsort(w.entries, w.entries_count, sizeof *w.entries, m->by_input ? brick_match_by_input : by_run);
        whole = make_room(&w) && brick_order_find(&w) && walk(&w) && (!m->by_input || brick_classes_find(&w));
    }
    if (whole && !m->by_input && brick_steps_find_other_work(&w)) { /* once more, each beside those that did the same work */
        qsort(w.entries, w.entries_count, sizeof *w.entries, by_run);
        whole = walk(&w);
    }
    if (whole) {
        if (m->rows_count > 0)
            qsort(m->rows, m->rows_count, sizeof *m->rows, rows_in_order);
        count_classes(m);
        count_before(&w);
    }
    free(w.places);
    free(w.entries);
    free(w.visits);
    free(w.alike);
    free(w.row);
    free(w.sorted);
    free(w.said);
    free(w.alone);
    free(w.beside);
    free(w.here);
    return whole;
}

void brick_match_free(struct brick_match *m)
{
    free(m->rows);
    free(m->members);
    free(m->steps);
    free(m->sites);
    free(m->edges);
}
