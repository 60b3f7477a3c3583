#include "matching.h"
#include "tolerance.h"

#include <math.h>

/* By run it is a person who says that backends and the inputs' forms do not matter. */
static enum brick_class comparable(const struct brick_print *a, const struct brick_print *b, int same_input)
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

/* The largest error of its inputs beside those of another. */
static float inputs_error(const struct brick_print *a, const struct brick_print *b, const struct brick_record *one,
                          const struct brick_record *other)
{
    if (a->inputs == 0 || b->inputs == 0 || a->inputs_count != b->inputs_count)
        return NAN;
    float most = 0;
    for (uint32_t n = 1; n <= a->inputs_count; n++) {
        float error = brick_tensor_error(one, other, n);
        if (!(error <= most))
            most = error;
        if (isnan(most))
            return most;
    }
    return most;
}

/* A member's class beside the one that it is held against; the row knows the worst. */
static enum brick_class judge(struct work *w, struct brick_row_found *row, const struct entry *against,
                              const struct entry *e, uint32_t which)
{
    const struct brick_print *a = against->print, *b = e->print;
    const enum brick_class able = comparable(a, b, w->m->by_input);
    if (able != BRICK_CLASS_IDENTICAL)
        return able;
    if (a->output == b->output && a->dtype == b->dtype)
        return BRICK_CLASS_IDENTICAL;
    brick_prints_slots(w->p, a, w->one);
    brick_prints_slots(w->p, b, w->other);
    const int must_agree = a->context == b->context && brick_print_is_grouped(a) && a->inputs == b->inputs;
    const int unknown = brick_values_left_out(w->one) || brick_values_left_out(w->other);
    if (!w->m->by_input && !must_agree && unknown && brick_is_float(a->dtype) && w->m->rtol != 0)
        return BRICK_CLASS_VALUES;
    const float error = brick_tensor_error(w->one, w->other, 0);
    const float tolerance = w->m->by_input ? 0 : brick_tolerance(w->one, w->other, w->m->rtol);
    /* No whole number is nearly another; and where nothing is tolerated, neither is what a sketch does not show. */
    const int nearly = !w->m->by_input && brick_is_float(a->dtype) && tolerance > 0 && error <= tolerance;
    const enum brick_class class = nearly ? BRICK_CLASS_WITHIN : BRICK_CLASS_DIVERGED;
    const int worse = row->class == BRICK_CLASS_IDENTICAL || class > row->class
                      || (class == row->class && !(error <= row->error) && !isnan(row->error));
    if (worse) {
        row->class = (uint8_t)class;
        row->worst = which;
        row->error = error;
        row->tolerance = tolerance;
        row->inputs = inputs_error(a, b, w->one, w->other);
    }
    return class;
}

uint32_t brick_match_most(const struct entry *e, uint32_t count)
{
    uint32_t best = 0, most = 1;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t same = 0;
        for (uint32_t j = i; j < count; j++)
            same += e[j].print->output == e[i].print->output && e[j].print->context == e[i].print->context;
        if (same > most) {
            most = same;
            best = i;
        }
        if (2 * most >= count)
            break;
    }
    return best;
}

int brick_match_is_same(const struct entry *e, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++)
        if (e[i].print->output != e[0].print->output || e[i].print->context != e[0].print->context)
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

/* Nothing differs: it is no row. */
static int pass_alike(struct work *w, uint32_t count, uint64_t ticks)
{
    struct alike *alike = brick_match_grown(w->alike, &w->alike_room, w->alike_count + 1, sizeof *alike);
    if (alike == NULL)
        return 0;
    w->alike = alike;
    w->alike[w->alike_count++] = (struct alike){ticks, count - 1};
    brick_site_now(w)->classes[BRICK_CLASS_IDENTICAL] += count - 1;
    return 1;
}

int brick_match_add(struct work *w, const struct entry *e, uint32_t count, uint32_t against, enum brick_class as)
{
    struct brick_match *m = w->m;
    const uint64_t ticks = m->by_input ? w->ticks : e->print->ticks;
    brick_site_now(w)->compared += count - 1;
    if (as == BRICK_CLASS_IDENTICAL && brick_match_is_same(e, count)) {
        brick_steps_begin(w, e, count, 0);
        return pass_alike(w, count, ticks);
    }
    if (!room_for_row(w, count))
        return 0;
    struct brick_row_found *row = &m->rows[m->rows_count];
    *row = (struct brick_row_found){
        .ticks = ticks,
        .first = m->members_count,
        .members = count,
        .against = against,
        .site = (uint32_t)(m->sites_count - 1),
        .step = m->by_input ? UINT32_MAX : brick_steps_visit(w, e->print->step, e->worker)->at,
        .error = NAN,
        .inputs = NAN,
    };
    enum brick_class last = as;
    for (uint32_t i = 0; i < count; i++) {
        const enum brick_class class = i == row->against            ? BRICK_CLASS_IDENTICAL
                                       : as != BRICK_CLASS_IDENTICAL ? as
                                                                     : judge(w, row, &e[row->against], &e[i], i);
        m->members[row->first + i] = (struct brick_member){e[i].number, e[i].worker, (uint8_t)class};
        last = class > last ? class : last;
    }
    if (row->class != BRICK_CLASS_DIVERGED)
        row->class = (uint8_t)last;
    brick_steps_begin(w, e, count, row->inputs > 0 && row->inputs > row->tolerance); /* not where they are not known */
    if (row->class == BRICK_CLASS_IDENTICAL) /* of other backends or forms: no row after all */
        return pass_alike(w, count, ticks);
    m->rows_count++;
    m->members_count += count;
    if (!m->by_input)
        m->steps[row->step].diverged |= row->class == BRICK_CLASS_DIVERGED;
    return 1;
}
