/* core/match_internal.h - what the parts of brick_match share, as long as a call lasts.
 *
 * core/match.c says which fingerprints are looked at, and in which order; core/match_groups.c which
 * of them stand side by side; core/match_rows.c what one is beside another;
 * core/match_classes.c who computes the same in another order;
 * core/match_steps.c who had which step, and whether the same work was done in it;
 * core/match_order.c in which order all of it was executed.
 */
#ifndef BRICKD_MATCHING_H
#define BRICKD_MATCHING_H

#include "match.h"
#include "tolerance.h"

/* A fingerprint that is set beside others. */
struct entry {
    const struct brick_kept_fingerprint *fingerprint;
    uint64_t number;
    uint64_t work; /* that of its visit */
    uint32_t worker;
    uint32_t moment; /* where it stands in the order of execution */
};

/* The first row of a visit in one order. */
struct start {
    uint64_t at;
    const struct brick_kept_fingerprint *fingerprint; /* the worker's in it; NULL: there is no such row */
    int differs;                     /* its inputs are not those of the one that it was held reference */
};

/* That a worker has a step. */
struct visit {
    uint64_t step, first, last; /* ticks of its fingerprints */
    struct start own, beside;   /* by the worker's clock, and in the order of execution, which contradicts the worker who was
                                   named first in nothing: turned over, two are the same, so it takes both to say that
                                   other work was done */
    uint64_t before;            /* all other work that its worker did before it, in either of these orders; 0: none */
    uint64_t work;              /* what began as it did, and filled the caches that it reads, where that was other work than
                                   most did; else 0 */
    uint32_t worker;
    uint32_t at;                /* which of m->steps it is */
    uint8_t differs;            /* in so many of these orders it began with other inputs before anything of its worker's diverged */
    uint8_t diverged;           /* something that it said does */
    uint8_t stateful;           /* a fingerprint of its step is of what reads a state that no input shows, such as a cache */
    uint8_t cut;                /* some of its fingerprints are not looked at */
    uint8_t worn;               /* it is the first of its worker's, and the first of its fingerprints may have left */
};

/* What one worker said: the first of what it said most often, and of all that it said besides, if it did. */
struct said {
    struct entry most, besides;
    int steady;
};

/* So many comparisons of a row in which all is identical. */
struct alike {
    uint32_t moment, comparisons;
};

struct work {
    const struct brick_fingerprints *p;
    struct brick_match *m;
    uint32_t *places; /* which of m->workers a worker is; all ones: none */
    size_t places_count;
    struct entry *entries;
    struct visit *visits;
    struct alike *alike;
    size_t entries_count, entries_room, visits_count, alike_count, alike_room, rows_room, members_room;
    struct brick_record one[BRICK_CHECKED_SLOTS_MAX], other[BRICK_CHECKED_SLOTS_MAX];
    /* Of the present row or group, of each worker: */
    struct entry *row, *sorted;
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

/* The array, grown where it has less room than is wanted; NULL: there is no memory, and it is as it was. */
void *brick_match_grown(void *array, size_t *room, size_t wanted, size_t size);

/* Which of the workers said it, in the order in which they were named; all ones: none. */
static inline uint32_t brick_match_place(const struct work *w, const struct brick_kept_fingerprint *fingerprint)
{
    return fingerprint->worker < w->places_count ? w->places[fingerprint->worker] : UINT32_MAX;
}

static inline struct brick_match_site *brick_site_now(const struct work *w) { return &w->m->sites[w->m->sites_count - 1]; }

/* ---- core/match.c ---- */

/* The order in which those of one site, inputs and context stand together, and in them those of one worker. */
int brick_match_by_input(const void *a, const void *b);

/* Where the next group begins: what may stand side by side, all of it together. */
size_t brick_match_group_end(const struct work *w, size_t from);

/* ---- core/match_order.c ---- */

/* Of each entry its moment, once the entries of a group stand together and the visits are found. */
int brick_order_find(struct work *w);

/* ---- core/match_rows.c ---- */

/* What one is beside another. */
struct comparison {
    enum brick_class class;
    float error, tolerance, rounding, inputs;
};

struct comparison brick_match_compare(struct work *w, const struct entry *reference, const struct entry *e);

/* The row knows the worst of its members: of those that diverged, else of those within. */
void brick_match_worst(struct brick_match_row *row, uint32_t which, const struct comparison *s);

/* A row, with one fingerprint of each of at least two workers, in their order, and the one that the others are held reference.
 * `as`: what all of it is, where that is known. */
int brick_match_add(struct work *w, const struct entry *e, uint32_t count, uint32_t reference, enum brick_class as);
int brick_match_is_same(const struct entry *e, uint32_t count);

/* What most say, where more than one does; else what the first does. By run it is the one that most are near, where no
 * half says the same, and of those that as many are near the one that most were given
 * the same as; before others one whose worker lost nothing. */
uint32_t brick_match_reference(struct work *w, const struct entry *e, uint32_t count);

/* ---- core/match_steps.c ---- */

/* Who has which step. */
int brick_steps_find(struct work *w);
struct visit *brick_steps_visit(const struct work *w, uint64_t step, uint32_t worker);

/* The row of two may be the first of the step of one of them. `differs`: their inputs do. */
void brick_steps_begin(struct work *w, const struct entry *e, const struct entry *reference, int differs);

/* Of those that have the step, who lacks what these have. */
void brick_steps_miss(struct work *w, const struct entry *e, size_t count);

/* Who begins a step with other inputs, before anything of his diverged, did other work in it, and in each later step that
 * reads a state. Whether anybody did. The entries know it. */
int brick_steps_find_other_work(struct work *w);

/* ---- core/match_classes.c ---- */

/* By input: whoever is of another numeric class than the one that he is held reference is within. 0: there is no memory. */
int brick_classes_find(struct work *w);

/* ---- core/match_groups.c ---- */

/* Sets the fingerprints of one site, step and position side by side, by input those of one site and inputs. */
int brick_group_by_run(struct work *w, const struct entry *e, size_t count);
int brick_group_by_input(struct work *w, const struct entry *e, size_t count);

#endif
