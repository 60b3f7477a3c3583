/* core/match_classes.c - finds workers that add the same numbers in a different order, in comparisons by input.
 *
 * Owns the rule by which two workers are of two numeric classes. Must not know the reports, or the classes found by
 * other calls. Invariants: the result for two workers depends only on their outputs at one site, in any order; a
 * difference that rounding does not explain is never accepted.
 *
 * The rows of the result contain only differences; equal outputs are only counted. So when two workers may be of two
 * classes, this code reads all entries of the site again.
 */
#include "match_phases.h"

#include <stdlib.h>
#include <string.h>

/* At most this many pairs of workers are counted at a site, because each pair looks at all contents of the site. */
#define PAIRS_MAX ((size_t)4096)
/* Only this many outputs of a content can be of other classes: the most frequent ones. */
#define OUTPUTS_MAX 16u
/* If the outputs of two workers always differ in the same place of the sketch, the reason may be rounding or one wrong
 * element. With fewer contents than this, the two cannot be told apart; from this number on, the element is wrong. */
#define ONE_PLACE_MIN 8u
/* If two workers are of two classes, at most one in this many contents may differ by more than rounding. */
#define BEYOND_SHARE 8u

/* Counts over the contents that both workers of a pair had. */
struct both {
    uint64_t apart;  /* how many contents have outputs that differ within rounding */
    uint64_t equal;  /* how many contents have equal outputs */
    uint32_t places; /* one bit for each place of the sketch in which the outputs of any content differ */
};

/* Two workers in one context. `one` is the lower number. */
struct pair {
    uint32_t one, other;
    uint64_t context;
    struct both here, all; /* counts in this context; counts in all contexts */
    uint64_t beyond;       /* how many contents, in all contexts, show more than rounding: the workers
                            * differ by more, or one of them contradicts itself */
};

/* One of the outputs that workers have for a content. */
struct output {
    const struct entry *entries; /* the entries with this output, the lowest worker first */
    uint32_t count;
    uint32_t unlike; /* one bit for each output that contradicts this one: no two classes explain the difference */
    uint32_t agree;  /* how many entries agree with this output: their outputs have the same bits in `unlike` */
};

/* The pairs of workers at a site. */
struct pairs {
    struct pair *all;
    size_t count, room;
    struct output *outputs; /* the outputs of the current row */
};

static int by_workers(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    UNLESS_EQUAL(x->one, y->one);
    return ORDER(x->other, y->other);
}

static int by_two(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    const int workers = by_workers(a, b);
    return workers != 0 ? workers : ORDER(x->context, y->context);
}

static struct pair pair_of(uint32_t one, uint32_t other, uint64_t context)
{
    return (struct pair){.one = one < other ? one : other, .other = one < other ? other : one, .context = context};
}

/* Returns for how many contents the two workers differ as two classes do. Below BRICK_CONTENTS_MIN: too few to decide;
 * 0: not two classes. A single wrong element always changes the same place of the sketch. Rounding changes different
 * places for different contents, although most of its changes are too small to appear in a sketch. */
static uint64_t contents_in(const struct pair *c, const struct both *b)
{
    if (b->equal > b->apart || BEYOND_SHARE * c->beyond > c->all.apart)
        return b->apart + b->equal < BRICK_CONTENTS_MIN && c->beyond == 0 ? b->apart : 0;
    if (brick_is_spread(b->places))
        return b->apart;
    return b->apart < ONE_PLACE_MIN ? brick_least(b->apart, BRICK_CONTENTS_MIN - 1) : 0;
}

/* If the two workers had too few contents in this context, for example of a rare prompt length, counts the contents of
 * all contexts. */
static uint64_t contents_of(const struct pair *c)
{
    const uint64_t all = c->here.apart + c->here.equal < BRICK_CONTENTS_MIN ? contents_in(c, &c->all) : 0;
    return all >= BRICK_CONTENTS_MIN ? all : contents_in(c, &c->here);
}

