/* core/tolerance.h - the difference of two tensors, and how large this difference may be. */
#ifndef BRICKD_TOLERANCE_H
#define BRICKD_TOLERANCE_H

#include "brick_shm.h"

int brick_is_float(uint8_t dtype);

/* Returns whether the numbers of a dtype are coarser than the float32 in which kernels add them up. */
int brick_is_coarse(uint8_t dtype);

/* Returns whether the recording omitted the values of tensors; then no difference is known. */
int brick_values_left_out(const struct brick_record *slots);

/* Returns the relative error of one tensor (0: the output) between two records, estimated from the sketches. Returns 0
 * if the checksums are equal; NaN if unknown, for example because a recording omitted the sketches. */
float brick_tensor_error(const struct brick_record *one, const struct brick_record *other, uint32_t tensor);

/* Returns whether the difference of two outputs is unknown, although they have equal counts of NaN and infinities. */
int brick_is_unknown(const struct brick_record *one, const struct brick_record *other);

/* Returns whether one of two outputs with equal counts of NaN and infinities has numbers too large for its sketch. */
int brick_is_beyond_sketches(const struct brick_record *one, const struct brick_record *other);

int brick_is_of_one_shape(const struct brick_record *one, const struct brick_record *other, uint32_t tensor);

/* Returns the relative error that rounding in one operator explains: the rounding unit of the coarser dtype, plus the
 * unit of float32 (the type of sums) times the square root of the size of the reduction. Returns 0 for integers. */
float brick_rounding(const struct brick_record *one, const struct brick_record *other, uint32_t tensor);

/* Whether another order of the same additions may explain the difference of two outputs. */
enum brick_rounded {
    BRICK_ROUNDED_NOT = 0, /* the difference is larger than rounding, or unknown */
    BRICK_ROUNDED_ONCE,    /* the difference is in at most one place of the sketch: a flipped bit may also explain it */
    BRICK_ROUNDED_SPREAD,  /* the difference is in several places, or of one element */
};
enum brick_rounded brick_rounded(const struct brick_record *one, const struct brick_record *other);

/* Returns one bit for each place of the sketch where two outputs differ; all bits if the outputs have one element. */
uint32_t brick_places_apart(const struct brick_record *one, const struct brick_record *other);
int brick_is_spread(uint32_t places);

/* Returns the rounding of several operators in a row; if `rtol` is 0 or more, returns `rtol`. */
float brick_tolerance(const struct brick_record *one, const struct brick_record *other, uint32_t tensor, double rtol);

#endif
