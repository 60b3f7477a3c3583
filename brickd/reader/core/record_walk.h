/* core/record_walk.h - walks from record to record through unvalidated slots of a ring. */
#ifndef BRICKD_RECORD_WALK_H
#define BRICKD_RECORD_WALK_H

#include "brick_shm.h"

#include <stddef.h>

/* Returns whether the first slot of a checksum is valid. The slots of its tensors may have any bits. */
static inline int brick_checked_possible(const struct brick_checked *c)
{
    return c->inputs <= BRICK_INPUTS_MAX && c->slots == BRICK_CHECKED_SLOTS(c->inputs) && c->relation < BRICK_RELATIONS
           && c->site < BRICK_SITES_MAX && (int64_t)c->ticks >= 0;
}

/* Returns whether the text of a step is valid. Its bytes may have any values. */
static inline int brick_step_text_possible(const struct brick_step_text *r)
{
    return r->slots == 1 && r->length >= 1 && r->length <= BRICK_STEP_TEXT_MAX;
}

/* Walks from the record at `at` to the first record at `from` or after it. Returns the start of that record, which may
 * be beyond all slots; or UINT64_MAX if it is unknown, because a record claims to have no slots. */
uint64_t brick_walk(const struct brick_record *slots, uint64_t at, uint64_t from);

/* The checksums in slots of an event ring. */
struct brick_walked {
    uint64_t last;     /* the sequence of the last valid record, before and after the walk */
    uint64_t slots;    /* the number of slots of complete checksums */
    uint64_t cut;      /* the start of a checksum that extends past the slots; if there is none, the number of slots */
    uint64_t missing;  /* sequence numbers above `last` without a record */
    uint64_t rejected; /* invalid records */
};

/* Copies the checksums from the record at `at` on, until the end or a record without slots. `to` must have room for
 * all. */
void brick_walk_checked(const struct brick_record *slots, uint64_t at, uint64_t count, struct brick_record *to,
                        struct brick_walked *w);

#endif
