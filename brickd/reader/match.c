#include "match.h"

#include "tolerance.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A print that is set beside others. */
struct entry {
    const struct brick_print *print;
    uint64_t number;
    uint32_t worker;
};

/* That a worker has a step. */
struct visit {
    uint64_t step, first, last; /* ticks of its prints */
    uint64_t begins;            /* and of the first that stands in a row, */
    uint32_t worker;
    uint8_t differs;            /* whose inputs are not the same in all of that row */
};

/* What one worker said: the first of what it said most often, and of all that it said besides, if it did. */
struct said {
    struct entry most, besides;
    int steady;
};

/* What lives as long as the call. */
struct work {
    const struct brick_prints *p;
    struct brick_match *m;
    struct entry *entries;
    struct visit *visits;
    size_t entries_count, visits_count, rows_room, members_room;
    struct brick_record one[BRICK_CHECKED_SLOTS_MAX], other[BRICK_CHECKED_SLOTS_MAX];
    /* Of the present row or group, of each worker: */
    struct entry *row;
    struct said *said;
    const struct entry **alone; /* his only one in the context, or of the shard, that it has */
    uint8_t *beside;            /* he stands beside another one */
    uint8_t *here;              /* he is in it */
};

#define ORDER(a, b) ((a) < (b) ? -1 : (a) > (b))
#define UNLESS_EQUAL(a, b)    \
    do {                      \
        if ((a) != (b))       \
            return ORDER(a, b); \
    } while (0)

static int by_run(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    UNLESS_EQUAL(x->print->site, y->print->site);
    UNLESS_EQUAL(x->print->step, y->print->step);
    UNLESS_EQUAL(x->print->position, y->print->position);
    UNLESS_EQUAL(x->print->shard, y->print->shard);
    UNLESS_EQUAL(x->worker, y->worker);
    return ORDER(x->number, y->number);
}

static int by_input(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    UNLESS_EQUAL(x->print->site, y->print->site);
    UNLESS_EQUAL(x->print->inputs, y->print->inputs);
    UNLESS_EQUAL(x->print->context, y->print->context);
    UNLESS_EQUAL(x->worker, y->worker);
    UNLESS_EQUAL(x->print->output, y->print->output);
    return ORDER(x->number, y->number);
}

static int by_step(const void *a, const void *b)
{
    const struct visit *x = a, *y = b;
    UNLESS_EQUAL(x->step, y->step);
    return ORDER(x->worker, y->worker);
}

static int by_ticks(const void *a, const void *b)
{
    const struct brick_row_found *x = a, *y = b;
    UNLESS_EQUAL(x->ticks, y->ticks);
    return ORDER(x->first, y->first);
}

static int by_begin(const void *a, const void *b)
{
    const struct visit *x = a, *y = b;
    UNLESS_EQUAL(x->worker, y->worker);
    UNLESS_EQUAL(x->begins, y->begins);
    return ORDER(x->step, y->step);
}

/* ---- what is set side by side ------------------------------------------- */

static int collect(struct work *w)
{
    const struct brick_prints *p = w->p;
    const struct brick_match *m = w->m;
    uint32_t most = 0;
    for (size_t i = 0; i < m->count; i++)
        most = m->workers[i] > most ? m->workers[i] : most;
    uint32_t *places = malloc((most + (size_t)1) * sizeof *places);
    w->entries = malloc((size_t)(p->end - p->first + 1) * sizeof *w->entries);
    if (places == NULL || w->entries == NULL) {
        free(places);
        return 0;
    }
    memset(places, 0xFF, (most + (size_t)1) * sizeof *places);
    for (uint32_t i = 0; i < m->count; i++)
        places[m->workers[i]] = i;
    for (uint64_t n = p->first; n < p->end; n++) {
        const struct brick_print *print = brick_prints_at(p, n);
        const uint32_t place = print->worker <= most ? places[print->worker] : UINT32_MAX;
        if (place != UINT32_MAX && print->ticks >= m->since[place] && (m->step == NULL || print->step == *m->step))
            w->entries[w->entries_count++] = (struct entry){print, n, place};
    }
    free(places);
    w->m->prints = w->entries_count;
    return 1;
}

