/* fingerprint/simd.c - the variants of the kernel, and the choice of a variant for this processor.
 *
 * Each function declares its instruction set. So the build needs no flag, and the rest of the agent runs on any
 * processor. "generic" is plain C for any architecture. x86-64 always has SSE2, so there only tests use "generic".
 */
#include "simd.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

static const uint64_t brick_eight[8] BRICK_ALIGNED = {0, 1, 2, 3, 4, 5, 6, 7};

/* c[j] of brick_fingerprint.h without its lowest bit, because ((h >> 32) XOR c) | 1 equals ((h >> 32) | 1) XOR (c
 * without its lowest bit). A vector lane holds two words, so each lane needs two multiplications. */
static const uint64_t brick_even[8] BRICK_ALIGNED = {
    0x428A2F98, 0xB5C0FBCE, 0x3956C25A, 0x923F82A4, 0xD807AA98, 0x243185BE, 0x72BE5D74, 0x9BDC06A6,
};
static const uint64_t brick_odd[8] BRICK_ALIGNED = {
    0x71374490, 0xE9B5DBA4, 0x59F111F0, 0xAB1C5ED4, 0x12835B00, 0x550C7DC2, 0x80DEB1FE, 0xC19BF174,
};

/* Sign bits for two and for four lanes, indexed by the bits to negate. */
#define SIGN(bit) ((uint64_t)(bit) << 63)
#define SIGNS(bits) {SIGN((bits) & 1), SIGN((bits) >> 1 & 1), SIGN((bits) >> 2 & 1), SIGN((bits) >> 3 & 1)}
static const uint64_t brick_signs_of_4[16][4] BRICK_ALIGNED = {
    SIGNS(0), SIGNS(1), SIGNS(2),  SIGNS(3),  SIGNS(4),  SIGNS(5),  SIGNS(6),  SIGNS(7),
    SIGNS(8), SIGNS(9), SIGNS(10), SIGNS(11), SIGNS(12), SIGNS(13), SIGNS(14), SIGNS(15),
};
static const uint64_t brick_signs_of_2[4][2] BRICK_ALIGNED = {
    {SIGN(0), SIGN(0)}, {SIGN(1), SIGN(0)}, {SIGN(0), SIGN(1)}, {SIGN(1), SIGN(1)},
};

/* Converts a float of 8 or 16 bits: moves exponent and mantissa to their places in float32, then corrects the exponent
 * by a multiplication, which also makes subnormals normal. A magnitude above `largest`, the largest finite one, gets
 * the bits `special`, which make it infinite or NaN. */
static inline float brick_small(uint32_t sign, uint32_t magnitude, int shift, float scale, uint32_t largest,
                                uint32_t special)
{
    union {
        uint32_t bits;
        float value;
    } moved = {.bits = magnitude << shift}, whole = {.value = moved.value * scale};
    whole.bits |= sign << 31 | (-(uint32_t)(magnitude > largest) & special);
    return whole.value;
}

/* In the fnuz formats of float8, the only NaN has the bits of -0. Returns the magnitude of a value, and for this NaN a
 * magnitude above all others. */
static inline uint32_t brick_fnuz(uint32_t bits) { return (bits & 0x7F) | (uint32_t)(bits == 0x80) << 7; }

typedef float brick_float_anywhere BRICK_ANYWHERE;

static inline void brick_from_half(const char *restrict from, float *restrict to)
{
    typedef uint16_t half BRICK_ANYWHERE;
    const half *restrict x = (const void *)from;
    for (int j = 0; j < BRICK_SIXTEEN; j++)
        to[j] = brick_small(x[j] >> 15, x[j] & 0x7FFF, 13, 0x1p112f, 0x7BFF, 0x7F800000);
}

#define SELECT(condition, a, b) ((D)(((condition) & (L)(a)) | (~(condition) & (L)(b))))
#define LOW UINT64_C(0xFFFFFFFF)

#define VARIANT generic
#define VARIANT_NAME "generic"
#define WIDTH 16
#define TARGET
#define MINIMUM(a, b) SELECT((a) < (b), a, b)
#define MAXIMUM(a, b) SELECT((a) > (b), a, b)
#define MULADD(a, b, c) ((a) * (b) + (c))
#define MULTIPLY(a, b) (((a) & LOW) * ((b) & LOW))
#define NEGATE(v, bits) ((D)((U)(v) ^ *(const U *)(const void *)brick_signs_of_2[(bits) & 3]))
#define PROMOTE(from) ((D){((const brick_float_anywhere *)(from))[0], ((const brick_float_anywhere *)(from))[1]})
#define FROM_HALF(from, to) brick_from_half(from, to)
#include "simd_body.h"

