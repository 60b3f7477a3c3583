/* core/match_rows.h - a row: its reference, and what its members are compared with that. */
#ifndef BRICKD_MATCH_ROWS_H
#define BRICKD_MATCH_ROWS_H

#include "match_work.h"

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

#endif
