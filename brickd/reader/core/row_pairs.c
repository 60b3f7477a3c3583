#include "row_pairs.h"

#include "match_phases.h"

#include <stdlib.h>
#include <string.h>

/* ---- counting ------------------------------------------------------------- */

static int have_common_output(const struct entry *one, size_t ones, const struct entry *other, size_t others)
{
    for (size_t i = 0, k = 0; i < ones && k < others;) { /* both lists are sorted by output */
        const uint64_t a = one[i].fingerprint->output, b = other[k].fingerprint->output;
        if (a == b)
            return 1;
        i += a < b;
        k += b < a;
    }
    return 0;
}

/* Returns whether rounding explains no difference between an output of one worker and one of the other. */
static int is_beyond(const struct brick_fingerprints *p, const struct entry *one, size_t ones, const struct entry *other,
                     size_t others)
{
    for (size_t i = 0; i < ones; i++)
        for (size_t k = 0; k < others; k++)
            if ((i == 0 || one[i].fingerprint->output != one[i - 1].fingerprint->output)
                && (k == 0 || other[k].fingerprint->output != other[k - 1].fingerprint->output)
                && brick_fingerprints_rounded(p, one[i].number, other[k].number) != BRICK_ROUNDED_NOT)
                return 0;
    return 1;
}

/* Counts the steps of a worker's entries. Calls outside of a step are told apart by their time. */
static void count_steps(struct brick_row_pair *pair, int side, const struct entry *e, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct brick_kept_fingerprint *f = e[i].fingerprint;
        const uint64_t step = (f->flags & BRICK_CHECKED_STEP) != 0 ? f->step : f->ticks;
        if (pair->steps[side] == 0) {
            pair->first[side] = step;
            pair->steps[side] = 1;
        }
        if (step != pair->first[side] || f->count > 1) /* repeats are replaced by the newest one */
            pair->steps[side] = 2;
    }
}

static uint64_t newest(const struct entry *e, size_t count)
{
    uint64_t most = e->number;
    for (size_t i = 1; i < count; i++)
        most = e[i].number > most ? e[i].number : most;
    return most;
}

/* Counts a row that two workers had. */
static void count_pair(const struct brick_fingerprints *p, struct brick_row_pair *pair, const struct entry *one, size_t ones,
                       const struct entry *other, size_t others)
{
    pair->one = one->worker;
    pair->other = other->worker;
    pair->rows++;
    if (have_common_output(one, ones, other, others))
        return;
    const uint64_t numbers[2] = {newest(one, ones), newest(other, others)};
    const int beyond = is_beyond(p, one, ones, other, others), is_first = pair->beyond == 0 && (beyond || pair->apart == 0);
    pair->apart++;
    pair->beyond += (uint32_t)beyond;
    count_steps(pair, 0, one, ones);
    count_steps(pair, 1, other, others);
    for (int side = 0; side < 2; side++)
        if (is_first || (numbers[side] > pair->newest[side][side] && (beyond || pair->beyond == 0)))
            memcpy(pair->newest[side], numbers, sizeof numbers);
}

static struct brick_row_pair *pair_at(struct brick_row_pair *pairs, uint32_t one, uint32_t other)
{
    return &pairs[(size_t)other * (other - 1) / 2 + one]; /* one < other */
}

/* Counts the entries of a site, sorted by row, context, worker and output. */
static void count_site(const struct brick_fingerprints *p, struct brick_row_pair *pairs, const struct entry *e, size_t count)
{
    for (size_t from = 0, end; from < count; from = end) {
        const struct brick_kept_fingerprint *first = e[from].fingerprint;
        for (end = from + 1; end < count && e[end].fingerprint->inputs == first->inputs
                             && e[end].fingerprint->context == first->context;)
            end++;
        for (size_t a = from, b; first->inputs != 0 && a < end; a = b) {
            b = brick_match_run_end(e, a, end);
            for (size_t c = b, d; c < end; c = d) {
                d = brick_match_run_end(e, c, end);
                if (e[c].worker < BRICK_ROW_WORKERS_MAX)
                    count_pair(p, pair_at(pairs, e[a].worker, e[c].worker), e + a, b - a, e + c, d - c);
            }
        }
    }
}

static struct brick_row_pair *room_for(size_t workers)
{
    const size_t paired = workers < BRICK_ROW_WORKERS_MAX ? workers : BRICK_ROW_WORKERS_MAX;
    return calloc(paired * paired / 2 + 1, sizeof(struct brick_row_pair));
}

/* ---- in a comparison ------------------------------------------------------ */

static int is_named(const struct brick_match *m, uint64_t site, uint32_t worker)
{
    for (size_t i = 0; i < m->named_count; i++)
        if (m->named[i].site == site && m->named[i].worker == m->workers[worker])
            return 1;
    return 0;
}

