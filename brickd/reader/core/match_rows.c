#include "match_phases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* At most this many entries are tried as the reference, because each is compared with all others. */
#define CANDIDATES 16u

/* Returns why two entries are not comparable, or BRICK_CLASS_IDENTICAL if they are. In a comparison by run, backends
 * and forms of inputs may differ, because a user requested the comparison. */
static enum brick_class comparable(const struct brick_kept_fingerprint *a, const struct brick_kept_fingerprint *b,
                                   int same_input)
{
    if (a->context == b->context)
        return BRICK_CLASS_IDENTICAL;
    if (a->relation != b->relation || a->of != b->of)
        return BRICK_CLASS_RELATION;
    if (a->shard != b->shard)
        return BRICK_CLASS_SHARD;
    if (a->shape != b->shape)
        return BRICK_CLASS_SHAPE;
    if (a->valid != b->valid)
        return BRICK_CLASS_VALID;
    if (a->params != b->params)
        return BRICK_CLASS_PARAMS;
    if (a->dtype != b->dtype && (same_input || !brick_is_float(a->dtype) || !brick_is_float(b->dtype)))
        return BRICK_CLASS_DTYPE;
    if (!same_input)
        return BRICK_CLASS_IDENTICAL;
    if (a->stateful != b->stateful)
        return BRICK_CLASS_STATEFUL;
    return a->backend != b->backend ? BRICK_CLASS_BACKEND : BRICK_CLASS_FORM;
}

static float inputs_error(const struct work *w, const struct brick_kept_fingerprint *a, const struct brick_kept_fingerprint *b)
{
    if (a->inputs == 0 || b->inputs == 0 || a->inputs_count != b->inputs_count)
        return NAN;
    float most = 0;
    for (uint32_t n = 1; n <= a->inputs_count && !isnan(most); n++) {
        const float error = brick_tensor_error(w->one, w->other, n);
        most = error <= most ? most : error;
    }
    return most;
}

static int is_lossy(const struct work *w, const struct entry *a, const struct entry *b)
{
    return w->m->lost != NULL && (w->m->lost[a->worker] != 0 || w->m->lost[b->worker] != 0);
}

struct comparison brick_match_compare(struct work *w, const struct entry *reference, const struct entry *e)
{
    const struct brick_kept_fingerprint *a = reference->fingerprint, *b = e->fingerprint;
    const int by_run = !w->m->by_input;
    struct comparison c = {.class = comparable(a, b, !by_run), .error = NAN, .inputs = NAN};
    if (c.class != BRICK_CLASS_IDENTICAL)
        return c;
    if (reference->work != e->work) {
        c.class = BRICK_CLASS_WORK;
        return c;
    }
    if (a->output == b->output && a->dtype == b->dtype)
        return c;
    brick_fingerprints_slots(w->p, a, w->one);
    brick_fingerprints_slots(w->p, b, w->other);
    c.error = brick_tensor_error(w->one, w->other, 0);
    c.tolerance = by_run ? brick_tolerance(w->one, w->other, 0, w->m->rtol) : 0;
    c.rounding = brick_rounding(w->one, w->other, 0);
    c.inputs = inputs_error(w, a, b);
    /* Integers are either equal or not, never nearly equal. The same is true for all values if the tolerance is 0, even
     * if the sketches are equal. */
    const int nearly = by_run && brick_is_float(a->dtype) && c.tolerance > 0;
    const int must_agree = a->context == b->context && brick_fingerprint_is_grouped(a) && a->inputs == b->inputs;
    c.class = nearly && c.error <= c.tolerance ? BRICK_CLASS_WITHIN : BRICK_CLASS_DIVERGED;
    if (c.class == BRICK_CLASS_DIVERGED && by_run && !must_agree && is_lossy(w, reference, e))
        c.class = BRICK_CLASS_LOST;
    else if (nearly && !must_agree && (brick_values_left_out(w->one) || brick_values_left_out(w->other)))
        c.class = BRICK_CLASS_VALUES;
    else if (nearly && !must_agree && brick_is_beyond_sketches(w->one, w->other))
        c.class = BRICK_CLASS_RANGE;
    return c;
}

