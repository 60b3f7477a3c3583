/* core/match_phases.h - the phases of brick_match after the selection, one file each. */
#ifndef BRICKD_MATCH_PHASES_H
#define BRICKD_MATCH_PHASES_H

#include "match_work.h"

/* ---- core/match_steps.c: by run, finds which workers have a step and did the same work in it */

/* Finds the visits of steps by workers. Returns 0 if out of memory. */
int brick_steps_find(struct work *w);
struct visit *brick_steps_visit(const struct work *w, uint64_t step, uint32_t worker);

/* Notes a row that may be the first row of its step for the worker of `e`. `differs`: whether the worker's inputs
 * differ from the reference's. */
void brick_steps_begin(struct work *w, const struct entry *e, const struct entry *reference, int differs);

/* Counts the row as missing for each worker that has the step but none of these entries. */
void brick_steps_miss(struct work *w, const struct entry *e, size_t count);

/* Sets the work of the entries. A worker that begins a step with other inputs, before any divergence, does other work
 * in this step and in each later step that reads state. Returns whether there is other work. */
int brick_steps_find_other_work(struct work *w);

/* ---- core/match_rows.c: chooses the reference of a row, and compares its members with the reference */

struct comparison {
    enum brick_class class;
    float error, tolerance, rounding, inputs;
};

struct comparison brick_match_compare(struct work *w, const struct entry *reference, const struct entry *e);

/* Makes a member the worst of its row if it differs more from the reference than the present worst member. */
void brick_match_worst(struct brick_match_row *row, uint32_t which, const struct comparison *c);

/* Adds a row with one entry per worker, for at least two workers in order, unless all entries are identical. `as`: the
 * class of all entries, if known. Returns 0 if out of memory. */
int brick_match_add(struct work *w, const struct entry *e, uint32_t count, uint32_t reference, enum brick_class as);
int brick_match_is_same(const struct entry *e, uint32_t count);

/* Chooses the reference: the most frequent output, or the first output if all are unique. By run, if fewer than half
 * have the most frequent output: the entry that most entries are near; if several are equally near, the one with the
 * most frequent inputs. Prefers a worker that lost no records. */
uint32_t brick_match_reference(struct work *w, const struct entry *e, uint32_t count);

/* ---- core/match_order.c, core/match_groups.c, core/match_classes.c */

/* Sets the moment of each entry. Needs sorted entries and the visits. Returns 0 if out of memory. */
int brick_order_find(struct work *w);

/* Adds the rows of a group. Returns 0 if out of memory. */
int brick_group_by_run(struct work *w, const struct entry *e, size_t count);
int brick_group_by_input(struct work *w, const struct entry *e, size_t count);

/* By input, accepts differences between numeric classes as within tolerance. Returns 0 if out of memory. */
int brick_classes_find(struct work *w);

/* ---- core/row_pairs.c: accepts row differences too few or small to decide. Returns 0 if out of memory. */
int brick_rows_settle(struct work *w);

#endif
