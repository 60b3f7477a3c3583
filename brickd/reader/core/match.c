#include "match_phases.h"

#include <stdlib.h>

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

/* Adds a group to the counts of its site. The groups of a site come one after the other. */
static void count_site(struct work *w, const struct entry *e, size_t count)
{
    struct brick_match *m = w->m;
    if (m->sites_count == 0 || brick_match_site_now(w)->site != e->fingerprint->site)
        m->sites[m->sites_count++] = (struct brick_match_site){.site = e->fingerprint->site, .moment = UINT32_MAX};
    struct brick_match_site *site = brick_match_site_now(w);
    site->fingerprints += count;
    for (size_t i = 0; i < count; i++)
        site->moment = e[i].moment < site->moment ? e[i].moment : site->moment;
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

/* Sets `before` of each row. The rows must be in the order of execution. */
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
    int whole = brick_match_collect(&w) && (m->by_input || brick_steps_find(&w));
    if (whole) {
        brick_match_sort(&w);
        whole = brick_match_make_room(&w) && brick_order_find(&w) && walk(&w) && (!m->by_input || (m->tier != BRICK_TIER_TENSORS ? brick_rows_settle : brick_classes_find)(&w));
    }
    /* Some workers did other work than their peers. Compare again, and now only entries of the same work. */
    if (whole && !m->by_input && brick_steps_find_other_work(&w)) {
        brick_match_sort(&w);
        whole = walk(&w);
    }
    if (whole) {
        if (m->rows_count > 0)
            qsort(m->rows, m->rows_count, sizeof *m->rows, rows_in_order);
        count_classes(m);
        count_before(&w);
    }
    brick_match_work_free(&w);
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
