/* core/match_work.h - the state that the phases of brick_match share during one call.
 *
 * core/match.c runs the phases. core/match_work.c selects and sorts the fingerprints, core/match_steps.c finds which
 * workers have a step and did the same work in it, core/match_order.c finds the order of execution, core/match_rows.c
 * compares the members of a row, core/match_groups.c forms the rows of a group, core/match_classes.c finds numeric
 * classes. Each file calls only files that come earlier in this list.
 */
#ifndef BRICKD_MATCH_WORK_H
#define BRICKD_MATCH_WORK_H

#include "match.h"

/* A fingerprint to compare. */
struct entry {
    const struct brick_kept_fingerprint *fingerprint;
    uint64_t number;
    uint64_t work;   /* the work of its visit */
    uint32_t worker; /* index in m->workers */
    uint32_t moment; /* position in the order of execution */
};

/* The first row of a visit is found in two ways: by the worker's clock, and by the order of execution, which never
 * contradicts the first worker in the list. Using both gives two workers the same result in either order. */
enum { BY_CLOCK, BY_ORDER, ORDERS };

struct start {
    uint64_t at;
    const struct brick_kept_fingerprint *fingerprint; /* the worker's entry in the first row; NULL: there is no row */
    int differs;                                      /* whether the entry's inputs differ from the reference's */
};

/* A visit: a step as done by one worker. */
struct visit {
    uint64_t step, first, last; /* first, last: the ticks of its fingerprints */
    struct start starts[ORDERS];
    uint64_t before; /* digest of the worker's earlier other work, by either order; 0: no such work */
    uint64_t work;   /* for other work: digest of its start and of the work that filled its caches; else 0 */
    uint32_t worker;
    uint32_t at;     /* index in m->steps */
    uint8_t differs; /* how many orders show that it began with other inputs before a divergence; 2: other work */
    uint8_t diverged;
    uint8_t stateful; /* whether a fingerprint of the step depends on state that is not an input, such as a cache */
    uint8_t cut;      /* whether some fingerprints of the visit are not compared */
    uint8_t worn;     /* whether this is the worker's first visit, whose oldest fingerprints may be evicted */
};

/* The outputs of a worker for one content: the first entry with the most frequent output, and the first entry with any
 * other output. */
struct outputs {
    struct entry most, other;
    int steady; /* whether the worker has no other output */
};

/* The comparisons of a row whose outputs are all identical. */
struct alike {
    uint32_t moment, comparisons;
};

struct work {
    const struct brick_fingerprints *p;
    struct brick_match *m;
    uint32_t *places; /* maps a worker's number to its index in m->workers, or to UINT32_MAX */
    size_t places_count;
    struct entry *entries;
    struct visit *visits;
    struct alike *alike;
    size_t entries_count, entries_room, visits_count, alike_count, alike_room, rows_room, members_room;
    struct brick_record one[BRICK_CHECKED_SLOTS_MAX], other[BRICK_CHECKED_SLOTS_MAX];
    /* Per worker, for the current row or group: */
    struct entry *row, *sorted;
    struct outputs *outputs;
    const struct entry **alone; /* the worker's first entry in a part where it is alone; in match_classes.c: at a content */
    uint8_t *marked; /* whether the worker is paired, is in the group, or contradicts itself, depending on the phase */
};

#define ORDER(a, b) ((a) < (b) ? -1 : (a) > (b))
#define UNLESS_EQUAL(a, b)    \
    do {                      \
        if ((a) != (b))       \
            return ORDER(a, b); \
    } while (0)

/* Returns the array, enlarged if necessary. If out of memory, returns NULL and leaves the array unchanged. */
void *brick_match_grown(void *array, size_t *room, size_t needed, size_t size);

/* Returns where the entries of the worker at `from` end. */
static inline size_t brick_match_run_end(const struct entry *e, size_t from, size_t count)
{
    size_t i = from + 1;
    while (i < count && e[i].worker == e[from].worker)
        i++;
    return i;
}

/* Returns the index of a fingerprint's worker in m->workers, or UINT32_MAX. */
static inline uint32_t brick_match_place(const struct work *w, const struct brick_kept_fingerprint *fingerprint)
{
    return fingerprint->worker < w->places_count ? w->places[fingerprint->worker] : UINT32_MAX;
}

static inline struct brick_match_site *brick_match_site_now(const struct work *w)
{
    return &w->m->sites[w->m->sites_count - 1];
}

/* Selects the fingerprints to compare. Returns 0 if out of memory. */
int brick_match_collect(struct work *w);
/* Sorts the entries, so that each group is contiguous. */
void brick_match_sort(struct work *w);
/* Allocates the results per site and one row. Returns 0 if out of memory. */
int brick_match_make_room(struct work *w);
void brick_match_work_free(struct work *w);

/* Comparison functions for qsort: the first by site, inputs, context, worker and output; the second by output, context
 * and worker. */
int brick_match_by_input(const void *a, const void *b);
int brick_match_by_output(const void *a, const void *b);

/* Returns where the next group begins. A group has one site, step and position (by run), or one site and inputs (by
 * input). */
size_t brick_match_group_end(const struct work *w, size_t from);

#endif
