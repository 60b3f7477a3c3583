/* writer/checksum.h - shared by all records of tensors: their place, their draw, their slots. */
#ifndef BRICK_CHECKSUM_H
#define BRICK_CHECKSUM_H

#include "event_ring.h"

/* The place of a checksum, as given by the call or taken from the key's open span. */
struct brick_checked_place {
    uint64_t key;   /* the site's key in the private table */
    uint64_t value; /* the site's number and flags; 0: no site */
    uint64_t step;
    uint32_t has_step; /* 0 or 1; step 0 is also a step */
    uint32_t has_draw; /* whether the step is open; its draw was computed at its start */
    uint32_t draw;
};
BRICK_HIDDEN struct brick_checked_place brick_checked_place_of(struct brick_thread *t, uint32_t kernel, const void *key,
                                                               const struct brick_at *at);
/* Returns whether neither operator nor host excludes this step or site. `rate` applies if neither sets a rate. The draw
 * of a step must be below the rate that applies, multiplied by `times`. */
BRICK_HIDDEN int brick_checked_drawn(const struct brick_thread *t, const struct brick_checked_place *p, uint32_t rate,
                                     uint32_t times);

/* Gets the key of checksums and publishes the key's name. Returns 0 if no key can be read now. */
BRICK_HIDDEN int brick_key_published(struct brick_process *process, struct brick_fingerprint_key *key);
/* Fills in the fields that a fingerprint lacks: shape, dtype, valid rows. */
BRICK_HIDDEN void brick_taken_of(struct brick_taken *taken, const struct brick_tensor *tensor);
/* Writes the slots of an output. */
BRICK_HIDDEN void brick_put_output(const struct brick_thread *t, const struct brick_taken *taken);
/* Writes the two slots of another tensor, from `ahead` on. */
BRICK_HIDDEN void brick_put_tensor(const struct brick_thread *t, uint64_t ahead, const struct brick_taken *taken);
/* Mixes the generation of the weights, which must also be equal, into the given params, except for moved tensors. */
BRICK_HIDDEN uint64_t brick_params_of(const struct brick_at *at, uint8_t relation);
/* In writer/step_text.c: records the text of a step whose checksum was just recorded, if the text is known, not yet in
 * this segment, and there is room. */
BRICK_HIDDEN void brick_step_tell(struct brick_thread *t, uint64_t step);

#endif
