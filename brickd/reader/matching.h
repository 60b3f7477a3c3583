/* matching.h - what the parts of brick_match share, as long as a call lasts.
 *
 * match.c says which prints are looked at, and in which order; match_groups.c which
 * of them stand side by side; match_rows.c what one is beside another;
 * match_steps.c who had which step, and whether the same work was done in it.
 */
#ifndef BRICKD_MATCHING_H
#define BRICKD_MATCHING_H

#include "match.h"

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
    uint32_t at;                /* which of m->steps it is */
    uint8_t differs;            /* whose inputs are not the same in all of that row */
};

/* What one worker said: the first of what it said most often, and of all that it said besides, if it did. */
struct said {
    struct entry most, besides;
    int steady;
};

/* So many comparisons of a row in which all is identical. */
struct alike {
    uint64_t ticks;
    uint32_t comparisons;
};

struct work {
    const struct brick_prints *p;
    struct brick_match *m;
    struct entry *entries;
    struct visit *visits;
    struct alike *alike;
    size_t entries_count, visits_count, alike_count, alike_room, rows_room, members_room;
    struct brick_record one[BRICK_CHECKED_SLOTS_MAX], other[BRICK_CHECKED_SLOTS_MAX];
    uint64_t ticks; /* by input: when the first of the workers first had what the present group is of */
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

/* The array, grown where it has less room than is wanted; NULL: there is no memory, and it is as it was. */
void *brick_match_grown(void *array, size_t *room, size_t wanted, size_t size);

static inline struct brick_site_found *brick_site_now(const struct work *w) { return &w->m->sites[w->m->sites_count - 1]; }

/* ---- match_rows.c ---- */

/* A row, with one print of each of at least two workers, in their order, and the one that the others are held against.
 * `as`: what all of it is, where that is known. */
int brick_match_add(struct work *w, const struct entry *e, uint32_t count, uint32_t against, enum brick_class as);
int brick_match_is_same(const struct entry *e, uint32_t count);

/* What most say, where more than one does; else what the first does. */
uint32_t brick_match_most(const struct entry *e, uint32_t count);

/* ---- match_steps.c ---- */

/* Who has which step. */
int brick_steps_find(struct work *w);
struct visit *brick_steps_visit(const struct work *w, uint64_t step, uint32_t worker);

/* A row may be the first of its step, for each of its workers by his own clock. */
void brick_steps_begin(struct work *w, const struct entry *e, uint32_t count, int differs);

/* Of those that have the step, who lacks what these have. */
void brick_steps_miss(struct work *w, const struct entry *e, size_t count);

/* Steps that begin, for any of their workers, with other inputs before anything diverged were other work. */
void brick_steps_part(struct work *w);

/* ---- match_groups.c ---- */

/* Sets the prints of one site, step and position side by side, by input those of one site and inputs. */
int brick_group_by_run(struct work *w, const struct entry *e, size_t count);
int brick_group_by_input(struct work *w, const struct entry *e, size_t count);

#endif
