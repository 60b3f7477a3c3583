/* core/match.h - the comparison of the fingerprints of some workers: its input and its result.
 *
 * A comparison by run compares fingerprints of one site, step, position and shard: the first fingerprint of each worker
 * with the first fingerprints of the other workers, then the second ones, and so on. If a worker begins a step with
 * other inputs, it does other work in that step. The worker also does other work in each of its later steps that reads
 * state, because other work filled the state.
 *
 * A comparison by input compares fingerprints of one site, context and inputs, at any time. If a worker shares no shard
 * or context with another worker, the worker gets a row together with one of the other workers, and the reason why the
 * two are not comparable.
 *
 * A row has at most one fingerprint per worker. One fingerprint of a row is the reference: the output that most
 * workers have (by run, the output that most outputs are near), else the output of the first worker in the list. Every
 * other worker in the row is compared with the reference. Only the choice of the reference depends on the set of
 * compared workers.
 *
 * Two workers may compute the same in different orders, because of another number of threads or another choice of
 * kernel. By input, such workers are of two numeric classes at a site and in a context. The condition is that their
 * outputs differ, within rounding, at enough of the contents (sets of inputs) that both had: at BRICK_CONTENTS_MIN or
 * more, and at half of them or more. The outputs must also differ in more than one place of the sketch. If both had
 * fewer contents in the context, all contexts of the site may decide together. By input, only a difference between two
 * classes that rounding explains is within tolerance.
 *
 * For rows, two workers diverge only at a site where they differ in several rows and steps (core/row_pairs.h). A worker
 * may have several outputs for one row; it agrees with another worker if they have one output in common.
 *
 * A larger difference is always a divergence. If there are more than a few larger differences, or if a worker
 * contradicts itself, the two workers are not of two classes (core/match_classes.c). Whether two workers are of two
 * classes does not depend on other workers, with one exception: a worker whose output equals that of a worker of
 * another class is also of that class.
 */
#ifndef BRICKD_MATCH_H
#define BRICKD_MATCH_H

#include "fingerprint_window.h"
#include "tolerance.h"

#include <stddef.h>
#include <stdint.h>

#define BRICK_CONTENTS_MIN 3u /* the fewest contents (sets of inputs) at which workers of two classes differ */

enum brick_class {
    BRICK_CLASS_IDENTICAL = 0,
    BRICK_CLASS_WITHIN,
    BRICK_CLASS_DIVERGED,
    /* Reasons why fingerprints are not comparable: */
    BRICK_CLASS_DTYPE,
    BRICK_CLASS_SHAPE,
    BRICK_CLASS_FORM, /* different dtypes or shapes of the inputs */
    BRICK_CLASS_BACKEND,
    BRICK_CLASS_PARAMS,
    BRICK_CLASS_VALID,
    BRICK_CLASS_RELATION,
    BRICK_CLASS_REPEATS,  /* different counts per worker, and not all outputs are equal */
    BRICK_CLASS_UNSTEADY, /* most workers have several outputs for equal inputs */
    BRICK_CLASS_WORK,     /* the workers did other work, as described above */
    BRICK_CLASS_VALUES,   /* by run: the values were not recorded, and the checksums differ */
    BRICK_CLASS_STATEFUL, /* by input: the outputs differ and depend on state that is not an input */
    BRICK_CLASS_SHARD,    /* different parts of the model */
    BRICK_CLASS_LOST,     /* by run: a worker lost records, so this may be other work or another repeat */
    BRICK_CLASS_RANGE,    /* by run: the difference exceeds what a sketch can hold */
    BRICK_CLASSES
};

/* A worker that is known to compute other rows than its peers at a site. The evidence may already be evicted. */
struct brick_named {
    uint64_t site;
    uint64_t worker;
};

/* A fingerprint in a row. */
struct brick_member {
    uint64_t number;
    uint32_t worker; /* the index of the worker in m->workers */
    uint8_t class;   /* how its output compares with the reference; BRICK_CLASS_IDENTICAL for the reference */
};

