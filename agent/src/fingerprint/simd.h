/* fingerprint/simd.h - the loops of a fingerprint over whole blocks, once per kind of processor.
 *
 * Owns the arithmetic on blocks of 16 words and of 16 elements. Must not know tensors, their shapes, or the address of
 * the first block (fingerprint/fingerprint.c). Every variant is compiled from fingerprint/simd_body.h and gives exactly
 * the same checksum; its sums differ only by rounding, because it adds in another order.
 *
 * A sketch adds element j of a block to sum j XOR t. The code does this without moving elements between vector lanes.
 * There are 16 vectors of sums. Vector g of a block (with n lanes, g = 0, n, 2n, ...) is added to vector t XOR g, so
 * the upper bits of t select a group of n vectors. The lower bits of t select one vector of the group: lane l of vector
 * g + k is part of sum g + (l XOR k). At the end, the parts of each sum are added up.
 */
#ifndef BRICK_KERNEL_H
#define BRICK_KERNEL_H

/* An engine may be compiled with -ffast-math, which assumes that there are no NaN. But this code must count NaN. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-fast-math")
#endif
#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
#error "fingerprint/fingerprint.c and fingerprint/simd.c must be compiled without -ffast-math"
#endif

#include "../writer/common.h"

#include <stdbool.h>
#include <stddef.h>

#define BRICK_SIXTEEN 16      /* the number of words, or of elements, in a block */
#define BRICK_PIECE_BLOCKS 64 /* blocks per piece: small enough that a second read hits the first-level cache */
#define BRICK_VECTOR_MAX 8    /* the number of float64 in the widest vector */
#define BRICK_AHEAD 8192      /* bytes to prefetch ahead; the processor's own prefetch stops at the end of a page */

#define BRICK_ALIGNED __attribute__((aligned(64))) /* the alignment of the widest vector */
/* For pointers to the caller's data, which may have any alignment and any type. */
#define BRICK_ANYWHERE __attribute__((aligned(1), may_alias))

/* Sums per vector lane. Each variant assigns elements to lanes in another order. */
struct brick_sums {
    double bins[BRICK_SIXTEEN * BRICK_VECTOR_MAX] BRICK_ALIGNED;
    double sum[BRICK_SIXTEEN] BRICK_ALIGNED, squares[BRICK_SIXTEEN] BRICK_ALIGNED;
    struct brick_bounds {
        double least[BRICK_SIXTEEN] BRICK_ALIGNED, most[BRICK_SIXTEEN] BRICK_ALIGNED;
    } bounds;
    uint64_t nan, pos_inf, neg_inf;
};

struct brick_kernel {
    const char *name;
    unsigned lanes; /* the number of lanes in a vector, which is also the number of vectors in a group */
    /* Writes splitmix64((first + i) ^ key) for each block i. The number of hashes is rounded up to a multiple of 8. */
    void (*hashes)(uint64_t *hashes, uint64_t first, size_t blocks, uint64_t key);
    uint64_t (*checksum)(const void *words, const uint64_t *hashes, size_t blocks);
    /* Returns false, and adds nothing, if an element or its square is not finite. */
    bool (*floats)(struct brick_sums *sums, const void *elements, const uint64_t *hashes, size_t blocks);
    bool (*doubles)(struct brick_sums *sums, const void *elements, const uint64_t *hashes, size_t blocks, double scale);
    /* Counts elements that are not finite and replaces them with 0; the other elements widen the bounds. */
    void (*clean)(struct brick_sums *sums, double *elements, size_t blocks);
    /* Converts elements to float32 if float32 has every value of the dtype, else to float64. */
    void (*widen[BRICK_DTYPES])(const void *elements, void *widened, size_t blocks);
    void (*promote)(const float *elements, double *promoted, size_t blocks);
};

/* Returns the fastest variant for this processor. */
BRICK_HIDDEN const struct brick_kernel *brick_kernel_choose(void);
/* Returns a variant by its name; NULL if it was not compiled or cannot run here. */
BRICK_HIDDEN const struct brick_kernel *brick_kernel_named(const char *name);

/* Like brick_fingerprint, with a given variant. */
BRICK_HIDDEN const char *brick_fingerprint_with(const struct brick_kernel *kernel, const struct brick_tensor *tensor,
                                                struct brick_fingerprint_key key,
                                                struct brick_fingerprint *fingerprint);
/* Like brick_pieces_begin, with a given variant. */
BRICK_HIDDEN const char *brick_pieces_begin_with(const struct brick_kernel *kernel, struct brick_pieces *pieces,
                                                 const struct brick_tensor *tensor,
                                                 struct brick_fingerprint_key key);

#endif