static int is_of_one_group(const struct entry *a, const struct entry *b)
{
    const struct brick_kept_fingerprint *x = a->fingerprint, *y = b->fingerprint;
    return x->site == y->site && x->inputs == y->inputs && x->context == y->context;
}

/* ---- counting ------------------------------------------------------------- */

static enum brick_rounded rounded(struct work *w, const struct entry *one, const struct entry *other)
{
    brick_fingerprints_slots(w->p, one->fingerprint, w->one);
    brick_fingerprints_slots(w->p, other->fingerprint, w->other);
    return brick_rounded(w->one, w->other);
}

static void count_both(struct both *b, int apart, int equal, uint32_t places)
{
    b->apart += (uint64_t)apart;
    b->equal += (uint64_t)equal;
    b->places |= places;
}

/* Adds a content that both workers had to the counts of their pairs, which begin at `c`: one pair for each context. */
static void count_content(struct work *w, struct pair *c, size_t contexts)
{
    const struct entry *one = w->alone[c->one], *other = w->alone[c->other];
    const int steady = !w->marked[c->one] && !w->marked[c->other];
    const int equal = steady && one->fingerprint->output == other->fingerprint->output;
    const int apart = steady && !equal && rounded(w, one, other) != BRICK_ROUNDED_NOT;
    const uint32_t places = apart ? brick_places_apart(w->one, w->other) : 0;
    for (size_t i = 0; i < contexts; i++) {
        if (c[i].context == one->fingerprint->context)
            count_both(&c[i].here, apart, equal, places);
        count_both(&c[i].all, apart, equal, places);
        c[i].beyond += (uint64_t)(!apart && !equal);
    }
}

/* Adds one content to the counts of all pairs. Its entries are sorted by worker and output. */
static void count_pairs(struct work *w, const struct pairs *of, const struct entry *e, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t worker = e[i].worker;
        if (i == 0 || e[i - 1].worker != worker) {
            w->alone[worker] = &e[i];
            w->marked[worker] = 0;
        }
        w->marked[worker] |= e[i].fingerprint->output != w->alone[worker]->fingerprint->output;
    }
    for (size_t from = 0, to; from < of->count; from = to) {
        struct pair *c = &of->all[from];
        for (to = from + 1; to < of->count && by_workers(c, &of->all[to]) == 0;)
            to++;
        if (w->alone[c->one] != NULL && w->alone[c->other] != NULL)
            count_content(w, c, to - from);
    }
    for (size_t i = 0; i < count; i++)
        w->alone[e[i].worker] = NULL;
}

static void count_site(struct work *w, const struct pairs *of, const struct entry *e, size_t count)
{
    memset(w->alone, 0, w->m->count * sizeof *w->alone);
    for (size_t from = 0, i = 1; i <= count; i++) {
        if (i < count && is_of_one_group(&e[from], &e[i]))
            continue;
        if (brick_fingerprint_is_grouped(e[from].fingerprint))
            count_pairs(w, of, e + from, i - from);
        from = i;
    }
}

/* ---- outputs at a content ------------------------------------------------ */

static int is_unsteady(const struct work *w, const struct entry *e)
{
    const struct entry *at = bsearch(e, w->entries, w->entries_count, sizeof *e, brick_match_by_input);
    const struct entry *first = at, *last = at, *end = w->entries + w->entries_count;
    while (first > w->entries && is_of_one_group(first - 1, e) && first[-1].worker == e->worker)
        first--;
    while (last + 1 < end && is_of_one_group(last + 1, e) && last[1].worker == e->worker)
        last++;
    return first->fingerprint->output != last->fingerprint->output; /* the entries are sorted by output */
}

static struct entry entry_of(const struct work *w, const struct brick_member *member)
{
    return (struct entry){.fingerprint = brick_fingerprints_at(w->p, member->number),
                          .number = member->number,
                          .worker = member->worker};
}

static int by_times(const void *a, const void *b)
{
    const struct output *x = a, *y = b;
    UNLESS_EQUAL(y->count, x->count);
    return ORDER(x->entries->worker, y->entries->worker);
}