/* The counts of comparisons before a row. */
struct brick_before {
    uint64_t identical, within, not_comparable;
};

/* A row with unequal outputs. */
struct brick_match_row {
    struct brick_before before;
    size_t first;       /* the first of its members in m->members */
    uint32_t members;
    uint32_t reference; /* the member that is the reference */
    uint32_t worst;     /* the member with the largest difference from the reference */
    uint32_t agree;     /* the number of members that agree with the reference */
    uint32_t site;      /* index in m->sites */
    uint32_t moment;    /* position in the order of execution */
    float error;        /* the estimated relative error of the worst member; NaN: unknown */
    float inputs;       /* the largest error of the worst member's inputs; 0: equal; NaN: unknown */
    float tolerance;
    float rounding;     /* the expected rounding error for the dtype and the size of the reduction */
    uint32_t contents;  /* by input: contents at which worst and reference differ like two classes; below
                         * BRICK_CONTENTS_MIN: too few to decide; 0: they are not of two classes */
    uint8_t class;      /* diverged if any member diverged, else the greatest class of its members */
};

struct brick_match_step {
    uint64_t step;
    uint32_t workers; /* the number of workers that have the step */
    uint32_t other;   /* the number of workers that did other work in the step */
};

struct brick_match_site {
    uint64_t site;
    uint32_t moment; /* the site's first position in the order of execution */
    uint64_t fingerprints;
    uint64_t compared, classes[BRICK_CLASSES];
    uint64_t lone; /* fingerprints without a counterpart in another worker */
    uint64_t bare; /* by input: fingerprints without inputs */
    uint64_t missing, uncertain; /* by run: steps of others that it lacks; uncertain: those at the start or end */
    float error;   /* the largest accepted error */
};

struct brick_match_worker {
    uint64_t first, last;        /* the ticks of its first and last fingerprint, over all steps */
    uint64_t fingerprints;       /* the number of compared fingerprints */
    uint64_t missing, uncertain; /* as in brick_match_site */
};

struct brick_match {
    /* Input. */
    const uint32_t *workers; /* the workers, in the order of the arguments */
    const uint64_t *since;   /* per worker: only fingerprints from these ticks on are compared */
    const uint64_t *lost;    /* by run, per worker: the number of its lost records; NULL: no records are lost */
    /* By run, per worker: whether its oldest fingerprints may have been evicted; NULL: none were evicted. */
    const uint64_t *worn;
    size_t count;
    const uint64_t *step;    /* the only step to compare; NULL: all steps */
    int by_input;
    int single_rows;         /* 1: compare only single rows (by input); 0: only whole tensors */
    const struct brick_named *named; /* for rows: a difference of one of these workers always counts */
    size_t named_count;
    double rtol;             /* the tolerance; below 0: derived from the dtype and the size of the reduction */

    /* Result. */
    struct brick_match_row *rows; /* the rows, in the order of execution */
    struct brick_member *members;
    struct brick_match_step *steps;
    struct brick_match_site *sites;
    struct brick_match_worker *edges; /* per worker */
    size_t rows_count, members_count, steps_count, sites_count;
    uint64_t fingerprints; /* the number of compared fingerprints */
};

/* Compares. Returns 0 if out of memory. Always call brick_match_free afterwards. */
int brick_match(const struct brick_fingerprints *p, struct brick_match *m);
void brick_match_free(struct brick_match *m);

/* Returns whether rounding may explain the difference of two fingerprints in p. */
enum brick_rounded brick_fingerprints_rounded(const struct brick_fingerprints *p, uint64_t one, uint64_t other);

/* Returns, by input, at how many contents of the site and context the two workers differ like two classes. Below
 * BRICK_CONTENTS_MIN: too few to decide; 0: not two classes; below 0: out of memory. */
int64_t brick_match_contents(const struct brick_fingerprints *p, uint64_t one, uint64_t other);

#endif
