/* core/record_walk.h - walks from record to record through unvalidated slots of a ring. */
#ifndef BRICKD_RECORD_WALK_H
#define BRICKD_RECORD_WALK_H

#include "brick_shm.h"

#include <stddef.h>

/* Returns whether the first slot of a checksum is valid. The slots of its tensors are not checked: any bits are valid
 * there. */
static inline int brick_checked_possible(const struct brick_checked *c)
{
    return c->inputs <= BRICK_INPUTS_MAX && c->slots == BRICK_CHECKED_SLOTS(c->inputs) && c->relation < BRICK_RELATIONS
           && c->site < BRICK_SITES_MAX && (int64_t)c->ticks >= 0;
}

/* Returns whether the record of a step's text is valid. The bytes of the text may have any values. */
static inline int brick_step_text_possible(const struct brick_step_text *r)
{
    return r->slots == 1 && r->length >= 1 && r->length <= BRICK_STEP_TEXT_MAX;
}

/* Walks from the record at `at` to the first record at `from` or after it. Returns the start of that record, which may
 * be behind all slots. Returns UINT64_MAX if a record claims to have no slots, so that the start of the next one cannot
 * be known. */
uint64_t brick_walk(const struct brick_record *slots, uint64_t at, uint64_t from);

/* The result of brick_walk_checked for slots of an event ring. */
struct brick_walked {
    uint64_t last;     /* the sequence of the last valid record; the caller sets it before the walk */
    uint64_t slots;    /* how many slots were copied */
    uint64_t cut;      /* where a checksum starts that extends past the slots; otherwise, the number of slots */
    uint64_t missing;  /* how many sequence numbers between the records have no record */
    uint64_t rejected; /* how many records are invalid */
};

/* Copies the complete checksums from the record at `at` on. Stops at the end of the slots, or at a record that claims
 * to have no slots. `to` must have room for `count` slots. */
void brick_walk_checked(const struct brick_record *slots, uint64_t at, uint64_t count, struct brick_record *to,
                        struct brick_walked *w);

#endif
