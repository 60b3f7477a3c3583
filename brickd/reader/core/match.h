/* core/match.h - the comparison of the fingerprints of some workers: its input and its result.
 *
 * A comparison by run compares fingerprints of one site, step, position and shard: the first fingerprint of each worker
 * with the first fingerprints of the other workers, then the second ones, and so on. If a worker begins a step with
 * other inputs than its peers, it does other work in that step, and its outputs there are not compared with theirs. The
 * same holds for each of its later steps that reads state, such as a cache, because other work filled that state.
 *
 * A comparison by input compares fingerprints of one site, context and inputs, at any time. A worker
 * whose context or shard no other worker has cannot be compared. It is put into a row together with one of the other
 * workers, and the class of the row is the reason why they are not comparable.
 *
 * A row of the result has at most one fingerprint per worker. One of them is the reference, with which all others are
 * compared. It has the output that most workers have or, by run, the output that most other outputs are near. If there
 * is no such output, the first worker in the list has the reference. Which other workers are compared changes only the
 * choice of the reference.
 *
 * Two workers may add the same numbers in different orders, because they use different numbers of threads or different
 * kernels. A comparison by input says that two such workers belong to two numeric classes at a site and in a context.
 * It looks at the contents (sets of inputs) that both workers had. The workers are of two classes if their outputs
 * differ, within rounding, for at least BRICK_CONTENTS_MIN contents and for at least half of the contents. The outputs
 * must also differ in more than one place of the sketch. If the two workers had fewer contents in the context, the
 * contents of all contexts of the site are counted instead. A comparison by input accepts a difference as within
 * tolerance only if rounding explains it and the two workers are of two classes.
 *
 * If single rows of tensors are compared, another rule applies: two workers diverge at a site only if they differ there
 * in several rows and steps (core/row_pairs.h). A worker may have several outputs for one row. It agrees with another
 * worker if the two have one output in common. At an unsteady site, no worker diverges: their class is UNSTEADY. Rows with
 * a history are compared in the same way, but outputs must be equal to the last bit, because equal histories and
 * lineages mean the same computation.
 *
 * A difference that rounding does not explain is always a divergence. If two workers have more than a few such
 * differences, or if one of them contradicts itself, they are not of two classes (core/match_classes.c). The class of a
 * worker does not depend on other workers, with one exception: if its output equals that of a worker of another class,
 * it is also of that class.
 */
#ifndef BRICKD_MATCH_H
#define BRICKD_MATCH_H

#include "fingerprint_window.h"
#include "tolerance.h"

#include <stddef.h>
#include <stdint.h>

#define BRICK_CONTENTS_MIN 3u /* workers of two classes differ for at least this many contents */

enum brick_class {
    BRICK_CLASS_IDENTICAL = 0,
    BRICK_CLASS_WITHIN,
    BRICK_CLASS_DIVERGED,
    /* The following classes are the reasons why fingerprints are not comparable. */
    BRICK_CLASS_DTYPE,
    BRICK_CLASS_SHAPE,
    BRICK_CLASS_FORM, /* different dtypes or shapes of the inputs */
    BRICK_CLASS_BACKEND,
    BRICK_CLASS_PARAMS,
    BRICK_CLASS_VALID,
    BRICK_CLASS_RELATION,
    BRICK_CLASS_REPEATS,  /* the workers ran the site different numbers of times, and some outputs differ */
    BRICK_CLASS_UNSTEADY, /* most workers contradict themselves: they have several outputs for equal inputs */
    BRICK_CLASS_WORK,     /* the workers did different work, as described above */
    BRICK_CLASS_VALUES,   /* by run: the values were not recorded, and the checksums differ */
    BRICK_CLASS_STATEFUL, /* by input: the outputs differ and depend on state that is not an input */
    BRICK_CLASS_SHARD,    /* different parts of the model */
    BRICK_CLASS_LOST,     /* by run: a worker lost records, so the two may belong to other work or other repeats */
    BRICK_CLASS_RANGE,    /* by run: the difference exceeds what a sketch can hold */
    BRICK_CLASSES
};

/* A worker that is known to compute wrong rows at a site. The fingerprints that showed this may already be evicted. */
struct brick_named {
    uint64_t site;
    uint64_t worker;
};

