/* fingerprint_window.c - valid and invalid fingerprints, received and compared: fingerprints SEED SECONDS
 *
 * Checks that every fingerprint is counted in one row and every comparison in one class. Also checks that each group
 * holds the fingerprints that a search through all fingerprints finds. Sanitizers find memory errors.
 */
#include "core/match.h"
#include "core/row_census.h"
#include "core/row_pairs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WORKERS = 5, NUMBERS = 8 };

static uint64_t state;

static uint64_t random64(void) /* splitmix64 */
{
    uint64_t z = state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static uint64_t below(uint64_t n) { return random64() % n; }

static void wrong(const char *what)
{
    fprintf(stderr, "fingerprints: %s\n", what);
    exit(1);
}

static void *block(size_t bytes)
{
    void *p = malloc(bytes > 0 ? bytes : 1);
    if (p == NULL)
        exit(2);
    return p;
}

/* Returns a record in a block of exactly its size; it sometimes has random bits. */
static struct brick_record *record(size_t *slots)
{
    const uint32_t inputs = (uint32_t)below(4);
    *slots = BRICK_CHECKED_SLOTS(inputs);
    struct brick_record *r = block(*slots * sizeof *r);
    memset(r, 0, *slots * sizeof *r);
    struct brick_checked *c = (struct brick_checked *)(void *)r;
    *c = (struct brick_checked){
        .site = (uint32_t)below(3),
        .slots = (uint16_t)*slots,
        .kind = BRICK_KIND_CHECKED,
        .ticks = below(1000),
        .step = below(4),
        .position = below(3),
        .flags = (uint8_t)((below(5) == 0 ? BRICK_CHECKED_STATEFUL : 0) | (below(3) == 0 ? BRICK_CHECKED_ROWS : 0)
                           | (below(4) == 0 ? BRICK_CHECKED_HISTORY : 0)),
        .valid = below(50) == 0 ? below(9) : UINT64_MAX,
        .backend = (uint16_t)(below(20) == 0),
        .inputs = (uint8_t)inputs,
    };
    for (uint32_t n = 0; n <= inputs; n++) {
        struct brick_tensor_sums *s = (struct brick_tensor_sums *)(void *)&r[2 + 2 * n];
        float *places = (float *)(void *)&r[3 + 2 * n];
        *s = (struct brick_tensor_sums){.checksum = below(3), .elements = below(3), .l2 = (double)below(3),
                                        .dtype = (uint8_t)(below(30) == 0 ? 0 : 12)};
        /* most sketches differ only by rounding */
        places[0] = places[below(16)] = (float)s->checksum * (below(4) == 0 ? 1 : 1e-9f);
    }
    if (below(10) == 0)
        for (uint64_t n = below(6); n > 0; n--)
            ((uint8_t *)r)[below(*slots * sizeof *r)] = (uint8_t)random64();
    if (below(50) == 0)
        *slots = 1 + below(*slots); /* sometimes the record is truncated */
    struct brick_record *exact = block(*slots * sizeof *r);
    memcpy(exact, r, *slots * sizeof *r);
    free(r);
    return exact;
}

static uint64_t muted_from[WORKERS]; /* for each worker: its fingerprints with lower numbers are muted */

static void check_group(const struct brick_fingerprints *p)
{
    const struct brick_kept_fingerprint *fingerprint = brick_fingerprints_at(p, p->first + below(p->end - p->first));
    const uint64_t some = brick_fingerprints_current(p, fingerprint);
    uint64_t newest = 0, last = 0, at = some;
    size_t current = 0, grouped = 0;
    while (at != p->end) {
        const struct brick_kept_fingerprint *each = brick_fingerprints_at(p, at);
        current++;
        if (at < p->first || each->group != fingerprint->group || each->count == 0)
            wrong("the ring of a group has a fingerprint that is not current or of another group");
        if (at < muted_from[each->worker])
            wrong("a muted worker has a current fingerprint");
        newest = at > newest ? at : newest;
        at = brick_fingerprints_next(p, at);
        at = at != some ? at : p->end;
    }
    for (uint64_t n = p->first; n < p->end; n++) {
        const struct brick_kept_fingerprint *each = brick_fingerprints_at(p, n);
        if ((each->group == 0) == brick_fingerprint_is_grouped(each))
            wrong("a fingerprint is wrongly in a group, or wrongly in none");
        if (each->group != fingerprint->group || each->group == 0 || n < muted_from[each->worker])
            continue;
        grouped++;
        last = n;
    }
    if ((current == 0) != (grouped == 0) || current > WORKERS * BRICK_ROW_OUTPUTS_MAX || newest != last)
        wrong("the ring of a group lacks fingerprints");
}

static void mute(struct brick_fingerprints *p)
{
    uint32_t *workers = block(2 * sizeof *workers);
    workers[0] = (uint32_t)below(WORKERS);
    workers[1] = (uint32_t)below(WORKERS);
    for (int n = 0; n < 2; n++)
        muted_from[workers[n]] = p->end;
    brick_fingerprints_mute(p, workers, 2);
    free(workers);
}

/* Requests all counts and unlike fingerprints, into blocks of exactly their size. */
static void take_all(struct brick_fingerprints *p)
{
    struct brick_site_count *counts = block(p->changed_count * sizeof *counts);
    uint64_t *numbers = block(BRICK_UNLIKE_MAX * sizeof *numbers);
    brick_fingerprints_take_counts(p, counts);
    if (p->changed_count != 0)
        wrong("counts are returned twice");
    const size_t taken = brick_fingerprints_take_unlike(p, numbers, BRICK_UNLIKE_MAX);
    for (size_t i = 0; i < taken; i++)
        for (size_t j = 0; j <= i; j++)
            if (numbers[i] >= p->end || (j < i && numbers[i] == numbers[j]))
                wrong("an unlike fingerprint is returned twice or does not exist");
    free(counts);
    free(numbers);
}

static void check_pairs(const struct brick_fingerprints *p)
{
    const uint64_t site = brick_fingerprints_at(p, p->first + below(p->end - p->first))->site;
    size_t count;
    struct brick_row_pair *pairs = brick_row_pairs(p, 0, site, &count);
    if (pairs == NULL)
        exit(2);
    for (size_t i = 0; i < count; i++) {
        const struct brick_row_pair *pair = &pairs[i];
        if (pair->one >= pair->other || pair->other >= WORKERS || pair->rows == 0)
            wrong("a pair of workers is invalid");
        for (int side = 0; side < 2; side++) {
            const int has_case = pair->far[side] > 0 || pair->apart[side] > 0;
            const uint32_t recent = pair->rows < BRICK_ROWS_RECENT ? pair->rows : BRICK_ROWS_RECENT;
            if (pair->far[side] > pair->rows || pair->unlike_own[side] > pair->rows || pair->recent_count[side] != recent
                || pair->apart[side] > recent || (pair->far[side] > 0) != (pair->steps[side] > 0)
                || (has_case && brick_fingerprints_at(p, pair->newest[side][0])->worker != pair->one)
                || (has_case && brick_fingerprints_at(p, pair->newest[side][1])->worker != pair->other)
                || (pair->far[side] > 0 && !brick_rows_far(p, pair->newest[side][0], pair->newest[side][1])))
                wrong("the counts of a pair contradict its fingerprints");
        }
    }
    if (brick_rows_unsteady(pairs, count) < 0)
        exit(2);
    free(pairs);
}

static void check_census(const struct brick_fingerprints *p)
{
    const uint64_t site = brick_fingerprints_at(p, p->first + below(p->end - p->first))->site, held = p->end - p->first;
    for (int tier = 0; tier < BRICK_TIERS; tier++) {
        struct brick_rows_apart apart;
        if (!brick_rows_apart(p, 0, (enum brick_tier)tier, &apart))
            exit(2);
        if (apart.context + apart.lineage > held || (tier == BRICK_TIER_ROWS && apart.lineage != 0))
            wrong("more rows are counted as apart than exist");
    }
    if (brick_rows_repeated(p, 0, site) > held)
        wrong("more rows are counted than exist");
}

static void check_match(const struct brick_fingerprints *p, int by_input, enum brick_tier tier)
{
    const uint32_t workers[] = {3, 0, 4, 1};
    const uint64_t since[] = {0, 0, below(3) == 0 ? below(1000) : 0, 0}, step = below(4);
    const uint64_t lost[] = {0, below(2), 0, 1}, worn[] = {below(2), 1, 0, below(2)};
    struct brick_match m = {.workers = workers, .since = since, .lost = below(2) == 0 ? lost : NULL,
                            .worn = below(2) == 0 ? worn : NULL, .count = 2 + below(3), .by_input = by_input,
                            .tier = tier, .rtol = below(2) == 0 ? -1 : 0.5, .step = below(4) == 0 ? &step : NULL};
    if (!brick_match(p, &m))
        exit(2);
    uint64_t fingerprints = 0, held = 0;
    for (size_t i = 0; i < m.sites_count; i++) {
        const struct brick_match_site *s = &m.sites[i];
        uint64_t classes = 0;
        for (int c = 0; c < BRICK_CLASSES; c++)
            classes += s->classes[c];
        fingerprints += s->fingerprints;
        if (classes != s->compared)
            wrong("a comparison has no class or two classes");
    }
    for (size_t i = 0; i < m.count; i++)
        held += m.edges[i].fingerprints;
    if (fingerprints != m.fingerprints || held != m.fingerprints)
        wrong("a fingerprint is counted at no site or at two sites");
    for (size_t i = 0; i < m.rows_count; i++) {
        const struct brick_match_row *row = &m.rows[i];
        if (row->first + row->members > m.members_count || row->reference >= row->members || row->worst >= row->members
            || m.members[row->first + row->reference].class != BRICK_CLASS_IDENTICAL)
            wrong("a row has no valid reference");
        const uint64_t shard = brick_fingerprints_at(p, m.members[row->first + row->reference].number)->shard;
        for (uint32_t n = 0; n < row->members; n++) {
            const struct brick_member *member = &m.members[row->first + n];
            if (member->class <= BRICK_CLASS_DIVERGED && brick_fingerprints_at(p, member->number)->shard != shard)
                wrong("two shards are compared with each other");
        }
    }
    brick_match_free(&m);
}

static void once(void)
{
    struct brick_fingerprints p, some;
    const uint64_t numbers[NUMBERS] = {0, 11, 12, 13, 14, 15, 16, 17};
    memset(muted_from, 0, sizeof muted_from);
    brick_fingerprints_init(&p, below(2) == 0 ? 0 : 1 << 20, random64());
    for (uint64_t n = 100 + below(2000); n > 0; n--) {
        const struct brick_origin by = {.worker = (uint32_t)below(WORKERS), .sites = numbers, .names = numbers,
                                         .sites_count = NUMBERS, .names_count = NUMBERS, .named = below(4) != 0,
                                         .shard = below(3) == 0 ? 1 + below(2) : 0};
        size_t slots;
        struct brick_record *r = record(&slots);
        brick_fingerprints_add(&p, &by, r, slots);
        free(r);
        if (below(500) == 0 && !brick_fingerprints_forget(&p, (uint32_t)below(2)))
            exit(2);
        if (below(500) == 0)
            mute(&p);
        if (below(50) == 0)
            take_all(&p);
    }
    if (p.end > p.first) {
        check_group(&p);
        check_match(&p, 0, 0);
        check_match(&p, 1, 0);
        check_match(&p, 1, 1);
        check_match(&p, 1, BRICK_TIER_HISTORY);
        check_pairs(&p);
        check_census(&p);
    }
    brick_fingerprints_init(&some, SIZE_MAX, 0);
    const uint32_t chosen[] = {1, 4}, as[] = {0, 3}, services[] = {0, 1};
    uint64_t ends[] = {0, 0};
    const struct brick_renumbered renumbered = {chosen, as, services, 2, ends};
    if (!brick_fingerprints_copy(&some, &p, &renumbered))
        exit(2);
    if ((ends[0] > ends[1] ? ends[0] : ends[1]) != some.end)
        wrong("the last copied fingerprint belongs to no worker");
    if (some.end > 0)
        check_match(&some, 0, 0);
    brick_fingerprints_free(&some);
    brick_fingerprints_free(&p);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    state = strtoull(argv[1], NULL, 10);
    const time_t end = time(NULL) + atoi(argv[2]);
    unsigned rounds = 0;
    for (; time(NULL) < end; rounds++)
        once();
    printf("%u rounds\n", rounds);
    return 0;
}
