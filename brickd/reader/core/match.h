/* core/match.h - fingerprints of some workers compared: what is to be compared, and the result.
 *
 * By run: fingerprints of one site, step, position and shard; the first of each worker with
 * the first of the others, and so on. A step that began with other inputs was other work;
 * so is each later step of that worker that reads a state, because other work filled it.
 * By input: fingerprints of one site, context and inputs, whenever they came. A worker that
 * shares no shard, or no context, with another is paired with one of the others, with the
 * reason why they are not comparable.
 *
 * A row has at most one fingerprint of each worker, and a reference: the output of most
 * workers, by run the one that most are near, else that of the worker named first. A
 * comparison is one other worker in a row with the reference. Apart from the choice of the
 * reference no result depends on which other workers are compared.
 *
 * By input, two workers are of two numeric classes at a site and in a context where their
 * outputs differ, by no more than rounding explains, at BRICK_CONTENTS_MIN contents or more
 * that both had, at half of these at least, and in more than one place of the sketch:
 * another number of threads makes it so, or another choice of kernel. Where both had fewer
 * contents there, all contexts of the site may decide together. Outputs of two classes are
 * within tolerance where rounding explains their difference; by input nothing else ever is.
 * A larger difference is always a divergence; where there are more than a few of these, or
 * a worker contradicts itself, the two are not of two classes (core/match_classes.c). Other
 * workers do not matter for this, but that one whose output equals that of one of another
 * class is of that class.
 */
#ifndef BRICKD_MATCH_H
#define BRICKD_MATCH_H

#include "fingerprint_window.h"
#include "tolerance.h"

#include <stddef.h>
#include <stdint.h>

#define BRICK_CONTENTS_MIN 3u /* that it takes to know that two workers are of two numeric classes */

enum brick_class {
    BRICK_CLASS_IDENTICAL = 0,
    BRICK_CLASS_WITHIN,
    BRICK_CLASS_DIVERGED,
    /* Not comparable: */
    BRICK_CLASS_DTYPE,
    BRICK_CLASS_SHAPE,
    BRICK_CLASS_FORM, /* of the inputs */
    BRICK_CLASS_BACKEND,
    BRICK_CLASS_PARAMS,
    BRICK_CLASS_VALID,
    BRICK_CLASS_RELATION,
    BRICK_CLASS_REPEATS,  /* not as often in each worker, and not always equal */
    BRICK_CLASS_UNSTEADY, /* most workers contradict themselves */
    BRICK_CLASS_WORK,     /* a step that began with other inputs */
    BRICK_CLASS_VALUES,   /* by run: the values were not recorded, and nothing requires that they are equal */
    BRICK_CLASS_STATEFUL, /* by input: not equal, where something decides that no input shows */
    BRICK_CLASS_SHARD,    /* different parts of the model */
    BRICK_CLASS_LOST,     /* by run: records of one were lost, so that it may have begun with other inputs or be another
                             repeat, and its inputs do not show that it must be equal */
    BRICK_CLASS_RANGE,    /* by run: the difference is beyond what a sketch can hold */
    BRICK_CLASSES
};

/* A fingerprint in a row. */
struct brick_member {
    uint64_t number;
    uint32_t worker; /* its place among m->workers */
    uint8_t class;   /* of its comparison with the reference, which is identical with itself */
};

/* Comparisons before a row. */
struct brick_before {
    uint64_t identical, within, not_comparable;
};

/* A row that is not identical throughout. */
struct brick_match_row {
    struct brick_before before;
    size_t first;       /* of its members in m->members */
    uint32_t members;
    uint32_t reference; /* which of its members, */
    uint32_t worst;     /* and which is furthest from it */
    uint32_t agree;     /* how many agree with the reference */
    uint32_t site;      /* place in m->sites */
    uint32_t moment;    /* place in the order of execution */
    float error;        /* of the worst: relative, estimated; NaN: unknown */
    float inputs;       /* the largest error of its inputs; 0: equal; NaN: unknown */
    float tolerance;
    float rounding;     /* expected of the dtype and the size of the reduction, though it may be no excuse */
    uint32_t contents;  /* by input: at so many the worst differs from the reference as two classes do; it takes
                           BRICK_CONTENTS_MIN to know; 0: it does not */
    uint8_t class;      /* diverged where any member is, else the greatest of its members' */
};

struct brick_match_step {
    uint64_t step;
    uint32_t workers; /* that have it */
    uint32_t other;   /* that did other work in it */
};

struct brick_match_site {
    uint64_t site;
    uint32_t moment; /* its first place in the order of execution */
    uint64_t fingerprints;
    uint64_t compared, classes[BRICK_CLASSES];
    uint64_t lone; /* fingerprints without a counterpart in another worker */
    uint64_t bare; /* by input: without inputs */
    uint64_t missing, uncertain; /* by run: in steps that another worker has, too; uncertain: a worker's first or last step */
    float error;   /* the largest within tolerance */
};

struct brick_match_worker {
    uint64_t first, last;        /* ticks of its fingerprints, of all steps */
    uint64_t fingerprints;       /* that were compared */
    uint64_t missing, uncertain; /* as of a site */
};

struct brick_match {
    /* Input. */
    const uint32_t *workers; /* in the order in which they were named */
    const uint64_t *since;   /* of each: only fingerprints from these ticks on */
    const uint64_t *lost;    /* by run, of each: how many of its records were lost; NULL: none */
    const uint64_t *worn;    /* by run, of each: whether its oldest fingerprints may have made room; NULL: of none */
    size_t count;
    const uint64_t *step;    /* only this one; NULL: all */
    int by_input;
    double rtol;             /* below 0: as the dtype and the size of the reduction lead one to expect */

    /* Result. */
    struct brick_match_row *rows; /* in the order of execution */
    struct brick_member *members;
    struct brick_match_step *steps;
    struct brick_match_site *sites;
    struct brick_match_worker *edges; /* of each worker */
    size_t rows_count, members_count, steps_count, sites_count;
    uint64_t fingerprints; /* that were compared */
};

/* 0: no memory. In any case brick_match_free must follow. */
int brick_match(const struct brick_fingerprints *p, struct brick_match *m);
void brick_match_free(struct brick_match *m);

/* Whether rounding may explain the difference of two fingerprints that p holds. */
enum brick_rounded brick_fingerprints_rounded(const struct brick_fingerprints *p, uint64_t one, uint64_t other);

/* By input: at how many contents of that site and context the workers of the two differ as two classes do; below
 * BRICK_CONTENTS_MIN it is undecided, 0: they do not. Below 0: no memory. */
int64_t brick_match_contents(const struct brick_fingerprints *p, uint64_t one, uint64_t other);

#endif
