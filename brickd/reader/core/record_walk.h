/* core/record_walk.h - from record to record through slots of a ring that nobody judged. */
#ifndef BRICKD_RECORD_WALK_H
#define BRICKD_RECORD_WALK_H

#include "brick_shm.h"

#include <stddef.h>

/* Whether the first slot of a checksum can be one, as far as that alone tells: its tensors are bits. */
static inline int brick_checked_possible(const struct brick_checked *c)
{
    return c->inputs <= BRICK_INPUTS_MAX && c->slots == BRICK_CHECKED_SLOTS(c->inputs) && c->relation < BRICK_RELATIONS
           && c->site < BRICK_SITES_MAX && (int64_t)c->ticks >= 0;
}

/* Where the first record begins at `wanted` or behind it, going on from the one that begins at `at`. It may begin behind
 * all slots that there are. UINT64_MAX: that is not known, for one says that it has none. */
uint64_t brick_walk(const struct brick_record *slots, uint64_t at, uint64_t wanted);

/* What slots of an event ring hold of checksums. */
struct brick_walked {
    uint64_t last;     /* number of the last record that could be: before, then after */
    uint64_t slots;    /* of whole checksums, one behind the other */
    uint64_t cut;      /* where one begins that reaches beyond the slots that there are; where none does, their count */
    uint64_t missing;  /* numbers above `last` that no record has */
    uint64_t rejected; /* that could not be */
};

/* From the record that begins at `at` on, up to the end or to one that says that it has no slots; `to` has room for
 * them all. */
void brick_walk_checked(const struct brick_record *slots, uint64_t at, uint64_t count, struct brick_record *to,
                        struct brick_walked *w);

#endif
