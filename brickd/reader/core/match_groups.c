#include "match_phases.h"
#include "row_pairs.h"

#include <string.h>

/* ---- by run ------------------------------------------------------------- */

/* Adds the rows of one site, step, position and shard. The entries are sorted by worker and time, and belong to at
 * least two workers. */
static int shard_group(struct work *w, const struct entry *e, size_t count)
{
    size_t start = 0, times = 0, workers = 0;
    int even = 1, same = 1, worn = 0, positions = 0;
    for (size_t i = 0; i < count; i++) {
        const struct visit *v = brick_steps_visit(w, e[i].fingerprint->step, e[i].worker);
        even &= !v->cut;
        worn |= v->worn;
        positions |= e[i].fingerprint->flags & BRICK_CHECKED_POSITION;
        if (i == 0 || e[i].worker != e[i - 1].worker) {
            if (workers > 0) {
                even &= times == 0 || i - start == times;
                times = i - start;
            }
            start = i;
            workers++;
        }
        same &= e[i].fingerprint->output == e[0].fingerprint->output && e[i].fingerprint->context == e[0].fingerprint->context;
    }
    even &= times == 0 || count - start == times;
    even &= !worn || (count == workers && !positions); /* positions given by the host are right even after evictions */
    times = count / workers;
    struct entry *row = w->row;
    int added = 1;
    if (even) {
        for (size_t k = 0; added && k < times; k++) {
            for (size_t i = 0; i < workers; i++)
                row[i] = e[i * times + k];
            const uint32_t reference = brick_match_reference(w, row, (uint32_t)workers);
            added = brick_match_add(w, row, (uint32_t)workers, reference, BRICK_CLASS_IDENTICAL);
        }
    } else { /* it is not known which repeats of two workers belong together */
        for (size_t i = 0, n = 0; i < count; i++)
            if (i == 0 || e[i].worker != e[i - 1].worker)
                row[n++] = e[i];
        added = brick_match_add(w, row, (uint32_t)workers, 0, same ? BRICK_CLASS_IDENTICAL : BRICK_CLASS_REPEATS);
    }
    return added;
}

/* ---- by input ----------------------------------------------------------- */

static struct outputs outputs_of(const struct entry *e, size_t count)
{
    struct outputs s = {.most = e[0], .other = e[0], .steady = 1};
    size_t times = 0;
    for (size_t from = 0, i = 1; i <= count; i++) {
        if (i < count && e[i].fingerprint->output == e[from].fingerprint->output)
            continue;
        if (i - from > times) {
            s.most = e[from];
            times = i - from;
        }
        from = i;
    }
    for (size_t i = 0; i < count; i++) {
        if (e[i].fingerprint->output == s.most.fingerprint->output || (!s.steady && e[i].number > s.other.number))
            continue;
        s.other = e[i];
        s.steady = 0;
    }
    return s;
}

/* Returns the first of a worker's entries with this output, or NULL. */
static const struct entry *with_output(const struct entry *e, size_t count, uint64_t output)
{
    for (size_t i = 0; i < count; i++)
        if (e[i].fingerprint->output == output)
            return &e[i];
    return NULL;
}

/* Adds the result for one row of tensors in one context. The entries are sorted by worker and output, and belong to at
 * least two workers. The reference is the output that most workers have. */
static int row_group(struct work *w, const struct entry *e, size_t count)
{
    uint64_t best = 0;
    uint32_t most = 0, workers = 0, reference = UINT32_MAX;
    for (size_t from = 0; from < count; from = brick_match_run_end(e, from, count)) {
        const uint64_t output = outputs_of(e + from, brick_match_run_end(e, from, count) - from).most.fingerprint->output;
        uint32_t votes = 0;
        for (size_t other = 0; other < count; other = brick_match_run_end(e, other, count))
            votes += with_output(e + other, brick_match_run_end(e, other, count) - other, output) != NULL;
        if (votes > most) {
            most = votes;
            best = output;
        }
    }
    for (size_t from = 0, end; from < count; from = end) {
        end = brick_match_run_end(e, from, count);
        const struct entry *shown = with_output(e + from, end - from, best);
        const int has_best = shown != NULL;
        for (size_t i = from; has_best && i < end; i++) /* prefer an output far from it */
            shown = brick_rows_far(w->p, shown->number, e[i].number) ? &e[i] : shown;
        reference = has_best && shown->fingerprint->output == best && reference == UINT32_MAX ? workers : reference;
        w->row[workers++] = has_best ? *shown : outputs_of(e + from, end - from).most;
    }
    reference = reference != UINT32_MAX ? reference : 0;
    return brick_match_add(w, w->row, workers, reference, BRICK_CLASS_IDENTICAL);
}

/* Adds the row of one site, inputs and context. The entries are sorted by worker and output, and belong to at least two
 * workers. */
