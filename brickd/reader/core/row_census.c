#include "row_census.h"

#include "match_work.h"
#include "row_pairs.h"

#include <stdlib.h>

/* Means: rows of all sites. It is no site's digest, because digests do not have the bit BRICK_SITE_STATEFUL. */
#define ANY_SITE UINT64_MAX

/* Returns what two rows must have in common so that one of them could be compared with the other in another context or
 * with another lineage. */
static uint64_t key_of(const struct brick_kept_fingerprint *f)
{
    return brick_fingerprint_tier(f) == BRICK_TIER_HISTORY ? f->position : f->inputs;
}

static int by_key(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    UNLESS_EQUAL(x->fingerprint->site, y->fingerprint->site);
    UNLESS_EQUAL(key_of(x->fingerprint), key_of(y->fingerprint));
    return brick_match_by_input(a, b);
}

/* Returns the current rows of a service in this tier, sorted by site, key, input, context, worker and output, and sets
 * *count to their number. With `replaced`, also returns rows that are no longer current. Returns NULL if out of memory. */
static struct entry *rows_of(const struct brick_fingerprints *p, uint32_t service, enum brick_tier tier, uint64_t site,
                             int replaced, size_t *count)
{
    const uint64_t held = p->end - p->first;
    struct entry *e = malloc((held < BRICK_ROW_CENSUS_MAX ? (size_t)held + 1 : BRICK_ROW_CENSUS_MAX) * sizeof *e);
    *count = 0;
    for (uint64_t n = p->end; e != NULL && n-- > p->first && *count < BRICK_ROW_CENSUS_MAX;) {
        const struct brick_kept_fingerprint *f = brick_fingerprints_at(p, n);
        if (f->service == service && (site == ANY_SITE || f->site == site) && brick_fingerprint_tier(f) == tier
            && (replaced || f->count > 0) && f->inputs != 0)
            e[(*count)++] = (struct entry){.fingerprint = f, .number = n, .worker = f->worker};
    }
    if (e != NULL)
        qsort(e, *count, sizeof *e, by_key);
    return e;
}

static int is_same_row(const struct entry *a, const struct entry *b)
{
    return a->fingerprint->site == b->fingerprint->site && a->fingerprint->inputs == b->fingerprint->inputs;
}

static int are_of_several_workers(const struct entry *e, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (e[i].worker != e[0].worker)
            return 1;
    return 0;
}

/* The entries have the same site and input. Returns how many of them have a context that only one worker has. */
static uint64_t alone_in_context(const struct entry *e, size_t count)
{
    uint64_t alone = 0;
    for (size_t from = 0, end; from < count; from = end) {
        for (end = from + 1; end < count && e[end].fingerprint->context == e[from].fingerprint->context;)
            end++;
        alone += are_of_several_workers(e + from, end - from) ? 0 : end - from;
    }
    return alone;
}

/* The entries have the same site and key, and belong to several workers. */
static void count_apart(const struct entry *e, size_t count, struct brick_rows_apart *apart)
{
    for (size_t from = 0, end; from < count; from = end) {
        for (end = from + 1; end < count && is_same_row(&e[from], &e[end]);)
            end++;
        if (are_of_several_workers(e + from, end - from))
            apart->context += alone_in_context(e + from, end - from);
        else
            apart->lineage += end - from;
    }
}

int brick_rows_apart(const struct brick_fingerprints *p, uint32_t service, enum brick_tier tier, struct brick_rows_apart *apart)
{
    size_t count;
    struct entry *e = rows_of(p, service, tier, ANY_SITE, 0, &count);
    *apart = (struct brick_rows_apart){0};
    for (size_t from = 0, end; e != NULL && from < count; from = end) {
        for (end = from + 1; end < count && e[end].fingerprint->site == e[from].fingerprint->site
                             && key_of(e[end].fingerprint) == key_of(e[from].fingerprint);)
            end++;
        if (are_of_several_workers(e + from, end - from))
            count_apart(e + from, end - from, apart);
    }
    free(e);
    return e != NULL;
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
    struct entry *e = rows_of(p, service, BRICK_TIER_ROWS, site, 1, &count);
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