static int do_differ(const struct brick_match *m, struct brick_row_pair *pairs, uint64_t site, uint32_t one, uint32_t other)
{
    const uint32_t least = one < other ? one : other, most = one < other ? other : one;
    return is_named(m, site, one) != is_named(m, site, other)
           || (most < BRICK_ROW_WORKERS_MAX && brick_row_pair_differs(pair_at(pairs, least, most)));
}

/* Compares a row again: a member is within tolerance unless its worker differs from the reference's at this site. */
static void settle(struct work *w, struct brick_row_pair *pairs, struct brick_match_row *row)
{
    struct brick_member *members = &w->m->members[row->first];
    const struct brick_member *against = &members[row->reference];
    const struct entry reference = {.fingerprint = brick_fingerprints_at(w->p, against->number), .number = against->number};
    row->class = BRICK_CLASS_IDENTICAL;
    row->agree = 0;
    for (uint32_t n = 0; n < row->members; n++) {
        const struct entry e = {.fingerprint = brick_fingerprints_at(w->p, members[n].number), .number = members[n].number};
        struct comparison c = brick_match_compare(w, &reference, &e);
        if (c.class == BRICK_CLASS_DIVERGED && !do_differ(w->m, pairs, e.fingerprint->site, against->worker, members[n].worker))
            c.class = BRICK_CLASS_WITHIN;
        members[n].class = (uint8_t)c.class;
        row->agree += c.class <= BRICK_CLASS_WITHIN;
        if (c.class != BRICK_CLASS_IDENTICAL)
            brick_match_worst(row, n, &c);
    }
}

int brick_rows_settle(struct work *w)
{
    const struct brick_match *m = w->m;
    for (size_t from = 0, i = 1, row = 0, site = 0; i <= w->entries_count; i++) {
        if (i < w->entries_count && w->entries[i].fingerprint->site == w->entries[from].fingerprint->site)
            continue;
        struct brick_row_pair *pairs = row < m->rows_count && m->rows[row].site == site ? room_for(m->count) : NULL;
        if (pairs != NULL)
            count_site(w->p, pairs, w->entries + from, i - from);
        for (; row < m->rows_count && m->rows[row].site == site; row++) {
            if (pairs == NULL)
                return 0;
            settle(w, pairs, &m->rows[row]);
        }
        free(pairs);
        from = i;
        site++;
    }
    return 1;
}

/* ---- of running workers ---------------------------------------------------- */

static int by_number(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;
    return ORDER(*x, *y);
}

/* Replaces the workers' numbers by their places in the sorted list of all, which it returns; *count: how many. NULL if
 * out of memory. */
static uint32_t *number_workers(struct entry *e, size_t entries, size_t *count)
{
    uint32_t *workers = malloc((entries + 1) * sizeof *workers);
    *count = 0;
    if (workers == NULL)
        return NULL;
    for (size_t i = 0; i < entries; i++)
        workers[i] = e[i].worker;
    qsort(workers, entries, sizeof *workers, by_number);
    for (size_t i = 0; i < entries; i++)
        if (i == 0 || workers[i] != workers[*count - 1])
            workers[(*count)++] = workers[i];
    for (size_t i = 0; i < entries; i++)
        e[i].worker = (uint32_t)((uint32_t *)bsearch(&e[i].worker, workers, *count, sizeof *workers, by_number) - workers);
    return workers;
}

struct brick_row_pair *brick_row_pairs(const struct brick_fingerprints *p, uint32_t service, uint64_t site, size_t *count)
{
    struct entry *e = malloc((size_t)(p->end - p->first + 1) * sizeof *e);
    size_t entries = 0, workers = 0, found = 0;
    for (uint64_t n = p->first; e != NULL && n < p->end; n++) {
        const struct brick_kept_fingerprint *f = brick_fingerprints_at(p, n);
        if (f->site == site && f->service == service && brick_fingerprint_is_row(f) && (f->count > 0 || f->group == 0))
            e[entries++] = (struct entry){.fingerprint = f, .number = n, .worker = f->worker};
    }
    uint32_t *numbers = e != NULL ? number_workers(e, entries, &workers) : NULL;
    struct brick_row_pair *pairs = numbers != NULL ? room_for(workers) : NULL;
    if (pairs != NULL) {
        qsort(e, entries, sizeof *e, brick_match_by_input);
        count_site(p, pairs, e, entries);
        const size_t paired = workers < BRICK_ROW_WORKERS_MAX ? workers : BRICK_ROW_WORKERS_MAX;
        for (size_t i = 0; i < paired * (paired > 0 ? paired - 1 : 0) / 2; i++) {
            if (pairs[i].rows == 0)
                continue;
            pairs[found] = pairs[i];
            pairs[found].one = numbers[pairs[i].one];
            pairs[found++].other = numbers[pairs[i].other];
        }
    }
    free(e);
    free(numbers);
    *count = found;
    return pairs;
}
