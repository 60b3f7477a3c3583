#include "tolerance.h"

#include "brick_fingerprint.h"

#include <math.h>

#define PLACES 16 /* how many places a sketch has */
#define UNITS 8.0f /* several operators, one after the other, may round by this many times the error of one */

static const struct brick_tensor_sums *sums_of(const struct brick_record *slots, uint32_t tensor)
{
    return (const struct brick_tensor_sums *)(const void *)&slots[2 + 2 * tensor];
}

static const float *places_of(const struct brick_record *slots, uint32_t tensor)
{
    return ((const struct brick_tensor_sketch *)(const void *)&slots[3 + 2 * tensor])->places;
}

/* Returns the rounding unit of a dtype: half the distance from 1 to the next number. Returns 0 if the dtype is not a
 * floating-point type. */
static double unit_of(uint8_t dtype)
{
    switch (dtype) {
    case BRICK_FLOAT64:
        return 0x1p-53;
    case BRICK_FLOAT32:
        return 0x1p-24;
    case BRICK_FLOAT16:
        return 0x1p-11;
    case BRICK_BFLOAT16:
        return 0x1p-8;
    case BRICK_FLOAT8_E4M3FN:
    case BRICK_FLOAT8_E4M3FNUZ:
        return 0x1p-4;
    case BRICK_FLOAT8_E5M2:
    case BRICK_FLOAT8_E5M2FNUZ:
        return 0x1p-3;
    default:
        return 0;
    }
}

int brick_is_float(uint8_t dtype) { return unit_of(dtype) > 0; }

int brick_is_coarse(uint8_t dtype) { return unit_of(dtype) > 0x1p-24; }

int brick_values_left_out(const struct brick_record *slots) /* a tensor never has an fnv1a of 0 */
{
    return ((const struct brick_output *)(const void *)&slots[1])->fnv1a == 0;
}

static int as_many(const struct brick_tensor_sums *a, const struct brick_tensor_sums *b)
{
    return a->elements == b->elements && a->shape == b->shape && a->nan == b->nan && a->pos_inf == b->pos_inf
           && a->neg_inf == b->neg_inf;
}

static int is_beyond(const struct brick_record *slots)
{
    const float *places = places_of(slots, 0);
    int beyond = isinf(sums_of(slots, 0)->l2);
    for (int i = 0; i < PLACES; i++)
        beyond |= !isfinite(places[i]);
    return beyond;
}

int brick_is_unknown(const struct brick_record *one, const struct brick_record *other)
{
    return as_many(sums_of(one, 0), sums_of(other, 0)) && isnan(brick_tensor_error(one, other, 0));
}

int brick_is_beyond_sketches(const struct brick_record *one, const struct brick_record *other)
{
    return as_many(sums_of(one, 0), sums_of(other, 0)) && (is_beyond(one) || is_beyond(other));
}

float brick_tensor_error(const struct brick_record *one, const struct brick_record *other, uint32_t tensor)
{
    const struct brick_tensor_sums *a = sums_of(one, tensor), *b = sums_of(other, tensor);
    if (a->dtype == b->dtype && a->dtype != 0 && a->checksum == b->checksum)
        return 0;
    if (a->dtype == 0 || b->dtype == 0 || !as_many(a, b) || brick_values_left_out(one) || brick_values_left_out(other))
        return NAN;
    const float *x = places_of(one, tensor), *y = places_of(other, tensor);
    double squares = 0;
    for (int i = 0; i < PLACES; i++)
        squares += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
    if (squares == 0)
        return 0;
    const double norm = a->l2 > 0 ? a->l2 : b->l2;
    return norm > 0 && isfinite(norm) ? (float)(sqrt(squares) / norm) : NAN;
}

/* Returns how many numbers the operator may have added up for one element of the output: the numbers in one row of the
 * largest input. */
static double reduction(const struct brick_record *slots)
{
    const struct brick_checked *c = (const struct brick_checked *)(const void *)slots;
    const struct brick_output *output = (const struct brick_output *)(const void *)&slots[1];
    const uint64_t elements = sums_of(slots, 0)->elements;
    const uint64_t columns = output->dims > 0 && output->dims <= 6 ? output->shape[output->dims - 1] : elements;
    const double rows = columns > 0 && columns <= elements ? (double)elements / (double)columns : 1;
    double most = (double)columns;
    for (uint32_t n = 1; n <= c->inputs && n <= BRICK_INPUTS_MAX; n++)
        most = fmax(most, (double)sums_of(slots, n)->elements / rows);
    return fmax(most, 1);
}

int brick_is_of_one_shape(const struct brick_record *one, const struct brick_record *other, uint32_t tensor)
{
    const struct brick_tensor_sums *a = sums_of(one, tensor), *b = sums_of(other, tensor);
    return a->elements == b->elements && a->shape == b->shape;
}

float brick_rounding(const struct brick_record *one, const struct brick_record *other, uint32_t tensor)
{
    const double x = unit_of(sums_of(one, tensor)->dtype), y = unit_of(sums_of(other, tensor)->dtype);
    if (x == 0 || y == 0)
        return 0;
    const double coarser = fmax(x, y), sum = fmin(coarser, 0x1p-24);
    return (float)(coarser + sum * sqrt(fmax(reduction(one), reduction(other))));
}

uint32_t brick_places_apart(const struct brick_record *one, const struct brick_record *other)
{
    const float *x = places_of(one, 0), *y = places_of(other, 0);
    uint32_t apart = 0;
    for (uint32_t i = 0; i < PLACES; i++)
        apart |= (uint32_t)(x[i] != y[i]) << i;
    return sums_of(one, 0)->elements > 1 || apart == 0 ? apart : UINT32_MAX;
}

int brick_is_spread(uint32_t places) { return (places & (places - 1)) != 0; }

enum brick_rounded brick_rounded(const struct brick_record *one, const struct brick_record *other)
{
    const float rounding = brick_rounding(one, other, 0);
    /* Check both directions, because either output may be the reference. */
    if (!(rounding > 0 && brick_tensor_error(one, other, 0) <= rounding && brick_tensor_error(other, one, 0) <= rounding))
        return BRICK_ROUNDED_NOT;
    return brick_is_spread(brick_places_apart(one, other)) ? BRICK_ROUNDED_SPREAD : BRICK_ROUNDED_ONCE;
}

float brick_tolerance(const struct brick_record *one, const struct brick_record *other, uint32_t tensor, double rtol)
{
    const float rounding = brick_rounding(one, other, tensor);
    return rounding > 0 && rtol >= 0 ? (float)rtol : UNITS * rounding;
}
