#include "match_phases.h"
#include "brick_hash.h"

#include <stdlib.h>
#include <string.h>

static int by_step(const void *a, const void *b)
{
    const struct visit *x = a, *y = b;
    UNLESS_EQUAL(x->step, y->step);
    return ORDER(x->worker, y->worker);
}

static int by_start(const struct visit *x, const struct visit *y, int order)
{
    UNLESS_EQUAL(x->worker, y->worker);
    UNLESS_EQUAL(x->starts[order].at, y->starts[order].at);
    return ORDER(x->step, y->step);
}

static int by_clock(const void *a, const void *b) { return by_start(a, b, BY_CLOCK); }

static int by_order(const void *a, const void *b) { return by_start(a, b, BY_ORDER); }

/* Marks incomplete visits. `cut`: some fingerprints of the visit are too early to be compared. `worn`: the visit is the
 * worker's first one, and its oldest fingerprints may have been evicted. Returns 0 if out of memory. */
static int find_cuts(struct work *w)
{
    const struct brick_match *m = w->m;
    /* the first fingerprint of each worker */
    const struct brick_kept_fingerprint **first = calloc(m->count + 1, sizeof *first);
    if (first == NULL)
        return 0;
    for (uint64_t n = w->p->first; n < w->p->end; n++) {
        const struct brick_kept_fingerprint *fingerprint = brick_fingerprints_at(w->p, n);
        const uint32_t place = brick_match_place(w, fingerprint);
        if (place == UINT32_MAX)
            continue;
        if (first[place] == NULL || fingerprint->ticks < first[place]->ticks)
            first[place] = fingerprint;
        struct visit *v = fingerprint->ticks < m->since[place] ? brick_steps_visit(w, fingerprint->step, place) : NULL;
        if (v != NULL)
            v->cut = 1;
    }
    for (uint32_t worker = 0; m->worn != NULL && worker < m->count; worker++) {
        const int worn = m->worn[worker] != 0 && first[worker] != NULL;
        struct visit *v = worn ? brick_steps_visit(w, first[worker]->step, worker) : NULL;
        if (v != NULL)
            v->worn = 1;
    }
    free(first);
    return 1;
}

/* If a step reads state in one worker, marks it in all workers: others may lack the fingerprint that shows this. */
static void share_state(struct work *w)
{
    for (size_t from = 0, end; from < w->visits_count; from = end) {
        uint8_t stateful = 0;
        for (end = from; end < w->visits_count && w->visits[end].at == w->visits[from].at; end++)
            stateful |= w->visits[end].stateful;
        for (size_t i = from; i < end; i++)
            w->visits[i].stateful = stateful;
    }
}

int brick_steps_find(struct work *w)
{
    struct visit *v = w->visits = malloc((w->entries_count + 1) * sizeof *v);
    w->m->steps = malloc((w->entries_count + 1) * sizeof *w->m->steps);
    if (v == NULL || w->m->steps == NULL)
        return 0;
    for (size_t i = 0; i < w->entries_count; i++) {
        const struct entry *e = &w->entries[i];
        const uint64_t ticks = e->fingerprint->ticks;
        v[i] = (struct visit){.step = e->fingerprint->step, .first = ticks, .last = ticks, .worker = e->worker,
                              .stateful = e->fingerprint->stateful};
    }
    qsort(v, w->entries_count, sizeof *v, by_step);
    for (size_t i = 0; i < w->entries_count; i++) {
        struct visit *last = w->visits_count > 0 ? &v[w->visits_count - 1] : NULL;
        if (last != NULL && last->step == v[i].step && last->worker == v[i].worker) {
            last->first = v[i].first < last->first ? v[i].first : last->first;
            last->last = v[i].last > last->last ? v[i].last : last->last;
            last->stateful |= v[i].stateful;
            continue;
        }
        if (last == NULL || last->step != v[i].step)
            w->m->steps[w->m->steps_count++] = (struct brick_match_step){.step = v[i].step};
        v[i].at = (uint32_t)(w->m->steps_count - 1);
        w->m->steps[v[i].at].workers++;
        v[w->visits_count++] = v[i];
    }
    share_state(w);
    return find_cuts(w);
}

struct visit *brick_steps_visit(const struct work *w, uint64_t step, uint32_t worker)
{
    const struct visit key = {.step = step, .worker = worker};
    return bsearch(&key, w->visits, w->visits_count, sizeof key, by_step);
}

