/* writer/row_view.h - a tensor seen as rows, and the fingerprint of one row. */
#ifndef BRICK_ROW_VIEW_H
#define BRICK_ROW_VIEW_H

#include "checksum.h"

#include <stdbool.h>
#include <string.h>

/* A tensor seen as rows. */
struct brick_row_view {
    const struct brick_tensor *tensor;
    uint64_t size, columns, rows;
    bool dense;                      /* the elements of a row are contiguous */
    uint32_t leading;                /* number of dimensions before the columns */
    int64_t strides[BRICK_DIMS_MAX]; /* in bytes */
};

/* Returns 0 if the tensor has no rows, or has padding. */
static inline int brick_row_view_make(struct brick_row_view *v, const struct brick_tensor *t)
{
    v->tensor = t;
    v->size = brick_dtype_size(t->dtype);
    if (v->size == 0 || t->dims == 0 || t->dims > BRICK_DIMS_MAX || t->data == NULL || t->valid != BRICK_ALL_ROWS)
        return 0;
    v->leading = t->dims - 1;
    v->rows = 1;
    int64_t dense = (int64_t)v->size;
    for (uint32_t d = t->dims; d-- > 0;) {
        if (t->shape[d] <= 0)
            return 0;
        v->strides[d] = t->strides != NULL ? t->strides[d] : dense;
        if (__builtin_mul_overflow(dense, t->shape[d], &dense))
            return 0;
        if (d < v->leading)
            v->rows *= (uint64_t)t->shape[d];
    }
    v->columns = (uint64_t)t->shape[v->leading];
    v->dense = v->strides[v->leading] == (int64_t)v->size;
    return 1;
}

/* Returns the address of a row. `index` is the flat index in the leading dimensions from dimension `from` on. */
static inline const char *brick_row_at(const struct brick_row_view *v, const char *base, uint32_t from, uint64_t index)
{
    uint64_t offset = 0; /* modulo 2^64: a stride may be negative */
    for (uint32_t d = v->leading; d-- > from && index > 0;) {
        const uint64_t extent = d > from ? (uint64_t)v->tensor->shape[d] : UINT64_MAX;
        offset += index % extent * (uint64_t)v->strides[d];
        index /= extent;
    }
    return base + (int64_t)offset;
}

/* Takes a row's fingerprint. A record has room for one fnv1a, that of its first output row. */
static inline void brick_row_take(const struct brick_row_view *v, uint64_t row, bool with_fnv1a,
                                  struct brick_fingerprint_key secret, struct brick_taken *taken)
{
    const int64_t columns = (int64_t)v->columns;
    const struct brick_tensor tensor = {.data = brick_row_at(v, (const char *)v->tensor->data, 0, row),
                                        .dtype = v->tensor->dtype,
                                        .dims = 1,
                                        .shape = &columns,
                                        .strides = &v->strides[v->leading],
                                        .valid = BRICK_ALL_ROWS};
    memset(taken, 0, sizeof *taken);
    brick_taken_of(taken, &tensor);
    (with_fnv1a ? brick_fingerprint : brick_fingerprint_small)(&tensor, secret, &taken->fingerprint);
}

#endif
