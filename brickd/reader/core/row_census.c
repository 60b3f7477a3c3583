#include "row_census.h"

#include "match_work.h"
#include "row_pairs.h"

#include <stdlib.h>

/* Means: rows of all sites. It is no site's digest, because digests do not have the bit BRICK_SITE_STATEFUL. */
#define ANY_SITE UINT64_MAX

/* Returns the current rows of a service, sorted by site, input, context, worker and output, and sets *count to their
 * number. With `replaced`, also returns rows that are no longer current. Returns NULL if out of memory. */
static struct entry *rows_of(const struct brick_fingerprints *p, uint32_t service, uint64_t site, int replaced, size_t *count)
{
    const uint64_t held = p->end - p->first;
    struct entry *e = malloc((held < BRICK_ROW_CENSUS_MAX ? (size_t)held + 1 : BRICK_ROW_CENSUS_MAX) * sizeof *e);
    *count = 0;
    for (uint64_t n = p->end; e != NULL && n-- > p->first && *count < BRICK_ROW_CENSUS_MAX;) {
        const struct brick_kept_fingerprint *f = brick_fingerprints_at(p, n);
        if (f->service == service && (site == ANY_SITE || f->site == site) && brick_fingerprint_is_row(f)
            && (replaced || f->count > 0) && f->inputs != 0)
            e[(*count)++] = (struct entry){.fingerprint = f, .number = n, .worker = f->worker};
    }
    if (e != NULL)
        qsort(e, *count, sizeof *e, brick_match_by_input);
    return e;
}

static int is_same_row(const struct entry *a, const struct entry *b)
{
    return a->fingerprint->site == b->fingerprint->site && a->fingerprint->inputs == b->fingerprint->inputs;
}

/* The entries have the same site and input. Counts those that could not be compared although another worker has the
 * row, because no other worker has it in the same context. */
static uint64_t apart_in(const struct entry *e, size_t count)
{
    uint64_t apart = 0;
    int several = 0;
    for (size_t i = 1; i < count; i++)
        several |= e[i].worker != e[0].worker;
    for (size_t from = 0, end; several && from < count; from = end) {
        int shared = 0;
        for (end = from + 1; end < count && e[end].fingerprint->context == e[from].fingerprint->context; end++)
            shared |= e[end].worker != e[from].worker;
        apart += shared ? 0 : end - from;
    }
    return apart;
}

uint64_t brick_rows_in_other_contexts(const struct brick_fingerprints *p, uint32_t service)
{
    size_t count;
    struct entry *e = rows_of(p, service, ANY_SITE, 0, &count);
    uint64_t apart = e != NULL ? 0 : UINT64_MAX;
    for (size_t from = 0, end; e != NULL && from < count; from = end) {
        for (end = from + 1; end < count && is_same_row(&e[from], &e[end]);)
            end++;
        apart += apart_in(e + from, end - from);
    }
    free(e);
    return apart;
}

/* The entries are those of one worker and one row, sorted by output. Returns whether the worker had the same output in
 * several steps. */
static int is_repeated(const struct entry *e, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (e[i].fingerprint->steps
            || (i > 0 && e[i].fingerprint->output == e[i - 1].fingerprint->output
                && brick_fingerprint_step(e[i].fingerprint) != brick_fingerprint_step(e[i - 1].fingerprint)))
            return 1;
    return 0;
}

static int contradicts(const struct brick_fingerprints *p, const struct entry *e, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (e[i].fingerprint->output != e[i - 1].fingerprint->output && brick_rows_far(p, e[i].number, e[i - 1].number))
            return 1;
    return 0;
}

uint64_t brick_rows_repeated(const struct brick_fingerprints *p, uint32_t service, uint64_t site)
{
    size_t count;
    struct entry *e = rows_of(p, service, site, 1, &count);
    uint64_t repeated = e != NULL ? 0 : UINT64_MAX;
    for (size_t from = 0, end; e != NULL && from < count; from = end) {
        for (end = from + 1; end < count && is_same_row(&e[from], &e[end]) && e[end].worker == e[from].worker
                             && e[end].fingerprint->context == e[from].fingerprint->context;)
            end++;
        repeated += is_repeated(e + from, end - from) && !contradicts(p, e + from, end - from);
    }
    free(e);
    return repeated;
}