static void begin(struct start *s, uint64_t at, const struct brick_kept_fingerprint *fingerprint, int differs)
{
    if (s->fingerprint == NULL || at < s->at)
        *s = (struct start){at, fingerprint, differs};
}

void brick_steps_begin(struct work *w, const struct entry *e, const struct entry *reference, int differs)
{
    struct visit *v = brick_steps_visit(w, e->fingerprint->step, e->worker);
    begin(&v->starts[BY_CLOCK], e->fingerprint->ticks, e->fingerprint, differs);
    if (reference->worker != e->worker)
        begin(&v->starts[BY_ORDER], reference->moment, e->fingerprint, differs);
}

void brick_steps_miss(struct work *w, const struct entry *e, size_t count)
{
    struct brick_match *m = w->m;
    const struct visit *v = brick_steps_visit(w, e->fingerprint->step, e->worker), *end = w->visits + w->visits_count;
    const uint32_t step = v->at;
    if (m->steps[step].workers < 2)
        return;
    memset(w->marked, 0, m->count);
    for (size_t i = 0; i < count; i++)
        w->marked[e[i].worker] = 1;
    while (v > w->visits && v[-1].at == step)
        v--;
    for (; v < end && v->at == step; v++) {
        if (w->marked[v->worker])
            continue;
        /* In its first and in its last step, a worker may have taken part only for some time. */
        struct brick_match_worker *own = &m->edges[v->worker];
        const int edge = v->first == own->first || v->last == own->last;
        *(edge ? &own->uncertain : &own->missing) += 1;
        *(edge ? &brick_match_site_now(w)->uncertain : &brick_match_site_now(w)->missing) += 1;
    }
}

/* Adds 1 to `differs` of each visit that began with other inputs. The visits must be sorted by `order`. */
static void count_differing(struct visit *visits, size_t count, int order)
{
    for (size_t i = 0, diverged = 0, parted = 0; i < count; i++) {
        struct visit *v = &visits[i];
        if (i > 0 && v->worker != v[-1].worker)
            diverged = parted = 0;
        const int differs = !diverged && v->starts[order].fingerprint != NULL && v->starts[order].differs;
        v->differs += (uint8_t)differs;
        parted |= (size_t)differs;
        /* After other work, a divergence in a step that reads state may come from a cache with that work. */
        diverged |= !differs && v->diverged && !(parted && v->stateful);
    }
}

static uint64_t other_work(const struct visit *v)
{
    const struct brick_kept_fingerprint *first = v->starts[BY_CLOCK].fingerprint;
    return v->differs < ORDERS ? 0 : brick_mixed(first->site ^ brick_mixed(first->inputs)) | 1;
}

/* Adds to `before` of each visit the other work that its worker did earlier. The visits must be sorted by worker and
 * time. */
static void add_before(struct visit *visits, size_t count)
{
    uint64_t before = 0; /* 0: no other work so far */
    for (size_t i = 0; i < count; i++) {
        struct visit *v = &visits[i];
        if (i > 0 && v->worker != v[-1].worker)
            before = 0;
        if (before != 0)
            v->before = brick_mixed(brick_mixed(v->before) ^ before) | 1;
        if (v->differs == ORDERS)
            before = brick_mixed(before ^ other_work(v)) | 1;
    }
}

/* Sets the work of each visit. Returns whether there is other work. */
static int set_work(struct brick_match *m, struct visit *visits, size_t count)
{
    int any = 0;
    for (size_t i = 0; i < count; i++) {
        struct visit *v = &visits[i];
        v->work = v->stateful && v->before != 0 ? brick_mixed(v->before ^ other_work(v)) | 1 : other_work(v);
        m->steps[v->at].other += v->work != 0;
        any |= v->work != 0;
    }
    return any;
}

int brick_steps_find_other_work(struct work *w)
{
    const size_t count = w->visits_count;
    qsort(w->visits, count, sizeof *w->visits, by_order);
    count_differing(w->visits, count, BY_ORDER);
    qsort(w->visits, count, sizeof *w->visits, by_clock);
    count_differing(w->visits, count, BY_CLOCK);
    add_before(w->visits, count);
    qsort(w->visits, count, sizeof *w->visits, by_order);
    add_before(w->visits, count);
    qsort(w->visits, count, sizeof *w->visits, by_step);
    const int any = set_work(w->m, w->visits, count);
    for (size_t i = 0; any && i < w->entries_count; i++) {
        struct entry *e = &w->entries[i];
        e->work = brick_steps_visit(w, e->fingerprint->step, e->worker)->work;
    }
    return any;
}
