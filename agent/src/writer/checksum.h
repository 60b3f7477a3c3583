/* writer/checksum.h - what all records of tensors share: the site and step of a record, whether the step is selected,
 * and how tensors are written into slots. */
#ifndef BRICK_CHECKSUM_H
#define BRICK_CHECKSUM_H

#include "event_ring.h"

/* The site and the step of a checksum. The call gives them, or they are those of the key's open span. */
struct brick_checked_place {
    uint64_t key;   /* the site's key in the private table */
    uint64_t value; /* the site's id and flags; 0: there is no site */
    uint64_t step;
    uint32_t has_step; /* 0 or 1; step 0 is also a step */
    uint32_t has_draw; /* whether `draw` is set: it was computed when the open span's step began */
    uint32_t draw;
};
BRICK_HIDDEN struct brick_checked_place brick_checked_place_of(struct brick_thread *t, uint32_t kernel, const void *key,
                                                               const struct brick_at *at);
/* Returns the operator's rate, or else the configured one, or else `rate`. */
BRICK_HIDDEN uint32_t brick_checked_rate(const struct brick_thread *t, uint32_t rate);
/* Returns whether the operator has not turned this site off. */
BRICK_HIDDEN int brick_checked_on(const struct brick_thread *t, const struct brick_checked_place *p);
/* Returns whether this step is selected and the operator has not turned this site off. A step is
 * selected if its draw is below the rate (brick_checked_rate) multiplied by `times`. */
BRICK_HIDDEN int brick_checked_drawn(const struct brick_thread *t, const struct brick_checked_place *p, uint32_t rate,
                                     uint32_t times);

/* Gets the service's key for checksums, and publishes the public name of this key in the segment. Returns 0 if the key
 * cannot be read now. */
BRICK_HIDDEN int brick_key_published(struct brick_process *process, struct brick_fingerprint_key *key);
/* Fills in the fields that are not part of the fingerprint: shape, dtype, valid rows. */
BRICK_HIDDEN void brick_taken_of(struct brick_taken *taken, const struct brick_tensor *tensor);
/* Writes an output: the slot with its shape, and the two slots of its fingerprint. */
BRICK_HIDDEN void brick_put_output(const struct brick_thread *t, const struct brick_taken *taken);
/* Writes the two slots of a tensor's fingerprint, `ahead` slots after the record's first slot. */
BRICK_HIDDEN void brick_put_tensor(const struct brick_thread *t, uint64_t ahead, const struct brick_taken *taken);
/* Returns the params of a record: those of the call, mixed with the generation of the weights (except for moved
 * tensors). */
BRICK_HIDDEN uint64_t brick_params_of(const struct brick_at *at, uint8_t relation);
/* In writer/step_text.c: after a checksum of a step, records the text of the step, if this text is known, this lane has
 * not yet recorded it in this segment, and there is room. */
BRICK_HIDDEN void brick_step_tell(struct brick_thread *t, uint64_t step);

#endif