/* Collects the outputs of a row: first the output of the reference, then the others, the most frequent first. Omits
 * workers that contradict themselves. Returns how many outputs there are; 0 if none of them
 * can be of another class. */
static size_t outputs_of(struct work *w, const struct brick_match_row *row, struct output *outputs)
{
    const struct brick_member *members = &w->m->members[row->first];
    size_t count = 0, found = 0;
    w->sorted[0] = entry_of(w, &members[row->reference]);
    if (row->class != BRICK_CLASS_DIVERGED || is_unsteady(w, &w->sorted[0]))
        return 0;
    for (uint32_t n = 0; n < row->members; n++)
        if (members[n].class == BRICK_CLASS_IDENTICAL && n != row->reference)
            w->sorted[++count] = entry_of(w, &members[n]);
    const size_t alike = ++count;
    outputs[found++] = (struct output){.entries = w->sorted, .count = (uint32_t)alike};
    for (uint32_t n = 0; n < row->members; n++) {
        const struct entry e = entry_of(w, &members[n]);
        if (members[n].class == BRICK_CLASS_DIVERGED && !is_unsteady(w, &e))
            w->sorted[count++] = e;
    }
    qsort(w->sorted + alike, count - alike, sizeof *w->sorted, brick_match_by_output);
    for (size_t i = alike; i < count; i++) {
        if (i == alike || w->sorted[i].fingerprint->output != w->sorted[i - 1].fingerprint->output)
            outputs[found++] = (struct output){.entries = &w->sorted[i]};
        outputs[found - 1].count++;
    }
    qsort(outputs + 1, found - 1, sizeof *outputs, by_times);
    return found < OUTPUTS_MAX ? found : OUTPUTS_MAX;
}

/* ---- the classes ---------------------------------------------------------- */

static void keep_once(struct pairs *of)
{
    size_t kept = 0;
    if (of->count > 0)
        qsort(of->all, of->count, sizeof *of->all, by_two);
    for (size_t i = 0; i < of->count && kept < PAIRS_MAX; i++)
        if (kept == 0 || by_two(&of->all[kept - 1], &of->all[i]) != 0)
            of->all[kept++] = of->all[i];
    of->count = kept;
}

/* Pairs the first worker of each output with all workers of the other output. Some pairs have few contents in common,
 * for example if one worker was damaged later. Then the other workers with the same output decide. Returns 0 if out of
 * memory. */
static int add_pairs(struct work *w, struct pairs *of, const struct output *one, const struct output *o)
{
    const uint64_t context = o->entries->fingerprint->context;
    if (rounded(w, one->entries, o->entries) == BRICK_ROUNDED_NOT)
        return 1;
    struct pair *all = brick_match_grown(of->all, &of->room, of->count + one->count + o->count, sizeof *all);
    if (all == NULL)
        return 0;
    of->all = all;
    for (uint32_t n = 0; n < o->count; n++)
        all[of->count++] = pair_of(one->entries->worker, o->entries[n].worker, context);
    for (uint32_t n = 1; n < one->count; n++)
        all[of->count++] = pair_of(one->entries[n].worker, o->entries->worker, context);
    return 1;
}

static int find_pairs(struct work *w, struct pairs *of, const struct brick_match_row *rows, size_t count)
{
    of->count = 0;
    for (size_t r = 0; r < count; r++) {
        const size_t outputs = outputs_of(w, &rows[r], of->outputs);
        for (size_t i = 1; i < outputs; i++) {
            for (size_t k = 0; k < i; k++)
                if (!add_pairs(w, of, &of->outputs[k], &of->outputs[i]))
                    return 0;
        }
        if (of->count > 2 * PAIRS_MAX)
            keep_once(of);
    }
    keep_once(of);
    return 1;
}

/* Returns for how many contents the workers of two entries differ as two classes do. Returns 0 if they are of one
 * class, or if rounding does not explain the difference of these two entries. */