/* Returns whether an entry's inputs certainly differ from those of the reference by more than rounding. */
static int other_inputs(struct work *w, const struct entry *reference, const struct entry *e)
{
    const struct brick_kept_fingerprint *a = reference->fingerprint, *b = e->fingerprint;
    if (a->inputs == 0 || b->inputs == 0 || a->inputs == b->inputs || a->inputs_count != b->inputs_count
        || a->relation != b->relation || a->of != b->of || a->shard != b->shard)
        return 0;
    brick_fingerprints_slots(w->p, a, w->one);
    brick_fingerprints_slots(w->p, b, w->other);
    for (uint32_t n = 1; n <= a->inputs_count; n++) {
        if (!brick_is_of_one_shape(w->one, w->other, n)
            || brick_tensor_error(w->one, w->other, n) > brick_tolerance(w->one, w->other, n, w->m->rtol))
            return 1;
    }
    return 0;
}

void brick_match_worst(struct brick_match_row *row, uint32_t which, const struct comparison *c)
{
    if (row->class != BRICK_CLASS_IDENTICAL && c->class <= row->class
        && (c->class != row->class || c->error <= row->error || isnan(row->error)))
        return;
    row->class = (uint8_t)c->class;
    row->worst = which;
    row->error = c->error;
    row->tolerance = c->tolerance;
    row->rounding = c->rounding;
    row->inputs = c->inputs;
}

static struct comparison compare_member(struct work *w, struct brick_match_row *row, const struct entry *e, uint32_t which)
{
    const struct comparison c = brick_match_compare(w, &e[row->reference], &e[which]);
    if (!w->m->by_input) {
        struct visit *v = brick_steps_visit(w, e[which].fingerprint->step, e[which].worker);
        v->diverged |= c.class == BRICK_CLASS_DIVERGED;
        brick_steps_begin(w, &e[which], &e[row->reference], other_inputs(w, &e[row->reference], &e[which]));
    }
    if (c.class == BRICK_CLASS_WITHIN || c.class == BRICK_CLASS_DIVERGED)
        brick_match_worst(row, which, &c);
    return c;
}

static int is_same(const struct entry *a, const struct entry *b)
{
    return a->fingerprint->output == b->fingerprint->output && a->fingerprint->context == b->fingerprint->context
           && a->work == b->work;
}

/* Returns the first entry with the most frequent output, and sets *most to how often this output occurs. */
static uint32_t first_of_most(struct work *w, const struct entry *e, uint32_t count, uint32_t *most)
{
    struct entry *sorted = w->sorted;
    uint32_t worker = e->worker, i = 0;
    memcpy(sorted, e, count * sizeof *e);
    qsort(sorted, count, sizeof *sorted, brick_match_by_output);
    *most = 0;
    for (uint32_t from = 0, to = 1; to <= count; to++) {
        if (to < count && is_same(&sorted[from], &sorted[to]))
            continue;
        if (to - from > *most || (to - from == *most && sorted[from].worker < worker)) {
            *most = to - from;
            worker = sorted[from].worker;
        }
        from = to;
    }
    while (e[i].worker != worker)
        i++;
    return i;
}

static uint32_t near_to(struct work *w, const struct entry *one, const struct entry *e, uint32_t count)
{
    uint32_t near = 0;
    for (uint32_t j = 0; j < count; j++)
        near += one == &e[j] || brick_match_compare(w, one, &e[j]).class <= BRICK_CLASS_WITHIN;
    return near;
}

static uint32_t same_inputs(const struct entry *one, const struct entry *e, uint32_t count)
{
    uint32_t same = 0;
    for (uint32_t j = 0; j < count; j++)
        same += one->fingerprint->inputs == e[j].fingerprint->inputs;
    return same;
}

/* Returns an entry that is as good as the best entry, and whose worker lost no records. It has the same output or, if
 * `alone` says that the output is unique, the same inputs. If there is no such entry, returns the best entry. */
static uint32_t whole_one(const struct work *w, const struct entry *e, uint32_t count, uint32_t best, int alone)
{
    for (uint32_t i = 0; i < count; i++)
        if (!is_lossy(w, &e[i], &e[i])
            && (alone ? e[i].fingerprint->inputs == e[best].fingerprint->inputs : is_same(&e[best], &e[i])))
            return i;
    return best;
}

