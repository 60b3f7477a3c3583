/* core/match_work.h - the state that the phases of brick_match share during one call.
 *
 * core/match.c runs the phases. core/match_work.c selects and sorts the fingerprints. core/match_steps.c finds which
 * workers have a step, and whether they did the same work in it. core/match_order.c finds the order of execution.
 * core/match_rows.c compares the members of a row. core/match_groups.c forms the rows of a group. core/match_classes.c
 * finds numeric classes. Except core/match.c, each file calls only files that come earlier in this list.
 */
#ifndef BRICKD_MATCH_WORK_H
#define BRICKD_MATCH_WORK_H

#include "match.h"

/* A fingerprint that is compared. */
struct entry {
    const struct brick_kept_fingerprint *fingerprint;
    uint64_t number;
    uint64_t work;   /* the same as `work` of its visit */
    uint32_t worker; /* index in m->workers */
    uint32_t moment; /* position in the order of execution */
};

/* Which row of a visit is the first depends on the order. So it is found twice: in the order of the worker's clock, and
 * in the merged order of execution, which never contradicts the first worker in the list. Because both are used, the
 * result for two workers is the same when the list has them in the opposite order. */
enum { BY_CLOCK, BY_ORDER, ORDERS };

struct start {
    uint64_t at;
    const struct brick_kept_fingerprint *fingerprint; /* the worker's fingerprint in the first row; NULL: no row */
    int differs;                                      /* whether its inputs differ from those of the reference */
};

/* A visit is one step of one worker. */
struct visit {
    uint64_t step, first, last; /* first, last: the ticks of its first and last fingerprint */
    struct start starts[ORDERS];
    uint64_t before; /* digest of the other work that the worker did before, in both orders; 0: none */
    uint64_t work;   /* for other work: digest of its first fingerprint and of `before`; otherwise 0 */
    uint32_t worker;
    uint32_t at;     /* index in m->steps */
    uint8_t differs; /* in how many of the two orders it began with other inputs, before any divergence */
    uint8_t diverged;
    uint8_t stateful; /* whether an output of the step depends on state that is not an input, such as a cache */
    uint8_t cut;      /* whether some fingerprints of the visit are too early to be compared */
    uint8_t worn;     /* whether it is the worker's first visit, and its oldest fingerprints may be evicted */
};

/* The outputs of one worker for one content. `most`: the first entry with the most frequent output. `other`: the oldest
 * entry with any other output. */
struct outputs {
    struct entry most, other;
    int steady; /* whether the worker has only one output */
};

/* How many comparisons found identical outputs at a moment. */
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
    /* These arrays have an element for each worker, and are used for the current row or group: */
    struct entry *row, *sorted;
    struct outputs *outputs;
    /* the first entry of a worker in a part where it is alone; in match_classes.c: in the current content */
    const struct entry **alone;
    uint8_t *marked; /* depends on the phase: whether the worker is paired, is in the group, or contradicts itself */
};

#define ORDER(a, b) ((a) < (b) ? -1 : (a) > (b))
#define UNLESS_EQUAL(a, b)    \
    do {                      \
        if ((a) != (b))       \
            return ORDER(a, b); \
    } while (0)

/* Enlarges the array if it has no room for `needed` elements, and returns it. If out of memory, returns NULL and leaves
 * the array unchanged. */
void *brick_match_grown(void *array, size_t *room, size_t needed, size_t size);

/* Returns the index after the last of the consecutive entries that have the same worker as the entry at `from`. */
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
/* Sorts the entries, so that those of a group come one after the other. */
void brick_match_sort(struct work *w);
/* Allocates the results of the sites and the arrays for one row. Returns 0 if out of memory. */
int brick_match_make_room(struct work *w);
void brick_match_work_free(struct work *w);

/* Comparison functions for qsort. The first sorts by site, inputs, context, worker and output; the second sorts by
 * output, context and worker. */
int brick_match_by_input(const void *a, const void *b);
int brick_match_by_output(const void *a, const void *b);

/* Returns where the next group begins. A group has one site, step and position (by run), or one site and inputs (by
 * input). */
size_t brick_match_group_end(const struct work *w, size_t from);

#endif
