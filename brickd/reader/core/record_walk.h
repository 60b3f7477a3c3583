/* core/record_walk.h - from record to record through unvalidated slots of a ring. */
#ifndef BRICKD_RECORD_WALK_H
#define BRICKD_RECORD_WALK_H

#include "brick_shm.h"

#include <stddef.h>

/* Whether the first slot of a checksum is valid: its tensors are arbitrary bits. */
static inline int brick_checked_possible(const struct brick_checked *c)
{
    return c->inputs <= BRICK_INPUTS_MAX && c->slots == BRICK_CHECKED_SLOTS(c->inputs) && c->relation < BRICK_RELATIONS
           && c->site < BRICK_SITES_MAX && (int64_t)c->ticks >= 0;
}

/* Where the first record at `from` or after it begins, walking from the one at `at`; it may be beyond all slots. UINT64_MAX:
 * unknown, for a record says that it has no slots. */
uint64_t brick_walk(const struct brick_record *slots, uint64_t at, uint64_t from);

/* The checksums in slots of an event ring. */
struct brick_walked {
    uint64_t last;     /* number of the last valid record: before, then after */
    uint64_t slots;    /* of whole checksums, one after the other */
    uint64_t cut;      /* where one begins that reaches beyond the slots; else their count */
    uint64_t missing;  /* numbers above `last` without a record */
    uint64_t rejected; /* invalid ones */
};

/* Copies them, from the record at `at` to the end or to one that says that it has no slots; `to` has room for all slots. */
void brick_walk_checked(const struct brick_record *slots, uint64_t at, uint64_t count, struct brick_record *to,
                        struct brick_walked *w);

#endif
