/* core/match_steps.h - by run: which workers have which step, and did the same work in it. */
#ifndef BRICKD_MATCH_STEPS_H
#define BRICKD_MATCH_STEPS_H

#include "match_work.h"

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

#endif