static uint64_t contents(struct work *w, const struct pairs *of, const struct entry *one, const struct entry *other)
{
    const struct pair key = pair_of(one->worker, other->worker, one->fingerprint->context);
    const struct pair *c = bsearch(&key, of->all, of->count, sizeof key, by_two), *any = c;
    if (c == NULL) /* the pair got no room in this context, so use the counts of all contexts */
        any = bsearch(&key, of->all, of->count, sizeof key, by_workers);
    const uint64_t found = c != NULL ? contents_of(c) : any != NULL ? contents_in(any, &any->all) : 0;
    return found > 0 && rounded(w, one, other) != BRICK_ROUNDED_NOT ? found : 0;
}

/* Returns whether some worker with one output is of another class than some worker with the other output. */
static int is_of_another(struct work *w, const struct pairs *of, const struct output *one, const struct output *o)
{
    for (uint32_t n = 0; n < o->count; n++)
        if (contents(w, of, one->entries, &o->entries[n]) >= BRICK_CONTENTS_MIN)
            return 1;
    for (uint32_t n = 1; n < one->count; n++)
        if (contents(w, of, &one->entries[n], o->entries) >= BRICK_CONTENTS_MIN)
            return 1;
    return 0;
}

/* Sets `unlike` and `agree` of each output. */
static void compare_all(struct work *w, const struct pairs *of, size_t count)
{
    struct output *o = of->outputs;
    for (size_t i = 1; i < count; i++)
        for (size_t k = 0; k < i; k++)
            if (!is_of_another(w, of, &o[k], &o[i])) {
                o[k].unlike |= 1u << i;
                o[i].unlike |= 1u << k;
            }
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < count; k++)
            o[i].agree += o[k].unlike == o[i].unlike ? o[k].count : 0;
}

/* Accepts outputs in the order of decreasing `agree`, except those that contradict an accepted output. Returns one bit
 * for each accepted output. The first accepted output that contradicts any other becomes the reference. If `fixed`,
 * output 0 stays the reference. */
static uint32_t accept(const struct output *o, size_t count, int fixed, size_t *reference)
{
    uint32_t accepted = fixed ? 1 : 0;
    *reference = 0;
    for (uint32_t left = (1u << count) - 1; left != 0;) {
        size_t best = count;
        for (size_t i = 0; i < count; i++)
            if ((left >> i & 1) != 0 && (best == count || o[i].agree > o[best].agree))
                best = i;
        left &= ~(1u << best);
        if ((o[best].unlike & accepted) != 0)
            continue;
        accepted |= 1u << best;
        if (!fixed && o[best].unlike != 0) {
            *reference = best;
            fixed = 1;
        }
    }
    return accepted;
}

/* Returns the index of the entry's output among the outputs; `count` if it is not there. */
static size_t which(const struct pairs *of, size_t count, const struct entry *e)
{
    size_t i = 0;
    while (i < count && of->outputs[i].entries->fingerprint->output != e->fingerprint->output)
        i++;
    return i;
}

/* Compares a row again. Now, a member of another class is within tolerance. */
static void settle(struct work *w, const struct pairs *of, struct brick_match_row *row)
{
    struct brick_member *members = &w->m->members[row->first];
    const size_t count = outputs_of(w, row, of->outputs);
    size_t chosen;
    int fixed = 0;
    if (count < 2)
        return;
    /* If a worker of the row contradicts itself, keep the reference with which it was compared. */
    for (uint32_t n = 0; n < row->members; n++) {
        const struct entry e = entry_of(w, &members[n]);
        fixed |= members[n].class == BRICK_CLASS_DIVERGED && is_unsteady(w, &e);
    }
    compare_all(w, of, count);
    const uint32_t accepted = accept(of->outputs, count, fixed, &chosen);
    const struct entry reference = *of->outputs[chosen].entries;
    row->class = BRICK_CLASS_IDENTICAL;
    for (uint32_t n = 0; n < row->members; n++) {
        const struct entry e = entry_of(w, &members[n]);
        const size_t i = which(of, count, &e);
        struct comparison c = brick_match_compare(w, &reference, &e);
        row->reference = e.number == reference.number ? n : row->reference;
        if (c.class == BRICK_CLASS_DIVERGED && i < count && (accepted >> i & 1) != 0 && !is_unsteady(w, &e))
            c.class = BRICK_CLASS_WITHIN;
        members[n].class = (uint8_t)c.class;
        if (c.class != BRICK_CLASS_IDENTICAL)
            brick_match_worst(row, n, &c);
    }
    const struct entry worst = entry_of(w, &members[row->worst]);
    const uint64_t most = contents(w, of, &reference, &worst);
    row->contents = most < UINT32_MAX ? (uint32_t)most : UINT32_MAX;
    row->agree = of->outputs[chosen].agree;
}

