#include "matching.h"

#include <stdlib.h>
#include <string.h>

static int by_step(const void *a, const void *b)
{
    const struct visit *x = a, *y = b;
    UNLESS_EQUAL(x->step, y->step);
    return ORDER(x->worker, y->worker);
}

static int by_begin(const void *a, const void *b)
{
    const struct visit *x = a, *y = b;
    UNLESS_EQUAL(x->worker, y->worker);
    UNLESS_EQUAL(x->begins, y->begins);
    return ORDER(x->step, y->step);
}

int brick_steps_find(struct work *w)
{
    struct visit *v = w->visits = malloc((w->entries_count + 1) * sizeof *v);
    w->m->steps = malloc((w->entries_count + 1) * sizeof *w->m->steps);
    if (v == NULL || w->m->steps == NULL)
        return 0;
    for (size_t i = 0; i < w->entries_count; i++) {
        const struct entry *e = &w->entries[i];
        const uint64_t ticks = e->print->ticks;
        v[i] = (struct visit){.step = e->print->step, .first = ticks, .last = ticks, .begins = UINT64_MAX, .worker = e->worker};
    }
    qsort(v, w->entries_count, sizeof *v, by_step);
    for (size_t i = 0; i < w->entries_count; i++) {
        struct visit *last = w->visits_count > 0 ? &v[w->visits_count - 1] : NULL;
        if (last != NULL && last->step == v[i].step && last->worker == v[i].worker) {
            last->first = v[i].first < last->first ? v[i].first : last->first;
            last->last = v[i].last > last->last ? v[i].last : last->last;
            continue;
        }
        if (last == NULL || last->step != v[i].step)
            w->m->steps[w->m->steps_count++] = (struct brick_step){.step = v[i].step};
        v[i].at = (uint32_t)(w->m->steps_count - 1);
        w->m->steps[v[i].at].workers++;
        v[w->visits_count++] = v[i];
    }
    return 1;
}

struct visit *brick_steps_visit(const struct work *w, uint64_t step, uint32_t worker)
{
    const struct visit wanted = {.step = step, .worker = worker};
    return bsearch(&wanted, w->visits, w->visits_count, sizeof wanted, by_step);
}

void brick_steps_begin(struct work *w, const struct entry *e, uint32_t count, int differs)
{
    for (uint32_t i = 0; i < count && !w->m->by_input; i++) {
        struct visit *v = brick_steps_visit(w, e[i].print->step, e[i].worker);
        if (e[i].print->ticks >= v->begins)
            continue;
        v->begins = e[i].print->ticks;
        v->differs = (uint8_t)differs;
    }
}

void brick_steps_miss(struct work *w, const struct entry *e, size_t count)
{
    struct brick_match *m = w->m;
    const uint64_t step = e->print->step;
    if (m->steps[brick_steps_visit(w, step, e->worker)->at].workers < 2)
        return;
    memset(w->here, 0, m->count);
    for (size_t i = 0; i < count; i++)
        w->here[e[i].worker] = 1;
    for (uint32_t worker = 0; worker < m->count; worker++) {
        const struct visit *v = w->here[worker] ? NULL : brick_steps_visit(w, step, worker);
        if (v == NULL)
            continue;
        /* Whoever came in the middle of it, or is in the middle of it, may have it still. */
        const int edge = v->first == m->edges[worker].first || v->last == m->edges[worker].last;
        *(edge ? &m->edges[worker].uncertain : &m->edges[worker].missing) += 1;
        *(edge ? &brick_site_now(w)->uncertain : &brick_site_now(w)->missing) += 1;
    }
}

void brick_steps_part(struct work *w)
{
    struct brick_match *m = w->m;
    qsort(w->visits, w->visits_count, sizeof *w->visits, by_begin); /* by step they are looked for no more */
    for (size_t i = 0, diverged = 0; i < w->visits_count; i++) {
        const struct visit *v = &w->visits[i];
        struct brick_step *step = &m->steps[v->at];
        if (i > 0 && v->worker != v[-1].worker)
            diverged = 0;
        if (v->differs && !diverged)
            step->other = 1;
        else
            diverged |= step->diverged;
    }
    for (size_t i = 0; i < m->rows_count; i++) {
        struct brick_row_found *row = &m->rows[i];
        if (!m->steps[row->step].other || row->class > BRICK_CLASS_DIVERGED)
            continue;
        row->class = BRICK_CLASS_WORK;
        for (uint32_t n = 0; n < row->members; n++)
            if (m->members[row->first + n].class != BRICK_CLASS_IDENTICAL)
                m->members[row->first + n].class = BRICK_CLASS_WORK;
    }
}
