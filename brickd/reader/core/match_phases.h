/* core/match_phases.h - the phases of brick_match behind the steps; each has a file. */
#ifndef BRICKD_MATCH_PHASES_H
#define BRICKD_MATCH_PHASES_H

#include "match_work.h"

/* core/match_order.c: sets the moment of each entry, once they are sorted and the visits are found. 0: no memory. */
int brick_order_find(struct work *w);

/* core/match_groups.c: adds the rows of a group. 0: no memory. */
int brick_group_by_run(struct work *w, const struct entry *e, size_t count);
int brick_group_by_input(struct work *w, const struct entry *e, size_t count);

/* core/match_classes.c: by input, what differs from the reference as two numeric classes do is within tolerance. 0: no
 * memory. */
int brick_classes_find(struct work *w);

#endif