static int context_group(struct work *w, const struct entry *e, size_t count)
{
    struct entry *row = w->row;
    uint32_t workers = 0, unsteady = 0;
    for (size_t from = 0, i = 1; i <= count; i++) {
        if (i < count && e[i].worker == e[from].worker)
            continue;
        w->outputs[workers] = outputs_of(e + from, i - from);
        row[workers] = w->outputs[workers].most;
        unsteady += (uint32_t)!w->outputs[workers++].steady;
        from = i;
    }
    if (e->fingerprint->stateful) {
        const int equal = unsteady == 0 && brick_match_is_same(row, workers);
        return brick_match_add(w, row, workers, 0, equal ? BRICK_CLASS_IDENTICAL : BRICK_CLASS_STATEFUL);
    }
    if (2 * unsteady > workers)
        return brick_match_add(w, row, workers, 0, BRICK_CLASS_UNSTEADY);
    uint32_t reference = brick_match_reference(w, row, workers);
    const uint64_t output = row[reference].fingerprint->output;
    for (uint32_t i = 0; i < workers && !w->outputs[reference].steady; i++)
        reference = w->outputs[i].steady && row[i].fingerprint->output == output ? i : reference;
    for (uint32_t i = 0; i < workers; i++) /* if a worker contradicts itself, show its other output */
        if (i != reference && !w->outputs[i].steady && row[i].fingerprint->output == output)
            row[i] = w->outputs[i].other;
    return brick_match_add(w, row, workers, reference, BRICK_CLASS_IDENTICAL);
}

/* ---- contexts and shards --------------------------------------------------- */

/* Adds a row for the workers that cannot be compared, because no other worker has their context or shard. The leader,
 * which is their reference, comes from another context or shard. The class of the row is the reason. */
static int add_apart(struct work *w, const struct entry *leader)
{
    uint32_t count = 0, reference = 0;
    for (uint32_t worker = 0; worker < w->m->count; worker++) {
        if (worker == leader->worker) {
            reference = count;
            w->row[count++] = *leader;
        } else if (w->alone[worker] != NULL) {
            w->row[count++] = *w->alone[worker];
        }
    }
    return brick_match_add(w, w->row, count, reference, BRICK_CLASS_IDENTICAL);
}

/* Returns where the next part begins. All entries of a part have the same context (by input), or the same shard and the
 * same work (by run). */
static size_t part_end(const struct work *w, const struct entry *e, size_t from, size_t count)
{
    const struct brick_kept_fingerprint *first = e[from].fingerprint;
    size_t i = from + 1;
    while (i < count && (w->m->by_input ? e[i].fingerprint->context == first->context
                                          : e[i].fingerprint->shard == first->shard && e[i].work == e[from].work))
        i++;
    return i;
}

/* Adds the rows of a group, which is sorted by part, worker and output. */
static int add_parts(struct work *w, const struct entry *e, size_t count)
{
    const struct entry *leader = NULL, *lone = NULL; /* both: of several candidates, the first worker in the list */
    size_t leading = 0; /* if the leader is alone in its part: how many entries it has there */
    int added = 1, apart = 0;
    memset(w->alone, 0, w->m->count * sizeof *w->alone);
    memset(w->marked, 0, w->m->count);
    for (size_t from = 0, end; added && from < count; from = end) {
        end = part_end(w, e, from, count);
        if (e[end - 1].worker == e[from].worker) {
            lone = lone == NULL || e[from].worker < lone->worker ? &e[from] : lone;
            continue;
        }
        leader = leader == NULL || e[from].worker < leader->worker ? &e[from] : leader;
        for (size_t i = from; i < end; i++)
            w->marked[e[i].worker] = 1;
        added = (w->m->tier != BRICK_TIER_TENSORS ? row_group : w->m->by_input ? context_group : shard_group)(w, e + from, end - from);
    }
    leader = leader != NULL ? leader : lone;
    for (size_t from = 0, end; from < count; from = end) {
        end = part_end(w, e, from, count);
        const uint32_t worker = e[from].worker;
        if (e[end - 1].worker != worker)
            continue;
        if (leader == &e[from]) {
            leading = end - from;
        } else if (w->marked[worker] || leader->worker == worker || w->alone[worker] != NULL) {
            brick_match_site_now(w)->lone += end - from;
        } else {
            w->alone[worker] = &e[from];
            apart = 1;
        }
    }
    if (apart)
        return added && add_apart(w, leader);
    brick_match_site_now(w)->lone += leading;
    return added;
}

int brick_group_by_run(struct work *w, const struct entry *e, size_t count)
{
    brick_steps_miss(w, e, count);
    return add_parts(w, e, count);
}

int brick_group_by_input(struct work *w, const struct entry *e, size_t count)
{
    if (e->fingerprint->inputs != 0)
        return add_parts(w, e, count);
    brick_match_site_now(w)->bare += count;
    return 1;
}
