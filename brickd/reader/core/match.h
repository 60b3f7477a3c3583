/* core/match.h - compares the fingerprints of some workers: the input and the result.
 *
 * By run, it compares fingerprints of one site, step, position and shard: the first of each worker with the first of
 * the others, and so on. A step that began with other inputs is other work. Each later step of that worker that reads
 * state is also other work, because other work filled the state.
 *
 * By input, it compares fingerprints of one site, context and inputs, at any time. A worker that shares no shard or
 * context with another worker gets a row with one of the others, and the reason why the two are not comparable.
 *
 * A row has at most one fingerprint per worker, and a reference. The reference is the output of most workers (by run,
 * the output that most outputs are near), else that of the first worker in the list. A comparison compares another
 * worker in a row with the reference. Only the choice of the reference depends on the set of compared workers.
 *
 * By input, two workers are of two numeric classes at a site and in a context if their outputs differ, within rounding,
 * at BRICK_CONTENTS_MIN or more of the contents (sets of inputs) that both had, at half of these or more, and in more
 * than one place of the sketch. The cause is a different number of threads or another choice of kernel. If both had
 * fewer contents there, all contexts of the site may decide together. Outputs of two classes are within tolerance if
 * rounding explains their difference; by input, no other difference is within tolerance.
 *
 * Of rows, two workers diverge only at a site where they differ in several rows and steps (core/row_pairs.h). One worker
 * may have several outputs for a row; it agrees with another worker if they have one in common.
 *
 * A larger difference is always a divergence. If there are more than a few of these, or a worker contradicts itself,
 * the two are not of two classes (core/match_classes.c). This does not depend on other workers, with one exception: a
 * worker whose output equals that of a worker of another class is of that class.
 */
#ifndef BRICKD_MATCH_H
#define BRICKD_MATCH_H

#include "fingerprint_window.h"
#include "tolerance.h"

#include <stddef.h>
#include <stdint.h>

#define BRICK_CONTENTS_MIN 3u /* sets of inputs at which two workers of two numeric classes must differ */

enum brick_class {
    BRICK_CLASS_IDENTICAL = 0,
    BRICK_CLASS_WITHIN,
    BRICK_CLASS_DIVERGED,
    /* Not comparable: */
    BRICK_CLASS_DTYPE,
    BRICK_CLASS_SHAPE,
    BRICK_CLASS_FORM, /* dtypes and shapes of the inputs */
    BRICK_CLASS_BACKEND,
    BRICK_CLASS_PARAMS,
    BRICK_CLASS_VALID,
    BRICK_CLASS_RELATION,
    BRICK_CLASS_REPEATS,  /* different counts per worker, and not all equal */
    BRICK_CLASS_UNSTEADY, /* most workers contradict themselves */
    BRICK_CLASS_WORK,     /* other work: see above */
    BRICK_CLASS_VALUES,   /* by run: values were not recorded, and need not be equal */
    BRICK_CLASS_STATEFUL, /* by input: not equal, and the output depends on state that is not an input */
    BRICK_CLASS_SHARD,    /* different parts of the model */
    BRICK_CLASS_LOST,     /* by run: a worker lost records, so this may be other work or another repeat */
    BRICK_CLASS_RANGE,    /* by run: the difference exceeds what a sketch can hold */
    BRICK_CLASSES
};

/* A worker that is known to compute other rows than its peers at a site, perhaps from fingerprints that were evicted. */
struct brick_named {
    uint64_t site;
    uint64_t worker;
};

/* A fingerprint in a row. */
struct brick_member {
    uint64_t number;
    uint32_t worker; /* the worker's index in m->workers */
    uint8_t class;   /* the class of its comparison with the reference; the reference is identical */
};

/* Comparisons before a row. */
struct brick_before {
    uint64_t identical, within, not_comparable;
};

/* A row with unequal outputs. */
struct brick_match_row {
    struct brick_before before;
    size_t first;       /* the first of its members in m->members */
    uint32_t members;
    uint32_t reference; /* the member that is the reference */
    uint32_t worst;     /* the member that differs most from the reference */
    uint32_t agree;     /* how many agree with the reference */
    uint32_t site;      /* index in m->sites */
    uint32_t moment;    /* position in the order of execution */
    float error;        /* the estimated relative error of the worst; NaN: unknown */
    float inputs;       /* the largest error of its inputs; 0: equal; NaN: unknown */
    float tolerance;
    float rounding;     /* the expected rounding error for the dtype and the size of the reduction */
    uint32_t contents;  /* by input: contents at which worst and reference differ like two classes; below
                         * BRICK_CONTENTS_MIN: undecided; 0: not two classes */
    uint8_t class;      /* diverged if any member is, else the greatest class of a member */
};

struct brick_match_step {
    uint64_t step;
    uint32_t workers; /* the number of workers that have the step */
    uint32_t other;   /* the number of these workers that did other work */
};

struct brick_match_site {
    uint64_t site;
    uint32_t moment; /* the site's first position in the order of execution */
    uint64_t fingerprints;
    uint64_t compared, classes[BRICK_CLASSES];
    uint64_t lone; /* fingerprints without a counterpart in another worker */
    uint64_t bare; /* by input: fingerprints without inputs */
    uint64_t missing, uncertain; /* by run: steps of others that the worker lacks; uncertain: first or last ones */
    float error;   /* the largest accepted error */
};

struct brick_match_worker {
    uint64_t first, last;        /* ticks of its fingerprints, of all steps */
    uint64_t fingerprints;       /* the number of compared fingerprints */
    uint64_t missing, uncertain; /* the same counts as in a site */
};

struct brick_match {
    /* Input. */
    const uint32_t *workers; /* the workers, in the order of the arguments */
    const uint64_t *since;   /* per worker: only fingerprints from these ticks on are compared */
    const uint64_t *lost;    /* by run, per worker: the number of its lost records; NULL: none */
    const uint64_t *worn;    /* by run, per worker: whether its oldest fingerprints may have been evicted; NULL: no */
    size_t count;
    const uint64_t *step;    /* only this step is compared; NULL: all */
    int by_input;
    int single_rows;         /* 1: compare only single rows (by input); 0: only whole tensors */
    const struct brick_named *named; /* of rows; a difference of one of these workers always counts */
    size_t named_count;
    double rtol;             /* below 0: derived from the dtype and the size of the reduction */

    /* Result. */
    struct brick_match_row *rows; /* the rows, in the order of execution */
    struct brick_member *members;
    struct brick_match_step *steps;
    struct brick_match_site *sites;
    struct brick_match_worker *edges; /* per worker */
    size_t rows_count, members_count, steps_count, sites_count;
    uint64_t fingerprints; /* the number of compared fingerprints */
};

/* Returns 0 if out of memory. Call brick_match_free in any case. */
int brick_match(const struct brick_fingerprints *p, struct brick_match *m);
void brick_match_free(struct brick_match *m);

/* Returns whether rounding may explain the difference of two fingerprints in p. */
enum brick_rounded brick_fingerprints_rounded(const struct brick_fingerprints *p, uint64_t one, uint64_t other);

/* Returns, by input, the number of contents at the site and context where the two workers differ like two classes.
 * Below BRICK_CONTENTS_MIN: undecided; 0: not two classes; below 0: out of memory. */
int64_t brick_match_contents(const struct brick_fingerprints *p, uint64_t one, uint64_t other);

#endif
