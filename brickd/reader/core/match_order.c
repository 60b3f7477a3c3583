/* core/match_order.c - merges the orders of several workers into one, because their clocks cannot be compared.
 *
 * The items of these orders are called moments. Several workers may have the same moment. In a comparison by run, there
 * is a moment for the beginning of each step, and for each repeat at a site, step and position. In a comparison by
 * input, there is a moment for each site and inputs: the first time that the site had these inputs. If a worker has
 * moment A before moment B, the merged order also has A before B.
 *
 * The merged order is built from its beginning. A moment can be taken next if it is next for every worker that has it.
 * If there are several such moments, the one of the first worker in the list is taken. If there is none, workers
 * contradict each other in a cycle: the next moment of one worker comes after the next moment of another worker, and so
 * on back to the first one. If the next moment of a worker in the cycle is the beginning of a step, this step begins
 * without the workers that have not reached it. Otherwise, the next moment of the cycle's first worker is taken. So the
 * order never contradicts the first worker in the list, and never contradicts workers that agree.
 */
#include "match_phases.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

/* The arrival of one worker at a moment. */
struct turn {
    uint64_t ticks, number; /* number: that of the fingerprint, plus 1; 0: the beginning of a step */
    uint32_t worker, moment;
    uint32_t same; /* the turn of the next worker that has this moment, or NONE */
};

struct moment {
    uint32_t first; /* the turn of the first worker that has this moment */
    uint32_t waits; /* how many of its workers still have another moment before it */
    uint32_t at;    /* its position in the merged order; NONE: not known yet */
};

struct worker {
    size_t next, end; /* the worker's next turn, and the number after its last turn */
    uint32_t seen;    /* by run: how many entries it has in the current group; by input: its turn there, plus 1 */
    uint32_t asked;   /* for which position of the order first_of_round last visited this worker */
};

struct order {
    struct turn *turns; /* sorted by worker and clock in begin() */
    struct moment *moments;
    struct worker *workers;
    uint8_t *ready; /* for each worker: whether its next moment can be taken, and it is the first to have it */
    size_t turns_count, moments_count, count;
};

static int by_clock(const void *a, const void *b)
{
    const struct turn *x = a, *y = b;
    UNLESS_EQUAL(x->worker, y->worker);
    UNLESS_EQUAL(x->ticks, y->ticks);
    return ORDER(x->number, y->number);
}

static void add_turn(struct order *o, uint64_t ticks, uint64_t number, uint32_t worker, size_t moment)
{
    o->turns[o->turns_count++] = (struct turn){ticks, number, worker, (uint32_t)moment, NONE};
}

/* In a comparison by run, each repeat is a separate moment. */
static void add_repeat(struct order *o, struct entry *e)
{
    e->moment = (uint32_t)o->moments_count + o->workers[e->worker].seen++;
    add_turn(o, e->fingerprint->ticks, e->number + 1, e->worker, e->moment);
}

static void add_first(struct order *o, struct entry *e)
{
    uint32_t *seen = &o->workers[e->worker].seen;
    e->moment = (uint32_t)o->moments_count;
    if (*seen == 0) {
        add_turn(o, e->fingerprint->ticks, e->number + 1, e->worker, e->moment);
        *seen = (uint32_t)o->turns_count;
    } else if (e->fingerprint->ticks < o->turns[*seen - 1].ticks) {
        o->turns[*seen - 1].ticks = e->fingerprint->ticks;
    }
}

static void find_turns(const struct work *w, struct order *o)
{
    for (size_t from = 0, end; from < w->entries_count; from = end) {
        uint32_t moments = 1;
        end = brick_match_group_end(w, from);
        for (size_t worker = 0; worker < o->count; worker++)
            o->workers[worker].seen = 0;
        for (size_t i = from; i < end; i++) {
            struct entry *e = &w->entries[i];
            (w->m->by_input ? add_first : add_repeat)(o, e);
            if (!w->m->by_input && o->workers[e->worker].seen > moments)
                moments = o->workers[e->worker].seen;
        }
        o->moments_count += moments;
    }
    for (size_t i = 0; i < w->visits_count; i++)
        add_turn(o, w->visits[i].first, 0, w->visits[i].worker, o->moments_count + w->visits[i].at);
    o->moments_count += w->m->steps_count;
}

