/* core/match_phases.h - the phases of brick_match behind the selection; each has a file. */
#ifndef BRICKD_MATCH_PHASES_H
#define BRICKD_MATCH_PHASES_H

#include "match_work.h"

/* ---- core/match_steps.c: by run, which workers have which step, and did the same work in it */

/* Finds the visits. 0: no memory. */
int brick_steps_find(struct work *w);
struct visit *brick_steps_visit(const struct work *w, uint64_t step, uint32_t worker);

/* The row of two may be the first of the step of one of them. `differs`: their inputs do. */
void brick_steps_begin(struct work *w, const struct entry *e, const struct entry *reference, int differs);

/* Counts the workers that have the step, but none of these entries. */
void brick_steps_miss(struct work *w, const struct entry *e, size_t count);

/* A worker that begins a step with other inputs, before anything of it diverged, did other work in it, and in each later step
 * that reads a state. Sets the work of the entries, and returns whether there is any. */
int brick_steps_find_other_work(struct work *w);

/* ---- core/match_rows.c: a row: its reference, and what its members are compared with that */

struct comparison {
    enum brick_class class;
    float error, tolerance, rounding, inputs;
};

struct comparison brick_match_compare(struct work *w, const struct entry *reference, const struct entry *e);

/* Makes a member the worst of its row, if it is. */
void brick_match_worst(struct brick_match_row *row, uint32_t which, const struct comparison *c);

/* Adds a row of one entry of each of at least two workers, in their order, unless all of it is identical. `as`: the class of
 * all of it, where that is known. 0: no memory. */
int brick_match_add(struct work *w, const struct entry *e, uint32_t count, uint32_t reference, enum brick_class as);
int brick_match_is_same(const struct entry *e, uint32_t count);

/* Chooses the reference: the output of most, where more than one have it; else the first. By run, where no half have the same,
 * the entry that most are near, and of several the one whose inputs most have; preferably of a worker that lost nothing. */
uint32_t brick_match_reference(struct work *w, const struct entry *e, uint32_t count);

/* ---- core/match_order.c, core/match_groups.c, core/match_classes.c */

/* Sets the moment of each entry, once they are sorted and the visits are found. 0: no memory. */
int brick_order_find(struct work *w);

/* Adds the rows of a group. 0: no memory. */
int brick_group_by_run(struct work *w, const struct entry *e, size_t count);
int brick_group_by_input(struct work *w, const struct entry *e, size_t count);

/* By input, what differs from the reference as two numeric classes do is within tolerance. 0: no memory. */
int brick_classes_find(struct work *w);

#endif
