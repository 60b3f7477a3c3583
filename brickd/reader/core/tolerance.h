/* core/tolerance.h - the difference between two tensors, and how much of it rounding may explain. */
#ifndef BRICKD_TOLERANCE_H
#define BRICKD_TOLERANCE_H

#include "brick_shm.h"

int brick_is_float(uint8_t dtype);

/* Returns whether a dtype is coarser than float32, the type in which kernels add numbers up. */
int brick_is_coarse(uint8_t dtype);

/* Returns whether the recording omitted the values of tensors, so that the size of a difference cannot be known. */
int brick_values_left_out(const struct brick_record *slots);

/* Returns the relative error of one tensor (0: the output) between two records, estimated from the sketches. Returns 0
 * if the checksums are equal; NaN if unknown, for example because a recording omitted the sketches. */
float brick_tensor_error(const struct brick_record *one, const struct brick_record *other, uint32_t tensor);

/* Returns whether two outputs have equal counts of NaN and infinities, but the size of their difference is not
 * known. */
int brick_is_unknown(const struct brick_record *one, const struct brick_record *other);

/* Returns whether two outputs have equal counts of NaN and infinities, and one has numbers too large for its sketch. */
int brick_is_beyond_sketches(const struct brick_record *one, const struct brick_record *other);

int brick_is_of_one_shape(const struct brick_record *one, const struct brick_record *other, uint32_t tensor);

/* Returns the relative error that rounding in one operator may cause. It is the rounding unit of the coarser dtype,
 * plus the unit of float32 (the type of sums) times the square root of the number of added numbers. Returns 0 for
 * integers. */
float brick_rounding(const struct brick_record *one, const struct brick_record *other, uint32_t tensor);

/* Whether another order of the same additions may explain the difference of two outputs. */
enum brick_rounded {
    BRICK_ROUNDED_NOT = 0, /* no: the difference is too large for rounding, or is not known */
    BRICK_ROUNDED_ONCE,    /* yes, but only one place of the sketch differs, so a flipped bit may be the reason, too */
    BRICK_ROUNDED_SPREAD,  /* yes: several places of the sketch differ, or the outputs have only one element */
};
enum brick_rounded brick_rounded(const struct brick_record *one, const struct brick_record *other);

/* Returns one bit for each place of the sketch in which two outputs differ. If the outputs have only one element and
 * differ, returns all bits. */
uint32_t brick_places_apart(const struct brick_record *one, const struct brick_record *other);
int brick_is_spread(uint32_t places);

/* Returns the relative error to accept after several operators: 0 for integers; else `rtol` if it is 0 or more; else a
 * multiple of the error that rounding in one operator may cause. */
float brick_tolerance(const struct brick_record *one, const struct brick_record *other, uint32_t tensor, double rtol);

#endif
