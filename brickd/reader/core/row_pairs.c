#include "row_pairs.h"

#include "match_phases.h"

#include <stdlib.h>
#include <string.h>

/* At most this many fingerprints of a site are counted, because counting holds the window's lock. */
#define ENTRIES_MAX ((size_t)16384)

/* ---- counting ------------------------------------------------------------- */

static int has_output(const struct entry *e, size_t count, uint64_t output)
{
    for (size_t i = 0; i < count; i++)
        if (e[i].fingerprint->output == output)
            return 1;
    return 0;
}

int brick_rows_far(const struct brick_fingerprints *p, uint64_t one, uint64_t other)
{
    struct brick_record a[BRICK_CHECKED_SLOTS_MAX], b[BRICK_CHECKED_SLOTS_MAX];
    if (brick_fingerprints_at(p, one)->output == brick_fingerprints_at(p, other)->output)
        return 0;
    if (brick_fingerprint_tier(brick_fingerprints_at(p, one)) == BRICK_TIER_HISTORY)
        return 1;
    brick_fingerprints_slots(p, brick_fingerprints_at(p, one), a);
    brick_fingerprints_slots(p, brick_fingerprints_at(p, other), b);
    return !brick_is_unknown(a, b) && brick_rounded(a, b) == BRICK_ROUNDED_NOT;
}

/* The outputs of one worker for one row. For each output, `of` has the newest entry. */
struct row_outputs {
    const struct entry *of[BRICK_ROW_OUTPUTS_MAX];
    uint32_t count;
};

/* Collects the outputs from entries that are sorted by output. If there are more than BRICK_ROW_OUTPUTS_MAX, the last
 * element gets each further output. */
static struct row_outputs outputs_of(const struct entry *e, size_t count)
{
    struct row_outputs o = {.count = 0};
    for (size_t i = 0; i < count; i++) {
        const int is_new = i == 0 || e[i].fingerprint->output != e[i - 1].fingerprint->output;
        o.count += (uint32_t)(is_new && o.count < BRICK_ROW_OUTPUTS_MAX);
        const struct entry **last = &o.of[o.count - 1];
        *last = is_new || e[i].number > (*last)->number ? &e[i] : *last;
    }
    return o;
}

/* Returns the newest output that is far from each of `others`, or NULL. */
static const struct entry *far_output(const struct brick_fingerprints *p, const struct row_outputs *o,
                                      const struct row_outputs *others)
{
    const struct entry *found = NULL;
    for (uint32_t i = 0; i < o->count; i++) {
        uint32_t far = 0;
        while (far < others->count && brick_rows_far(p, o->of[i]->number, others->of[far]->number))
            far++;
        if (far == others->count && (found == NULL || o->of[i]->number > found->number))
            found = o->of[i];
    }
    return found;
}

static uint32_t is_unlike_own(const struct brick_fingerprints *p, const struct row_outputs *o)
{
    for (uint32_t i = 1; i < o->count; i++)
        for (uint32_t k = 0; k < i; k++)
            if (brick_rows_far(p, o->of[i]->number, o->of[k]->number))
                return 1;
    return 0;
}

static const struct entry *newest(const struct row_outputs *o)
{
    const struct entry *found = o->of[0];
    for (uint32_t i = 1; i < o->count; i++)
        found = o->of[i]->number > found->number ? o->of[i] : found;
    return found;
}

/* Counts in how many steps the worker had this far output. */
static void count_steps(struct brick_row_pair *pair, int side, const struct entry *e, size_t count, uint64_t output)
{
    for (size_t i = 0; i < count; i++) {
        const struct brick_kept_fingerprint *f = e[i].fingerprint;
        const uint64_t step = brick_fingerprint_step(f);
        if (f->output != output)
            continue;
        if (pair->steps[side] == 0) {
            pair->first[side] = step;
            pair->steps[side] = 1;
        }
        if (step != pair->first[side] || f->steps) /* f->steps: in several steps */
            pair->steps[side] = 2;
    }
}

/* Adds the fingerprint of a row to `recent` if it is one of the newest. */
static void keep_recent(struct brick_row_pair *pair, int side, uint64_t number, int apart)
{
    uint64_t *recent = pair->recent[side];
    uint32_t n = pair->recent_count[side];
    if (n == BRICK_ROWS_RECENT && number < recent[n - 1] >> 1)
        return;
    if (n < BRICK_ROWS_RECENT)
        n = ++pair->recent_count[side];
    for (n--; n > 0 && recent[n - 1] >> 1 < number; n--)
        recent[n] = recent[n - 1];
    recent[n] = number << 1 | (uint64_t)apart;
}