/* What the first of these workers said first of them. */
static const struct entry *first_of(const struct entry *e, size_t count)
{
    const struct entry *first = e;
    for (size_t i = 1; i < count; i++)
        if (e[i].worker < first->worker || (e[i].worker == first->worker && e[i].print->ticks < first->print->ticks))
            first = &e[i];
    return first;
}

/* Who has which step. */
static int visit_steps(struct work *w)
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
        w->m->steps[w->m->steps_count - 1].workers++;
        v[w->visits_count++] = v[i];
    }
    return 1;
}

static struct visit *visit_of(const struct work *w, uint64_t step, uint32_t worker)
{
    const struct visit wanted = {.step = step, .worker = worker};
    return bsearch(&wanted, w->visits, w->visits_count, sizeof wanted, by_step);
}

static uint32_t step_of(const struct work *w, uint64_t step)
{
    size_t low = 0, high = w->m->steps_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (w->m->steps[middle].step <= step)
            low = middle;
        else
            high = middle;
    }
    return (uint32_t)low;
}

/* ---- one beside another ------------------------------------------------- */

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

/* What most say, where more than one does; else what the first does. */
static uint32_t held_against(const struct entry *e, uint32_t count)
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

static int same_throughout(const struct entry *e, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++)
        if (e[i].print->output != e[0].print->output || e[i].print->context != e[0].print->context)
            return 0;
    return 1;
}

static int room_for_row(struct work *w, uint32_t members)
{
    struct brick_match *m = w->m;
    if (m->rows_count == w->rows_room) {
        size_t room = w->rows_room > 0 ? 2 * w->rows_room : 64;
        struct brick_row_found *more = realloc(m->rows, room * sizeof *more);
        if (more == NULL)
            return 0;
        m->rows = more;
        w->rows_room = room;
    }
    while (m->members_count + members > w->members_room) {
        size_t room = w->members_room > 0 ? 2 * w->members_room : 256;
        struct brick_member *more = realloc(m->members, room * sizeof *more);
        if (more == NULL)
            return 0;
        m->members = more;
        w->members_room = room;
    }
    return 1;
}

/* By run: a row may be the first of its step, for each of its workers by his own clock. */
static void begin_steps(struct work *w, const struct entry *e, uint32_t count, int differs)
{
    for (uint32_t i = 0; i < count && !w->m->by_input; i++) {
        struct visit *v = visit_of(w, e[i].print->step, e[i].worker);
        if (e[i].print->ticks >= v->begins)
            continue;
        v->begins = e[i].print->ticks;
        v->differs = (uint8_t)differs;
    }
}

static struct brick_site_found *site_found(struct work *w) { return &w->m->sites[w->m->sites_count - 1]; }

/* A row, with one print of each of at least two workers, in their order, and the one that the others are held against.
 * `as`: what all of it is, where that is known. */
