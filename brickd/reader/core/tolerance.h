/* core/tolerance.h - how far apart two tensors are, and how far they may be. */
#ifndef BRICKD_TOLERANCE_H
#define BRICKD_TOLERANCE_H

#include "brick_shm.h"

int brick_is_float(uint8_t dtype);

/* Whether the values of its tensors were left out by its recording: how far it is from another is not known then. */
int brick_values_left_out(const struct brick_record *slots);

/* The relative error between the tensors of that number (0: the outputs) of two records, from their sketches alone: 0
 * where their checksums are equal, no number where it cannot be told, as where a recording left sketches out. */
float brick_tensor_error(const struct brick_record *one, const struct brick_record *other, uint32_t tensor);

/* Whether one of two outputs, in which as many numbers are none, holds such large ones that its sketch does not. */
int brick_is_beyond_sketches(const struct brick_record *one, const struct brick_record *other);

int brick_is_of_one_shape(const struct brick_record *one, const struct brick_record *other, uint32_t tensor);

/* How far apart the coarser of the tensors of that number may be by rounding, behind one operator: a unit of its dtype, and
 * one of float32's, in which things are added up, for each square root of the reduction's size; of whole numbers nothing. */
float brick_rounding(const struct brick_record *one, const struct brick_record *other, uint32_t tensor);

/* Whether the same numbers, added up in another order, may have made the one output and the other. */
enum brick_rounded {
    BRICK_ROUNDED_NOT = 0, /* they are further apart than that, or nobody knows how far */
    BRICK_ROUNDED_ONCE,    /* they may, but in one place of the sketch at the most: so does one flipped bit, too */
    BRICK_ROUNDED_SPREAD,  /* they are in several, or have but one element */
};
enum brick_rounded brick_rounded(const struct brick_record *one, const struct brick_record *other);

/* In which places of the sketch two outputs differ, bit by bit; of but one element in all. */
uint32_t brick_places_apart(const struct brick_record *one, const struct brick_record *other);
int brick_is_spread(uint32_t places);

/* So much several times, for several operators in a row. Or `rtol`, where that is not below 0. */
float brick_tolerance(const struct brick_record *one, const struct brick_record *other, uint32_t tensor, double rtol);

#endif