/* Counts a row that two workers had. Each has counts[i] entries for the row, which begin at of[i]. */
static void count_pair(const struct brick_fingerprints *p, struct brick_row_pair *pair, const struct entry *const of[2],
                       const size_t counts[2])
{
    const struct row_outputs outputs[2] = {outputs_of(of[0], counts[0]), outputs_of(of[1], counts[1])};
    pair->one = of[0]->worker;
    pair->other = of[1]->worker;
    pair->coarse = (uint32_t)brick_is_coarse(of[0]->fingerprint->dtype);
    pair->rows++;
    for (int side = 0; side < 2; side++) {
        pair->unlike_own[side] += is_unlike_own(p, &outputs[side]);
        const struct entry *far = far_output(p, &outputs[side], &outputs[!side]), *last = newest(&outputs[side]);
        const int apart = !has_output(of[!side], counts[!side], last->fingerprint->output);
        const struct entry *shown = far != NULL ? far : apart && pair->far[side] == 0 ? last : NULL;
        const int is_first_far = far != NULL && pair->far[side] == 0;
        keep_recent(pair, side, last->number, apart);
        if (far != NULL)
            count_steps(pair, side, of[side], counts[side], far->fingerprint->output);
        pair->far[side] += far != NULL;
        if (shown == NULL || (!is_first_far && pair->shown[side] && shown->number <= pair->newest[side][side]))
            continue;
        pair->shown[side] = 1;
        pair->newest[side][side] = shown->number;
        pair->newest[side][!side] = newest(&outputs[!side])->number;
    }
}

/* Decides, after all rows were counted, whether one worker of a pair differs from the other. */
static void judge(const struct brick_fingerprints *p, struct brick_row_pair *pair, int side)
{
    const struct brick_kept_fingerprint *first = NULL;
    int several = 0; /* whether the worker was apart in several steps */
    for (uint32_t n = 0; n < pair->recent_count[side]; n++) {
        const struct brick_kept_fingerprint *f = brick_fingerprints_at(p, pair->recent[side][n] >> 1);
        if ((pair->recent[side][n] & 1) == 0)
            continue;
        pair->apart[side]++;
        first = first != NULL ? first : f;
        several |= f->steps || brick_fingerprint_step(f) != brick_fingerprint_step(first);
    }
    const int is_far = pair->far[side] >= BRICK_ROWS_FAR_MIN && pair->steps[side] > 1;
    pair->differs[side] = is_far
                          || (pair->coarse && several && pair->apart[side] >= BRICK_ROWS_APART_MIN
                              && 8 * pair->apart[side] >= 7 * pair->recent_count[side]);
}

static struct brick_row_pair *pair_at(struct brick_row_pair *pairs, uint32_t one, uint32_t other)
{
    return &pairs[(size_t)other * (other - 1) / 2 + one]; /* needs one < other */
}

static size_t pairs_of(size_t workers)
{
    const size_t paired = workers < BRICK_ROW_WORKERS_MAX ? workers : BRICK_ROW_WORKERS_MAX;
    return paired > 0 ? paired * (paired - 1) / 2 : 0;
}

/* Counts the entries of a site, which are sorted by row, context, worker and output. Returns the pairs of workers with
 * their counts, or NULL if out of memory. */
static struct brick_row_pair *count_site(const struct brick_fingerprints *p, const struct entry *e, size_t count, size_t workers)
{
    struct brick_row_pair *pairs = calloc(pairs_of(workers) + 1, sizeof *pairs);
    if (pairs == NULL)
        return NULL;
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
                    count_pair(p, pair_at(pairs, e[a].worker, e[c].worker), (const struct entry *[]){e + a, e + c},
                               (const size_t[]){b - a, d - c});
            }
        }
    }
    for (size_t i = 0; i < pairs_of(workers); i++)
        for (int side = 0; side < 2; side++)
            judge(p, &pairs[i], side);
    return pairs;
}

/* ---- whether a site is comparable ------------------------------------------ */

enum { SHARES = 1, CONTRADICTS = 2, DIFFERS = 4 };

