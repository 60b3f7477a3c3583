/* core/match_phases.h - the phases of brick_match after the fingerprints are selected; each phase is one file. */
#ifndef BRICKD_MATCH_PHASES_H
#define BRICKD_MATCH_PHASES_H

#include "match_work.h"

/* ---- core/match_steps.c: by run, finds which workers have a step and did the same work in it */

/* Finds the visits: which worker has which step. Returns 0 if out of memory. */
int brick_steps_find(struct work *w);
struct visit *brick_steps_visit(const struct work *w, uint64_t step, uint32_t worker);

/* Notes that the worker of `e` has this row in its step, in case no earlier row follows. `differs`: whether the inputs
 * of `e` differ from those of the reference. */
void brick_steps_begin(struct work *w, const struct entry *e, const struct entry *reference, int differs);

/* Counts the row as missing for each worker that has the step but has none of these entries. */
void brick_steps_miss(struct work *w, const struct entry *e, size_t count);

/* Sets the work of all entries. A step of a worker is other work if it begins with inputs that differ from the
 * reference's, and no earlier output of this worker has diverged. Later steps of this worker that read state are other
 * work, too. Returns whether there is any other work. */
int brick_steps_find_other_work(struct work *w);

/* ---- core/match_rows.c: chooses the reference of a row, and compares its members with the reference */

struct comparison {
    enum brick_class class;
    float error, tolerance, rounding, inputs;
};

struct comparison brick_match_compare(struct work *w, const struct entry *reference, const struct entry *e);

/* If a member differs more from the reference than the worst member so far, makes it the worst member. */
void brick_match_worst(struct brick_match_row *row, uint32_t which, const struct comparison *c);

/* Compares at least two entries, one for each worker, in the order of the workers. If they are identical, only counts
 * them; otherwise, adds a row. `as`: the class of all entries if the caller knows it, else BRICK_CLASS_IDENTICAL.
 * Returns 0 if out of memory. */
int brick_match_add(struct work *w, const struct entry *e, uint32_t count, uint32_t reference, enum brick_class as);
int brick_match_is_same(const struct entry *e, uint32_t count);

/* Returns which entry is the reference. It has the most frequent output, or is the first entry if all outputs are
 * unique. In a comparison by run, if less than half of the entries have the most frequent output, it is the entry that
 * most entries are near; of several such entries, the one with the most frequent inputs. An equal entry of a worker
 * that lost no records is preferred. */
uint32_t brick_match_reference(struct work *w, const struct entry *e, uint32_t count);

/* ---- core/match_order.c, core/match_groups.c, core/match_classes.c */

/* Sets the moment of each entry. The entries must be sorted, and the visits found. Returns 0 if out of memory. */
int brick_order_find(struct work *w);

/* Adds the rows of a group. Returns 0 if out of memory. */
int brick_group_by_run(struct work *w, const struct entry *e, size_t count);
int brick_group_by_input(struct work *w, const struct entry *e, size_t count);

/* By input, accepts differences between numeric classes as within tolerance. Returns 0 if out of memory. */
int brick_classes_find(struct work *w);

/* ---- core/row_pairs.c */

/* For single rows: accepts the differences of workers that differ too little, or in too few rows, to be blamed. Returns
 * 0 if out of memory. */
int brick_rows_settle(struct work *w);

#endif