static int add_row(struct work *w, const struct entry *e, uint32_t count, uint32_t against, enum brick_class as)
{
    struct brick_match *m = w->m;
    struct brick_site_found *site = site_found(w);
    site->compared += count - 1;
    if (as == BRICK_CLASS_IDENTICAL && same_throughout(e, count)) {
        site->classes[BRICK_CLASS_IDENTICAL] += count - 1;
        begin_steps(w, e, count, 0);
        return 1;
    }
    if (!room_for_row(w, count))
        return 0;
    struct brick_row_found *row = &m->rows[m->rows_count];
    *row = (struct brick_row_found){
        .ticks = e->print->ticks,
        .first = m->members_count,
        .members = count,
        .against = against,
        .step = m->by_input ? UINT32_MAX : step_of(w, e->print->step),
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
    begin_steps(w, e, count, row->inputs > 0 && row->inputs > row->tolerance); /* not where they are not known */
    if (row->class == BRICK_CLASS_IDENTICAL) { /* of other backends or forms: no row after all */
        site->classes[BRICK_CLASS_IDENTICAL] += count - 1;
        return 1;
    }
    m->rows_count++;
    m->members_count += count;
    if (!m->by_input)
        m->steps[row->step].diverged |= row->class == BRICK_CLASS_DIVERGED;
    return 1;
}

/* ---- by run ------------------------------------------------------------- */

/* Of those that have the step, who lacks the row. */
static void count_missing(struct work *w, const struct entry *e, size_t count)
{
    struct brick_match *m = w->m;
    const uint64_t step = e->print->step;
    if (m->steps[step_of(w, step)].workers < 2)
        return;
    memset(w->here, 0, m->count);
    for (size_t i = 0; i < count; i++)
        w->here[e[i].worker] = 1;
    for (uint32_t worker = 0; worker < m->count; worker++) {
        const struct visit *v = w->here[worker] ? NULL : visit_of(w, step, worker);
        if (v == NULL)
            continue;
        /* Whoever came in the middle of it, or is in the middle of it, may have it still. */
        const int edge = v->first == m->edges[worker].first || v->last == m->edges[worker].last;
        *(edge ? &m->edges[worker].uncertain : &m->edges[worker].missing) += 1;
        *(edge ? &site_found(w)->uncertain : &site_found(w)->missing) += 1;
    }
}

/* The prints of one site, step, position and shard, in the order of the workers and of time; of two workers at least. */
static int shard_group(struct work *w, const struct entry *e, size_t count)
{
    size_t start = 0, times = 0, workers = 0;
    int even = 1, same = 1;
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || e[i].worker != e[i - 1].worker) {
            if (workers > 0) {
                even &= times == 0 || i - start == times;
                times = i - start;
            }
            start = i;
            workers++;
        }
        same &= e[i].print->output == e[0].print->output && e[i].print->context == e[0].print->context;
    }
    even &= times == 0 || count - start == times;
    times = count / workers;
    struct entry *row = w->row;
    int added = 1;
    if (even) {
        for (size_t k = 0; added && k < times; k++) {
            for (size_t i = 0; i < workers; i++)
                row[i] = e[i * times + k];
            added = add_row(w, row, (uint32_t)workers, held_against(row, (uint32_t)workers), BRICK_CLASS_IDENTICAL);
        }
    } else { /* which of one is which of the other nobody knows */
        for (size_t i = 0, n = 0; i < count; i++)
            if (i == 0 || e[i].worker != e[i - 1].worker)
                row[n++] = e[i];
        added = add_row(w, row, (uint32_t)workers, 0, same ? BRICK_CLASS_IDENTICAL : BRICK_CLASS_REPEATS);
    }
    return added;
}

