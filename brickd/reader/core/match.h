/* core/match.h - fingerprints of some workers set side by side.
 *
 * By run: those of one site, step, position and shard, the first of each worker
 * with the first of the others, and so on. A step that began with other inputs was
 * other work; so is each later step of that worker that reads a state, because other
 * work filled it. By input: those of one site, context
 * and inputs, whenever they came. Whoever has that in no shard, or in no context,
 * that another has it in, too, stands beside one of another, for the reason why
 * not. What stands side by side is a row; in it there is one fingerprint of a worker at
 * the most, and one that the others are held reference: that which most say, by run
 * that which most are near, else that of the worker that was named first. What
 * becomes of one does not depend on who else is there, but for that.
 *
 * A comparison is one other worker in a row beside that one.
 *
 * By input two workers are of two numeric classes, at a site and in a context,
 * where what they say is apart, by no more than rounding makes it, at three contents
 * or more that both had, at half of these at least, and not in one place of the
 * sketch alone: another number of threads makes it so, or another kernel that was
 * chosen. Where they had fewer there than that, it may be so in all contexts of the
 * site, taken together. What such two say is within where it is no further apart than that; by
 * input nothing else ever is. What is further apart differs, always; where that is
 * more than a few contents, or one contradicts himself there, they are of no two
 * classes (core/match_classes.c). It does not matter for two who else is there, but that
 * who says the same as one of another class is of that class.
 */
#ifndef BRICKD_MATCH_H
#define BRICKD_MATCH_H

#include "fingerprint_window.h"

enum brick_class {
    BRICK_CLASS_IDENTICAL = 0,
    BRICK_CLASS_WITHIN,
    BRICK_CLASS_DIVERGED,
    /* Not comparable: */
    BRICK_CLASS_DTYPE,
    BRICK_CLASS_SHAPE,
    BRICK_CLASS_FORM,    /* of the inputs */
    BRICK_CLASS_BACKEND,
    BRICK_CLASS_PARAMS,
    BRICK_CLASS_VALID,
    BRICK_CLASS_RELATION,
    BRICK_CLASS_REPEATS,  /* not as often in each worker, and not always the same */
    BRICK_CLASS_UNSTEADY, /* most workers contradict themselves */
    BRICK_CLASS_WORK,     /* a step that it began with other inputs: it did other work */
    BRICK_CLASS_VALUES,   /* by run: how far they are apart was not recorded, and nothing says that they must be equal */
    BRICK_CLASS_STATEFUL,   /* by input: not equal, where something decides that no input shows */
    BRICK_CLASS_SHARD,      /* each has a part of the model that is not the other's */
    BRICK_CLASS_LOST,       /* by run: records of one of them were lost; whether it began this with other inputs, or which
                               of several this is, nobody knows, and its inputs do not show that it must be equal */
    BRICK_CLASS_RANGE,      /* by run: how far they are apart is beyond what a sketch can hold */
    BRICK_CLASSES
};

/* A fingerprint in a row. */
struct brick_member {
    uint64_t number;
    uint32_t worker; /* which of those that were named */
    uint8_t class;   /* of its comparison with the one that it is held reference, which is identical with itself */
};

/* How many comparisons came to what before a row. */
struct brick_before {
    uint64_t identical, within, not_comparable;
};

/* A row that is not identical throughout. */
struct brick_match_row {
    struct brick_before before;
    size_t first;      /* its fingerprints begin there in m->members */
    uint32_t members;
    uint32_t reference;  /* which of these the others are held reference, */
    uint32_t worst;    /* and which is furthest from it */
    uint32_t agree;    /* how many agree reference that */
    uint32_t site;     /* which of m->sites */
    uint32_t moment;   /* where it stands in the order of execution */
    float error;       /* of the worst: relative, estimated; no number: not known */
    float inputs;      /* the largest error of its inputs; 0: they are equal; no number: not known */
    float tolerance;
    float rounding;    /* what the dtype and the size of the reduction lead one to expect, though it may be no excuse */
    uint32_t contents; /* by input: at so many the worst and the one that it is held reference are apart as those of two
                          classes are, of which it takes BRICK_CONTENTS_MIN to know; 0: they are not */
    uint8_t class;     /* diverged where any member is, else the last in order of its members' */
};

struct brick_match_step {
    uint64_t step;
    uint32_t workers; /* that have it */
    uint32_t other;   /* that did other work in it */
};

/* Of one site. */
struct brick_match_site {
    uint64_t site;
    uint32_t moment;   /* where it first stands in the order of execution */
    uint64_t fingerprints;
    uint64_t compared, classes[BRICK_CLASSES];
    uint64_t lone;     /* fingerprints beside which none of another worker stands */
    uint64_t bare;     /* by input: fingerprints without inputs */
    uint64_t missing, uncertain; /* by run: in steps that another worker has too; uncertain: the first or last of a worker's */
    float error;       /* the largest that is within */
};

/* Of one worker. */
struct brick_match_worker {
    uint64_t first, last; /* ticks of its fingerprints, of whichever step */
    uint64_t fingerprints;      /* that were looked at */
    uint64_t missing, uncertain; /* as of a site */
};

struct brick_match {
    /* Wanted. */
    const uint32_t *workers; /* the order in which they were named */
    const uint64_t *since;   /* of each: no fingerprints before these ticks */
    const uint64_t *lost;    /* by run: of each: how many of its records are not here; NULL: none */
    const uint64_t *worn;    /* by run: of each: whether what it said first may have left for want of room; NULL: of none */
    size_t count;
    const uint64_t *step;    /* this one alone; NULL: all */
    int by_input;
    double rtol;             /* below 0: what the dtype and the size of the reduction lead one to expect */

    /* Found. */
    struct brick_match_row *rows; /* all that are not identical, in the order of execution */
    struct brick_member *members;
    struct brick_match_step *steps;
    struct brick_match_site *sites;
    struct brick_match_worker *edges; /* of each worker */
    size_t rows_count, members_count, steps_count, sites_count;
    uint64_t fingerprints;         /* that were looked at */
};

/* 0: there is no memory. In any case brick_match_free is to follow. */
int brick_match(const struct brick_fingerprints *p, struct brick_match *m);
void brick_match_free(struct brick_match *m);

#define BRICK_CONTENTS_MIN 3u /* that it takes to know that two are of two numeric classes */

/* Whether rounding may have made one of two fingerprints, which are here, of the other: enum brick_rounded. */
int brick_fingerprints_rounded(const struct brick_fingerprints *p, uint64_t one, uint64_t other);

/* By input: at how many contents those who said two such fingerprints are apart as those of two classes are, at that site and in
 * that context; less than it takes where nobody knows yet, 0: they are not. Less than 0: there is no memory. */
int64_t brick_match_contents(const struct brick_fingerprints *p, uint64_t one, uint64_t other);

#endif