int brick_rows_unsteady(const struct brick_row_pair *pairs, size_t count)
{
    size_t room = 0, workers = 0, contradict = 0, differ = 0;
    int agree = 0;
    for (size_t i = 0; i < count; i++)
        room = pairs[i].rows > 0 && pairs[i].other >= room ? pairs[i].other + (size_t)1 : room;
    uint8_t *found = calloc(room + 1, sizeof *found);
    if (found == NULL)
        return -1;
    for (size_t i = 0; i < count; i++) {
        const struct brick_row_pair *pair = &pairs[i];
        const int differs = pair->differs[0] || pair->differs[1];
        for (int side = 0; pair->rows > 0 && side < 2; side++)
            found[side == 0 ? pair->one : pair->other] |= (uint8_t)(SHARES | (differs ? DIFFERS : 0)
                | (pair->unlike_own[side] >= BRICK_ROWS_FAR_MIN ? CONTRADICTS : 0));
        agree |= pair->rows > 0 && !differs && pair->far[0] == 0 && pair->far[1] == 0;
    }
    for (size_t worker = 0; worker < room; worker++) {
        workers += (found[worker] & SHARES) != 0;
        contradict += (found[worker] & CONTRADICTS) != 0;
        differ += (found[worker] & DIFFERS) != 0;
    }
    free(found);
    return 2 * contradict > workers || (differ > 2 && !agree);
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
    if (is_named(m, site, one) != is_named(m, site, other))
        return 1;
    if (most >= BRICK_ROW_WORKERS_MAX)
        return 0;
    const struct brick_row_pair *pair = pair_at(pairs, least, most);
    return pair->differs[0] || pair->differs[1];
}

/* Returns whether the worker of a member differs, at this site, from any worker that had the output of the reference.
 * The rows that two workers share may be too few, although both had this row. */
static int is_apart(const struct work *w, struct brick_row_pair *pairs, const struct brick_match_row *row, uint32_t member)
{
    const struct brick_member *members = &w->m->members[row->first];
    const struct brick_kept_fingerprint *reference = brick_fingerprints_at(w->p, members[row->reference].number);
    for (uint32_t n = 0; n < row->members; n++)
        if (brick_fingerprints_at(w->p, members[n].number)->output == reference->output
            && do_differ(w->m, pairs, reference->site, members[n].worker, members[member].worker))
            return 1;
    return 0;
}

/* Compares a row again. A member that diverged counts as within tolerance, unless the pairs show that its worker
 * differs. `unsteady`: nothing diverges at this site. */
static void settle(struct work *w, struct brick_row_pair *pairs, int unsteady, struct brick_match_row *row)
{
    struct brick_member *members = &w->m->members[row->first];
    const struct brick_member *against = &members[row->reference];
    const struct entry reference = {.fingerprint = brick_fingerprints_at(w->p, against->number), .number = against->number};
    row->class = BRICK_CLASS_IDENTICAL;
    row->agree = 0;
    for (uint32_t n = 0; n < row->members; n++) {
        const struct entry e = {.fingerprint = brick_fingerprints_at(w->p, members[n].number), .number = members[n].number};
        struct comparison c = brick_match_compare(w, &reference, &e);
        if (c.class == BRICK_CLASS_DIVERGED && !is_apart(w, pairs, row, n))
            c.class = BRICK_CLASS_WITHIN;
        if (c.class == BRICK_CLASS_DIVERGED && unsteady)
            c.class = BRICK_CLASS_UNSTEADY;
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
        const int has_rows = row < m->rows_count && m->rows[row].site == site;
        struct brick_row_pair *pairs = has_rows ? count_site(w->p, w->entries + from, i - from, m->count) : NULL;
        const int unsteady = pairs != NULL ? brick_rows_unsteady(pairs, pairs_of(m->count)) : 0;
        if (unsteady < 0) {
            free(pairs);
            return 0;
        }
        for (; row < m->rows_count && m->rows[row].site == site; row++) {
            if (pairs == NULL)
                return 0;
            settle(w, pairs, unsteady, &m->rows[row]);
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

/* Makes a sorted list of the workers, and replaces each worker's number in the entries by its index in the list.
 * Returns the list and sets *count to its length. Returns NULL if out of memory. */
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
    for (uint64_t n = p->end; e != NULL && n-- > p->first && entries < ENTRIES_MAX;) {
        const struct brick_kept_fingerprint *f = brick_fingerprints_at(p, n);
        if (f->site == site && f->service == service && f->count > 0)
            e[entries++] = (struct entry){.fingerprint = f, .number = n, .worker = f->worker};
    }
    uint32_t *numbers = e != NULL ? number_workers(e, entries, &workers) : NULL;
    if (numbers != NULL)
        qsort(e, entries, sizeof *e, brick_match_by_input);
    struct brick_row_pair *pairs = numbers != NULL ? count_site(p, e, entries, workers) : NULL;
    for (size_t i = 0; pairs != NULL && i < pairs_of(workers); i++) {
        if (pairs[i].rows == 0)
            continue;
        pairs[found] = pairs[i];
        pairs[found].one = numbers[pairs[i].one];
        pairs[found++].other = numbers[pairs[i].other];
    }
    free(e);
    free(numbers);
    *count = found;
    return pairs;
}