#if defined(__x86_64__)

#define VARIANT sse2
#define VARIANT_NAME "sse2"
#define WIDTH 16
#define TARGET
#define MINIMUM(a, b) ((D)_mm_min_pd((__m128d)(a), (__m128d)(b)))
#define MAXIMUM(a, b) ((D)_mm_max_pd((__m128d)(a), (__m128d)(b)))
#define MULADD(a, b, c) ((a) * (b) + (c))
#define MULTIPLY(a, b) ((U)_mm_mul_epu32((__m128i)(a), (__m128i)(b)))
#define NEGATE(v, bits) ((D)((U)(v) ^ *(const U *)(const void *)brick_signs_of_2[(bits) & 3]))
#define PROMOTE(from) ((D)_mm_cvtps_pd(_mm_castsi128_ps(_mm_loadl_epi64((const void *)(from)))))
#define FROM_HALF(from, to) brick_from_half(from, to)
#include "simd_body.h"

#define VARIANT avx2
#define VARIANT_NAME "avx2"
#define WIDTH 32
#define TARGET __attribute__((target("avx2,fma,f16c")))
#define MINIMUM(a, b) ((D)_mm256_min_pd((__m256d)(a), (__m256d)(b)))
#define MAXIMUM(a, b) ((D)_mm256_max_pd((__m256d)(a), (__m256d)(b)))
#define MULADD(a, b, c) ((D)_mm256_fmadd_pd((__m256d)(a), (__m256d)(b), (__m256d)(c)))
#define MULTIPLY(a, b) ((U)_mm256_mul_epu32((__m256i)(a), (__m256i)(b)))
#define NEGATE(v, bits) ((D)((U)(v) ^ *(const U *)(const void *)brick_signs_of_4[(bits) & 15]))
#define PROMOTE(from) ((D)_mm256_cvtps_pd(_mm_loadu_ps((const void *)(from))))
#define FROM_HALF(from, to)                                                                                            \
    do {                                                                                                               \
        _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(from))));                                  \
        _mm256_storeu_ps((to) + 8, _mm256_cvtph_ps(_mm_loadu_si128((const void *)((from) + 16))));                     \
    } while (0)
#include "simd_body.h"

#define VARIANT avx512
#define VARIANT_NAME "avx512"
#define WIDTH 64
#define TARGET __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,f16c")))
#define MINIMUM(a, b) ((D)_mm512_min_pd((__m512d)(a), (__m512d)(b)))
#define MAXIMUM(a, b) ((D)_mm512_max_pd((__m512d)(a), (__m512d)(b)))
#define MULADD(a, b, c) ((D)_mm512_fmadd_pd((__m512d)(a), (__m512d)(b), (__m512d)(c)))
#define MULTIPLY(a, b) ((U)_mm512_mul_epu32((__m512i)(a), (__m512i)(b)))
#define NEGATE(v, bits)                                                                                                \
    ((D)_mm512_mask_xor_pd((__m512d)(v), (__mmask8)(bits), (__m512d)(v), _mm512_set1_pd(-0.0)))
#define PROMOTE(from) ((D)_mm512_cvtps_pd(_mm256_loadu_ps((const void *)(from))))
#define FROM_HALF(from, to) _mm512_storeu_ps(to, _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(from))))
#include "simd_body.h"

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")
           && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

#endif

const struct brick_kernel *brick_kernel_named(const char *name)
{
    const struct brick_kernel *found = NULL;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (strcmp(name, "avx512") == 0 && has_avx512())
        found = &kernel_avx512;
    if (strcmp(name, "avx2") == 0 && has_avx2())
        found = &kernel_avx2;
    if (strcmp(name, "sse2") == 0)
        found = &kernel_sse2;
#endif
    if (strcmp(name, "generic") == 0)
        found = &kernel_generic;
    return found;
}

const struct brick_kernel *brick_kernel_choose(void)
{
    /* No lock is needed: every thread finds and stores the same variant. */
    static const struct brick_kernel *chosen;
    static const char *const names[] = {"avx512", "avx2", "sse2", "generic"};
    const struct brick_kernel *kernel = __atomic_load_n(&chosen, __ATOMIC_RELAXED);
    for (int i = 0; kernel == NULL; i++)
        kernel = brick_kernel_named(names[i]);
    __atomic_store_n(&chosen, kernel, __ATOMIC_RELAXED);
    return kernel;
}
