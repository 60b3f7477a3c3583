/* tolerance.h - how far apart two tensors are, and how far they may be. */
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

/* What rounding leads one to expect of the coarser of both outputs: so many units of rounding of its dtype, and so many
 * of float32's for each square root of the reduction's size, in which things are added up; of whole numbers nothing.
 * Or `rtol`, where that is not below 0. */
float brick_tolerance(const struct brick_record *one, const struct brick_record *other, double rtol);

#endif