int brick_classes_find(struct work *w)
{
    const struct brick_match *m = w->m;
    struct pairs of = {.outputs = malloc((m->count + 1) * sizeof *of.outputs)};
    int whole = of.outputs != NULL;
    for (size_t from = 0, i = 1, row = 0, site = 0; whole && i <= w->entries_count; i++) {
        const size_t first = row;
        if (i < w->entries_count && w->entries[i].fingerprint->site == w->entries[from].fingerprint->site)
            continue;
        while (row < m->rows_count && m->rows[row].site == site)
            row++;
        whole = find_pairs(w, &of, m->rows + first, row - first);
        if (whole && of.count > 0) {
            count_site(w, &of, w->entries + from, i - from);
            for (size_t n = first; n < row; n++)
                settle(w, &of, &m->rows[n]);
        }
        from = i;
        site++;
    }
    free(of.all);
    free(of.outputs);
    return whole;
}

/* ---- two fingerprints ------------------------------------------------------ */

enum brick_rounded brick_fingerprints_rounded(const struct brick_fingerprints *p, uint64_t one, uint64_t other)
{
    struct work w = {.p = p};
    const struct entry a = {.fingerprint = brick_fingerprints_at(p, one)}, b = {.fingerprint = brick_fingerprints_at(p, other)};
    return rounded(&w, &a, &b);
}

/* Collects the fingerprints of both workers at the site, sorted by input. Returns 0 if out of memory. */
static int collect(struct work *w, const struct brick_kept_fingerprint *one, const struct brick_kept_fingerprint *other)
{
    const struct brick_fingerprints *p = w->p;
    for (uint64_t n = p->first; n < p->end; n++) {
        const struct brick_kept_fingerprint *fingerprint = brick_fingerprints_at(p, n);
        if (fingerprint->site != one->site || (fingerprint->worker != one->worker && fingerprint->worker != other->worker))
            continue;
        struct entry *entries = brick_match_grown(w->entries, &w->entries_room, w->entries_count + 1, sizeof *entries);
        if (entries == NULL)
            return 0;
        w->entries = entries;
        w->entries[w->entries_count++] = (struct entry){
            .fingerprint = fingerprint, .number = n, .worker = fingerprint->worker == other->worker};
    }
    qsort(w->entries, w->entries_count, sizeof *w->entries, brick_match_by_input);
    return 1;
}

int64_t brick_match_contents(const struct brick_fingerprints *p, uint64_t one, uint64_t other)
{
    const struct entry *alone[2];
    uint8_t marked[2];
    struct brick_match m = {.count = 2, .by_input = 1};
    struct work w = {.p = p, .m = &m, .alone = alone, .marked = marked};
    const struct brick_kept_fingerprint *a = brick_fingerprints_at(p, one), *b = brick_fingerprints_at(p, other);
    if (a->site != b->site || a->context != b->context || a->inputs != b->inputs || a->worker == b->worker
        || brick_fingerprints_rounded(p, one, other) == BRICK_ROUNDED_NOT)
        return 0;
    struct pair two = pair_of(0, 1, a->context);
    const struct pairs of = {&two, 1, 1, NULL};
    const int whole = collect(&w, a, b);
    if (whole)
        count_site(&w, &of, w.entries, w.entries_count);
    free(w.entries);
    return whole ? (int64_t)contents_of(&two) : -1;
}