/* Steps that begin, for any of their workers, with other inputs before anything diverged were other work. */
static void find_other_work(struct work *w)
{
    struct brick_match *m = w->m;
    qsort(w->visits, w->visits_count, sizeof *w->visits, by_begin); /* by step they are looked for no more */
    for (size_t i = 0, diverged = 0; i < w->visits_count; i++) {
        const struct visit *v = &w->visits[i];
        struct brick_step *step = &m->steps[step_of(w, v->step)];
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

/* ---- by input ----------------------------------------------------------- */

static struct said said_by(const struct entry *e, size_t count)
{
    struct said s = {.most = e[0], .besides = e[0], .steady = 1};
    size_t times = 0;
    for (size_t from = 0, i = 1; i <= count; i++) {
        if (i < count && e[i].print->output == e[from].print->output)
            continue;
        if (i - from > times) {
            s.most = e[from];
            times = i - from;
        }
        from = i;
    }
    for (size_t i = 0; i < count; i++) {
        if (e[i].print->output == s.most.print->output || (!s.steady && e[i].number > s.besides.number))
            continue;
        s.besides = e[i];
        s.steady = 0;
    }
    return s;
}

/* The prints of one site, inputs and context, in the order of the workers and of what they said; of two workers at least. */
static int context_group(struct work *w, const struct entry *e, size_t count)
{
    struct entry *row = w->row;
    uint32_t workers = 0, unsteady = 0;
    for (size_t from = 0, i = 1; i <= count; i++) {
        if (i < count && e[i].worker == e[from].worker)
            continue;
        w->said[workers] = said_by(e + from, i - from);
        row[workers] = w->said[workers].most;
        unsteady += (uint32_t)!w->said[workers++].steady;
        from = i;
    }
    if (e->print->stateful) {
        const int equal = unsteady == 0 && same_throughout(row, workers);
        return add_row(w, row, workers, 0, equal ? BRICK_CLASS_IDENTICAL : BRICK_CLASS_STATEFUL);
    }
    if (2 * unsteady > workers)
        return add_row(w, row, workers, 0, BRICK_CLASS_UNSTEADY);
    uint32_t against = held_against(row, workers);
    const uint64_t output = row[against].print->output;
    for (uint32_t i = 0; i < workers && !w->said[against].steady; i++)
        against = w->said[i].steady && row[i].print->output == output ? i : against;
    for (uint32_t i = 0; i < workers; i++) /* who contradicts himself is shown with what is not what the others say */
        if (i != against && !w->said[i].steady && row[i].print->output == output)
            row[i] = w->said[i].besides;
    return add_row(w, row, workers, against, BRICK_CLASS_IDENTICAL);
}

/* ---- of each context or shard --------------------------------------------- */

/* Those that are the only ones in their contexts or shards stand beside one of another: not comparable, and why. */
static int add_apart(struct work *w, const struct entry *leader)
{
    uint32_t count = 0, against = 0;
    for (uint32_t worker = 0; worker < w->m->count; worker++) {
        if (worker == leader->worker) {
            against = count;
            w->row[count++] = *leader;
        } else if (w->alone[worker] != NULL) {
            w->row[count++] = *w->alone[worker];
        }
    }
    return add_row(w, w->row, count, against, BRICK_CLASS_IDENTICAL);
}

/* Where the next part begins that is of another context, by run of another shard. */
static size_t part_end(const struct work *w, const struct entry *e, size_t from, size_t count)
{
    const struct brick_print *first = e[from].print;
    size_t i = from + 1;
    while (i < count && (w->m->by_input ? e[i].print->context == first->context : e[i].print->shard == first->shard))
        i++;
    return i;
}

/* What may be set side by side, in the order of its parts, of the workers and of what they said. */
static int add_parts(struct work *w, const struct entry *e, size_t count)
{
    const struct entry *leader = NULL, *lone = NULL; /* of the first worker, each */
    size_t leading = 0; /* the leader's prints, where he is alone */
    int added = 1, apart = 0;
    memset(w->alone, 0, w->m->count * sizeof *w->alone);
    memset(w->beside, 0, w->m->count);
    for (size_t from = 0, end; added && from < count; from = end) {
        end = part_end(w, e, from, count);
        if (e[end - 1].worker == e[from].worker) {
            lone = lone == NULL || e[from].worker < lone->worker ? &e[from] : lone;
            continue;
        }
        leader = leader == NULL || e[from].worker < leader->worker ? &e[from] : leader;
        for (size_t i = from; i < end; i++)
            w->beside[e[i].worker] = 1;
        added = (w->m->by_input ? context_group : shard_group)(w, e + from, end - from);
    }
    leader = leader != NULL ? leader : lone;
    for (size_t from = 0, end; from < count; from = end) {
        end = part_end(w, e, from, count);
        const uint32_t worker = e[from].worker;
        if (e[end - 1].worker != worker)
            continue;
        if (leader == &e[from]) {
            leading = end - from;
        } else if (w->beside[worker] || leader->worker == worker || w->alone[worker] != NULL) {
            site_found(w)->lone += end - from;
        } else {
            w->alone[worker] = &e[from];
            apart = 1;
        }
    }
    if (apart)
        return added && add_apart(w, leader);
    site_found(w)->lone += leading;
    return added;
}

/* The prints of one site, step and position. */
static int run_group(struct work *w, const struct entry *e, size_t count)
{
    count_missing(w, e, count);
    return add_parts(w, e, count);
}

/* The prints of one site and inputs. */
static int input_group(struct work *w, const struct entry *e, size_t count)
{
    const size_t rows = w->m->rows_count;
    if (e->print->inputs == 0) {
        site_found(w)->bare += count;
        return 1;
    }
    if (!add_parts(w, e, count))
        return 0;
    for (size_t i = rows; i < w->m->rows_count; i++)
        w->m->rows[i].ticks = first_of(e, count)->print->ticks;
    return 1;
}

/* ---- all ---------------------------------------------------------------- */

static int same_group(const struct entry *a, const struct entry *b, int same_input)
{
    const struct brick_print *x = a->print, *y = b->print;
    if (x->site != y->site)
        return 0;
    return same_input ? x->inputs == y->inputs : x->step == y->step && x->position == y->position;
}

static int walk(struct work *w)
{
    struct brick_match *m = w->m;
    size_t sites = 0;
    for (size_t i = 0; i < w->entries_count; i++)
        sites += i == 0 || w->entries[i].print->site != w->entries[i - 1].print->site;
    m->sites = calloc(sites + 1, sizeof *m->sites);
    w->row = malloc((m->count + 1) * sizeof *w->row);
    w->said = malloc((m->count + 1) * sizeof *w->said);
    w->alone = malloc((m->count + 1) * sizeof *w->alone);
    w->beside = malloc(m->count + 1);
    w->here = malloc(m->count + 1);
    if (m->sites == NULL || w->row == NULL || w->said == NULL || w->alone == NULL || w->beside == NULL || w->here == NULL)
        return 0;
    for (size_t from = 0, i = 1; i <= w->entries_count; i++) {
        if (i < w->entries_count && same_group(&w->entries[from], &w->entries[i], m->by_input))
            continue;
        const struct entry *e = &w->entries[from];
        if (m->sites_count == 0 || site_found(w)->site != e->print->site)
            m->sites[m->sites_count++] = (struct brick_site_found){.site = e->print->site, .ticks = UINT64_MAX, .worker = UINT32_MAX};
        struct brick_site_found *site = site_found(w);
        site->prints += i - from;
        const struct entry *first = first_of(e, i - from);
        if (first->worker <= site->worker) {
            const uint64_t ticks = first->print->ticks;
            site->ticks = first->worker < site->worker || ticks < site->ticks ? ticks : site->ticks;
            site->worker = first->worker;
        }
        if (!(m->by_input ? input_group : run_group)(w, e, i - from))
            return 0;
        from = i;
    }
    return 1;
}

static void count_classes(struct brick_match *m, const struct brick_prints *p)
{
    for (size_t i = 0; i < m->rows_count; i++) {
        const struct brick_row_found *row = &m->rows[i];
        const uint64_t wanted = brick_prints_at(p, m->members[row->first].number)->site;
        size_t low = 0, high = m->sites_count;
        while (high - low > 1) {
            size_t middle = low + (high - low) / 2;
            if (m->sites[middle].site <= wanted)
                low = middle;
            else
                high = middle;
        }
        struct brick_site_found *site = &m->sites[low];
        for (uint32_t n = 0; n < row->members; n++)
            site->classes[m->members[row->first + n].class] += n != row->against;
        if (row->class == BRICK_CLASS_WITHIN && row->error > site->error)
            site->error = row->error;
    }
}

static int find_edges(struct work *w)
{
    struct brick_match *m = w->m;
    m->edges = calloc(m->count + 1, sizeof *m->edges);
    if (m->edges == NULL)
        return 0;
    for (size_t i = 0; i < m->count; i++)
        m->edges[i].first = UINT64_MAX;
    for (size_t i = 0; i < w->entries_count; i++) {
        struct brick_edge *edge = &m->edges[w->entries[i].worker];
        const uint64_t ticks = w->entries[i].print->ticks;
        edge->first = ticks < edge->first ? ticks : edge->first;
        edge->last = ticks > edge->last ? ticks : edge->last;
        edge->prints++;
        edge->declared += (w->entries[i].print->flags & BRICK_CHECKED_STEP) != 0;
    }
    return 1;
}

int brick_match(const struct brick_prints *p, struct brick_match *m)
{
    struct work w = {.p = p, .m = m};
    int whole = collect(&w) && find_edges(&w) && (m->by_input || visit_steps(&w));
    if (whole) {
        qsort(w.entries, w.entries_count, sizeof *w.entries, m->by_input ? by_input : by_run);
        whole = walk(&w);
    }
    if (whole && !m->by_input)
        find_other_work(&w);
    if (whole) {
        if (m->rows_count > 0)
            qsort(m->rows, m->rows_count, sizeof *m->rows, by_ticks);
        count_classes(m, p);
    }
    free(w.entries);
    free(w.visits);
    free(w.row);
    free(w.said);
    free(w.alone);
    free(w.beside);
    free(w.here);
    return whole;
}

void brick_match_free(struct brick_match *m)
{
    free(m->rows);
    free(m->members);
    free(m->steps);
    free(m->sites);
    free(m->edges);
}