/* A fingerprint in a row of the result. */
struct brick_member {
    uint64_t number;
    uint32_t worker; /* the index of the worker in m->workers */
    uint8_t class;   /* the result of its comparison with the reference; for the reference, BRICK_CLASS_IDENTICAL */
};

/* How many comparisons come before a row in the order of execution, by their result. */
struct brick_before {
    uint64_t identical, within, not_comparable;
};

/* A row of the result, in which not all outputs are equal. */
struct brick_match_row {
    struct brick_before before;
    size_t first;       /* the index of its first member in m->members */
    uint32_t members;
    uint32_t reference; /* which member is the reference */
    uint32_t worst;     /* which member differs most from the reference */
    uint32_t agree;     /* how many members agree with the reference, itself included */
    uint32_t site;      /* the index of its site in m->sites */
    uint32_t moment;    /* position in the order of execution */
    float error;        /* the estimated relative error of the worst member; NaN: unknown */
    float inputs;       /* the largest error of the worst member's inputs; 0: equal; NaN: unknown */
    float tolerance;
    float rounding;     /* the expected rounding error for the dtype and the size of the reduction */
    uint32_t contents;  /* by input: for how many contents the workers of `worst` and `reference` differ as two
                         * classes do; below BRICK_CONTENTS_MIN: too few to decide; 0: not two classes */
    uint8_t class;      /* BRICK_CLASS_DIVERGED if any member diverged, else the greatest class of any member */
};

struct brick_match_step {
    uint64_t step;
    uint32_t workers; /* how many workers have the step */
    uint32_t other;   /* how many of them did other work in the step */
};

struct brick_match_site {
    uint64_t site;
    uint32_t moment; /* the site's first position in the order of execution */
    uint64_t fingerprints;
    uint64_t compared, classes[BRICK_CLASSES];
    uint64_t lone; /* how many fingerprints have no counterpart in another worker */
    uint64_t bare; /* by input: how many fingerprints have no inputs */
    /* By run: how often a worker that has a step lacks a fingerprint that others have there. `uncertain`: the same for
     * the worker's first and last step, in which it may have taken part only for some time. */
    uint64_t missing, uncertain;
    float error;   /* the largest error that was accepted as within tolerance */
};

struct brick_match_worker {
    uint64_t first, last;        /* the ticks of its first and last fingerprint, over all steps */
    uint64_t fingerprints;       /* the number of compared fingerprints */
    uint64_t missing, uncertain; /* like those in brick_match_site, but for this worker */
};

struct brick_match {
    /* Set by the caller: */
    const uint32_t *workers; /* the workers, in the order of the arguments */
    const uint64_t *since;   /* for each worker: the ticks from which on its fingerprints are compared */
    const uint64_t *lost;    /* by run, for each worker: how many records were lost; NULL: none */
    /* By run, for each worker: whether its oldest fingerprints may have been evicted; NULL: none were evicted. */
    const uint64_t *worn;
    size_t count;
    const uint64_t *step;    /* the only step to compare; NULL: all steps */
    int by_input;
    enum brick_tier tier;    /* by input: which fingerprints to compare; by run: BRICK_TIER_TENSORS */
    const struct brick_named *named; /* for single rows: every difference of these workers at these sites counts */
    size_t named_count;
    double rtol;             /* the relative tolerance; below 0: derived from dtype and reduction size */

    /* Set by brick_match: */
    struct brick_match_row *rows; /* the rows, in the order of execution */
    struct brick_member *members;
    struct brick_match_step *steps;
    struct brick_match_site *sites;
    struct brick_match_worker *edges; /* one for each worker */
    size_t rows_count, members_count, steps_count, sites_count;
    uint64_t fingerprints; /* the number of compared fingerprints */
};

/* Compares the fingerprints in p. Returns 0 if out of memory. Call brick_match_free afterwards in any case. */
int brick_match(const struct brick_fingerprints *p, struct brick_match *m);
void brick_match_free(struct brick_match *m);

/* Returns whether rounding may explain the difference of two fingerprints in p. */
enum brick_rounded brick_fingerprints_rounded(const struct brick_fingerprints *p, uint64_t one, uint64_t other);

/* Compares the workers of two fingerprints by input. Returns for how many contents at the site they differ as two
 * numeric classes do. Below BRICK_CONTENTS_MIN: too few to decide; 0: not two classes; below 0: out of memory. */
int64_t brick_match_contents(const struct brick_fingerprints *p, uint64_t one, uint64_t other);

#endif