uint32_t brick_match_reference(struct work *w, const struct entry *e, uint32_t count)
{
    uint32_t most, best = first_of_most(w, e, count, &most);
    if (w->m->by_input)
        return best;
    const uint32_t tried = count < CANDIDATES ? count : CANDIDATES;
    for (uint32_t i = 0, most_same = 0; count > 2 && 2 * most < count && i < tried; i++) {
        const uint32_t near = near_to(w, &e[i], e, count), same = same_inputs(&e[i], e, count);
        if (near < most || (near == most && same <= most_same))
            continue;
        best = i;
        most = near;
        most_same = same;
    }
    return whole_one(w, e, count, best, most <= 1);
}

int brick_match_is_same(const struct entry *e, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++)
        if (!is_same(&e[0], &e[i]))
            return 0;
    return 1;
}

static int room_for_row(struct work *w, uint32_t members)
{
    struct brick_match *m = w->m;
    void *rows = brick_match_grown(m->rows, &w->rows_room, m->rows_count + 1, sizeof *m->rows);
    if (rows == NULL)
        return 0;
    m->rows = rows;
    void *all = brick_match_grown(m->members, &w->members_room, m->members_count + members, sizeof *m->members);
    if (all == NULL)
        return 0;
    m->members = all;
    return 1;
}

/* Counts identical entries, which are not a row of the result. */
static int pass_alike(struct work *w, uint32_t count, uint32_t moment)
{
    struct alike *alike = brick_match_grown(w->alike, &w->alike_room, w->alike_count + 1, sizeof *alike);
    if (alike == NULL)
        return 0;
    w->alike = alike;
    w->alike[w->alike_count++] = (struct alike){moment, count - 1};
    brick_match_site_now(w)->classes[BRICK_CLASS_IDENTICAL] += count - 1;
    return 1;
}

static uint32_t first_moment(const struct entry *e, uint32_t count)
{
    uint32_t first = e->moment;
    for (uint32_t i = 1; i < count; i++)
        first = e[i].moment < first ? e[i].moment : first;
    return first;
}

int brick_match_add(struct work *w, const struct entry *e, uint32_t count, uint32_t reference, enum brick_class as)
{
    struct brick_match *m = w->m;
    const uint32_t moment = first_moment(e, count);
    brick_match_site_now(w)->compared += count - 1;
    if (as == BRICK_CLASS_IDENTICAL && brick_match_is_same(e, count)) {
        for (uint32_t i = 0; i < count && !m->by_input; i++)
            brick_steps_begin(w, &e[i], &e[reference], other_inputs(w, &e[reference], &e[i]));
        return pass_alike(w, count, moment);
    }
    if (!room_for_row(w, count))
        return 0;
    struct brick_match_row *row = &m->rows[m->rows_count];
    *row = (struct brick_match_row){
        .moment = moment,
        .first = m->members_count,
        .members = count,
        .reference = reference,
        .site = (uint32_t)(m->sites_count - 1),
        .error = NAN,
        .inputs = NAN,
    };
    enum brick_class last = as;
    for (uint32_t i = 0; i < count; i++) {
        struct comparison c = {.class = i == reference ? BRICK_CLASS_IDENTICAL : as};
        if (i != reference && as == BRICK_CLASS_IDENTICAL)
            c = compare_member(w, row, e, i);
        else if (!m->by_input)
            brick_steps_begin(w, &e[i], &e[reference], 0);
        m->members[row->first + i] = (struct brick_member){e[i].number, e[i].worker, (uint8_t)c.class};
        last = c.class > last ? c.class : last;
        row->agree += c.class <= BRICK_CLASS_WITHIN;
    }
    if (row->class != BRICK_CLASS_DIVERGED)
        row->class = (uint8_t)last;
    if (row->class == BRICK_CLASS_IDENTICAL) /* the members differ only in backend or form */
        return pass_alike(w, count, moment);
    m->rows_count++;
    m->members_count += count;
    return 1;
}
