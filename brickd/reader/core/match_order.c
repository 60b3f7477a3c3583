/* Clocks of several workers are in no order with each other, so the one order of all is made of each worker's own: what one
 * has before another stands before it. A moment is what several have in common: by run each repeat at one site, step and
 * position, and the beginning of a step; by input the first time that a site was given these inputs.
 *
 * The next moment is one that is next for each worker who has it, of several that of the worker who was named first. Where
 * there is none some contradict each other: what is next for one stands behind what is next for another, and so on round to
 * the first. Of these a step begins without those who are not there yet, or what is next for the first of them comes. So the
 * order contradicts the worker who was named first in nothing, and where nobody contradicts another it contradicts nobody.
 */
#include "match_phases.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

/* A worker comes to a moment. */
struct turn {
    uint64_t ticks, number; /* 0: a step begins; else that of the fingerprint, and 1 more */
    uint32_t worker, moment;
    uint32_t same; /* the next worker's of this moment; NONE: there is none */
};

struct moment {
    uint32_t first; /* the first worker's turn of it */
    uint32_t waits; /* for so many workers that have something else before it */
    uint32_t at;    /* in the order; NONE: it has no place */
};

struct order {
    struct turn *turns; /* at last, in the order of the workers and of their clocks */
    struct moment *moments;
    size_t *next, *end; /* of each worker: of its turns the next one, and behind the last one */
    uint32_t *seen;     /* of each worker: of the present group so many fingerprints; by input its turn, and 1 more */
    uint32_t *asked;    /* of each worker: where the order was when it was last asked who is in its way */
    uint8_t *ready;     /* of each worker: it is the first of those that have what they all have next */
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

/* By run each repeat is a moment of its own. */
static void add_repeat(struct order *o, struct entry *e)
{
    e->moment = (uint32_t)o->moments_count + o->seen[e->worker]++;
    add_turn(o, e->fingerprint->ticks, e->number + 1, e->worker, e->moment);
}

static void add_first(struct order *o, struct entry *e)
{
    uint32_t *seen = &o->seen[e->worker];
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
        memset(o->seen, 0, o->count * sizeof *o->seen);
        for (size_t i = from; i < end; i++) {
            struct entry *e = &w->entries[i];
            (w->m->by_input ? add_first : add_repeat)(o, e);
            if (!w->m->by_input && o->seen[e->worker] > moments)
                moments = o->seen[e->worker];
        }
        o->moments_count += moments;
    }
    for (size_t i = 0; i < w->visits_count; i++)
        add_turn(o, w->visits[i].first, 0, w->visits[i].worker, o->moments_count + w->visits[i].at);
    o->moments_count += w->m->steps_count;
}

static int is_known(const struct order *o, size_t turn) { return o->moments[o->turns[turn].moment].at != NONE; }

/* Goes on to what a worker has next that has no place yet. */
static void come_to_next(struct order *o, uint32_t worker)
{
    size_t *next = &o->next[worker];
    while (*next < o->end[worker] && is_known(o, *next))
        ++*next;
    if (*next == o->end[worker])
        return;
    struct moment *m = &o->moments[o->turns[*next].moment];
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
        t->same = m->first;
        m->first = (uint32_t)i;
        m->waits++;
        o->next[t->worker] = i;
        o->end[t->worker] += 1;
    }
    for (uint32_t worker = 0; worker < o->count; worker++) {
        o->asked[worker] = NONE;
        o->end[worker] += o->next[worker];
        come_to_next(o, worker);
    }
}

/* The first worker who has what another has next behind something else. */
static uint32_t in_the_way(const struct order *o, uint32_t worker)
{
    uint32_t i = o->moments[o->turns[o->next[worker]].moment].first;
    while (o->next[o->turns[i].worker] == i)
        i = o->turns[i].same;
    return o->turns[i].worker;
}

static int begins_step(const struct order *o, uint32_t worker) { return o->turns[o->next[worker]].number == 0; }

/* Where nothing is next for all who have it: of some that are in each other's way round, one. */
static uint32_t first_of_round(struct order *o, uint32_t at)
{
    uint32_t worker = 0;
    while (o->next[worker] == o->end[worker])
        worker++;
    for (; o->asked[worker] != at; worker = in_the_way(o, worker))
        o->asked[worker] = at;
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
        struct moment *m = &o->moments[o->turns[o->next[worker]].moment];
        m->at = at;
        o->ready[o->turns[m->first].worker] = 0;
        for (uint32_t i = m->first; i != NONE; i = o->turns[i].same)
            if (o->next[o->turns[i].worker] == i)
                come_to_next(o, o->turns[i].worker);
    }
}

int brick_order_find(struct work *w)
{
    struct order o = {.count = w->m->count};
    const size_t turns = w->entries_count + w->visits_count;
    o.turns = malloc((turns + 1) * sizeof *o.turns);
    o.moments = malloc((turns + 1) * sizeof *o.moments);
    o.next = calloc(o.count + 1, sizeof *o.next);
    o.end = calloc(o.count + 1, sizeof *o.end);
    o.seen = malloc((o.count + 1) * sizeof *o.seen);
    o.asked = malloc((o.count + 1) * sizeof *o.asked);
    o.ready = calloc(o.count + 1, 1);
    const int whole = o.turns != NULL && o.moments != NULL && o.next != NULL && o.end != NULL && o.seen != NULL
                      && o.asked != NULL && o.ready != NULL;
    if (whole) {
        find_turns(w, &o);
        begin(&o);
        put_in_order(&o);
        for (size_t i = 0; i < w->entries_count; i++)
            w->entries[i].moment = o.moments[w->entries[i].moment].at;
    }
    free(o.turns);
    free(o.moments);
    free(o.next);
    free(o.end);
    free(o.seen);
    free(o.asked);
    free(o.ready);
    return whole;
}
