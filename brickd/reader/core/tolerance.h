/* core/tolerance.h - the difference of two tensors, and how large it may be. */
#ifndef BRICKD_TOLERANCE_H
#define BRICKD_TOLERANCE_H

#include "brick_shm.h"

int brick_is_float(uint8_t dtype);

/* Whether its recording left out the values of its tensors: its difference from another is unknown then. */
int brick_values_left_out(const struct brick_record *slots);

/* The relative error between the tensors of that number (0: the outputs) of two records, from their sketches: 0 where the
 * checksums are equal, NaN where it is unknown, as where a recording left sketches out. */
float brick_tensor_error(const struct brick_record *one, const struct brick_record *other, uint32_t tensor);

/* Whether one of two outputs with as many NaNs and infinities has numbers too large for its sketch. */
int brick_is_beyond_sketches(const struct brick_record *one, const struct brick_record *other);

int brick_is_of_one_shape(const struct brick_record *one, const struct brick_record *other, uint32_t tensor);

/* The relative error that rounding in one operator explains: a unit of the coarser dtype, plus one of float32's, in which
 * sums are made, times the square root of the reduction's size; 0 for whole numbers. */
float brick_rounding(const struct brick_record *one, const struct brick_record *other, uint32_t tensor);

/* Whether another order of the same sums may explain the difference of two outputs. */
enum brick_rounded {
    BRICK_ROUNDED_NOT = 0, /* it is larger, or unknown */
    BRICK_ROUNDED_ONCE,    /* in one place of the sketch at most: one flipped bit may explain it, too */
    BRICK_ROUNDED_SPREAD,  /* in several places, or of one element */
};
enum brick_rounded brick_rounded(const struct brick_record *one, const struct brick_record *other);

/* The places of the sketch in which two outputs differ, a bit each; all bits where they have one element. */
uint32_t brick_places_apart(const struct brick_record *one, const struct brick_record *other);
int brick_is_spread(uint32_t places);

/* The rounding of several operators in a row; or `rtol`, unless below 0. */
float brick_tolerance(const struct brick_record *one, const struct brick_record *other, uint32_t tensor, double rtol);

#endif