static int is_known(const struct order *o, size_t turn) { return o->moments[o->turns[turn].moment].at != NONE; }

/* Moves a worker to its next turn, past turns whose moments already have a position. */
static void come_to_next(struct order *o, struct worker *w)
{
    while (w->next < w->end && is_known(o, w->next))
        w->next++;
    if (w->next == w->end)
        return;
    struct moment *m = &o->moments[o->turns[w->next].moment];
    if (--m->waits == 0)
        o->ready[o->turns[m->first].worker] = 1;
}

static void begin(struct order *o)
{
    qsort(o->turns, o->turns_count, sizeof *o->turns, by_clock);
    for (size_t i = 0; i < o->moments_count; i++)
        o->moments[i] = (struct moment){NONE, 0, NONE};
    for (size_t i = o->turns_count; i-- > 0;) {
        struct turn *t = &o->turns[i];
        struct moment *m = &o->moments[t->moment];
        struct worker *w = &o->workers[t->worker];
        t->same = m->first;
        m->first = (uint32_t)i;
        m->waits++;
        w->next = i;
        w->end += 1;
    }
    for (struct worker *w = o->workers; w < o->workers + o->count; w++) {
        w->asked = NONE;
        w->end += w->next;
        come_to_next(o, w);
    }
}

/* The next moment of this worker cannot be taken, because it is not next for all of its workers. Returns the first
 * worker that has another moment before it. */
static uint32_t in_the_way(const struct order *o, uint32_t worker)
{
    uint32_t i = o->moments[o->turns[o->workers[worker].next].moment].first;
    while (o->workers[o->turns[i].worker].next == i)
        i = o->turns[i].same;
    return o->turns[i].worker;
}

static int begins_step(const struct order *o, uint32_t worker) { return o->turns[o->workers[worker].next].number == 0; }

/* Called if no moment can be taken, because workers contradict each other in a cycle. Returns the worker of the cycle
 * whose next moment is taken. */
static uint32_t first_of_round(struct order *o, uint32_t at)
{
    uint32_t worker = 0;
    while (o->workers[worker].next == o->workers[worker].end)
        worker++;
    for (; o->workers[worker].asked != at; worker = in_the_way(o, worker))
        o->workers[worker].asked = at;
    uint32_t first = worker;
    for (uint32_t next = in_the_way(o, worker); next != worker; next = in_the_way(o, next)) {
        const int steps = begins_step(o, next) - begins_step(o, first);
        first = steps > 0 || (steps == 0 && next < first) ? next : first;
    }
    return first;
}

static void put_in_order(struct order *o)
{
    for (uint32_t at = 0; at < o->moments_count; at++) {
        const uint8_t *ready = memchr(o->ready, 1, o->count);
        const uint32_t worker = ready != NULL ? (uint32_t)(ready - o->ready) : first_of_round(o, at);
        struct moment *m = &o->moments[o->turns[o->workers[worker].next].moment];
        m->at = at;
        o->ready[o->turns[m->first].worker] = 0;
        for (uint32_t i = m->first; i != NONE; i = o->turns[i].same) {
            struct worker *w = &o->workers[o->turns[i].worker];
            if (w->next == i)
                come_to_next(o, w);
        }
    }
}

int brick_order_find(struct work *w)
{
    struct order o = {.count = w->m->count};
    const size_t turns = w->entries_count + w->visits_count;
    o.turns = malloc((turns + 1) * sizeof *o.turns);
    o.moments = malloc((turns + 1) * sizeof *o.moments);
    o.workers = calloc(o.count + 1, sizeof *o.workers);
    o.ready = calloc(o.count + 1, 1);
    const int whole = o.turns != NULL && o.moments != NULL && o.workers != NULL && o.ready != NULL;
    if (whole) {
        find_turns(w, &o);
        begin(&o);
        put_in_order(&o);
        for (size_t i = 0; i < w->entries_count; i++)
            w->entries[i].moment = o.moments[w->entries[i].moment].at;
    }
    free(o.turns);
    free(o.moments);
    free(o.workers);
    free(o.ready);
    return whole;
}
