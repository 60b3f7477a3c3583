/* fingerprint/simd_body.h - one variant of the kernel. fingerprint/simd.c includes this file once per variant and
 * defines
 *
 *   VARIANT          the name of the variant
 *   WIDTH            the size of a vector in bytes
 *   TARGET           an attribute: the instructions that the compiler may use
 *   MINIMUM(a, b), MAXIMUM(a, b), MULADD(a, b, c)     of vectors of float64; MULADD is a * b + c
 *   MULTIPLY(a, b)   products of the low halves of vectors of uint64
 *   NEGATE(v, bits)  negates lane l if bit l is set
 *   PROMOTE(from)    converts float32 at any address to a vector of float64
 *   FROM_HALF(from, to)   converts 16 elements of float16 to float32
 *
 * There is no include guard, because the file is included several times.
 */
#define NAMED_(name, variant) name##_##variant
#define NAMED(name, variant) NAMED_(name, variant)
#define OWN(name) NAMED(name, VARIANT)
#define LANES (WIDTH / 8)
#define GROUPS (BRICK_SIXTEEN / LANES) /* number of float64 vectors per block of elements */
#define WORD_GROUPS (8 / LANES)      /* number of vectors per block of words, with two words per lane */

#define D OWN(doubles_vector)
#define U OWN(integers_vector)
#define L OWN(mask_vector)
typedef double D __attribute__((vector_size(WIDTH), may_alias));
typedef uint64_t U __attribute__((vector_size(WIDTH), may_alias));
typedef int64_t L __attribute__((vector_size(WIDTH), may_alias)); /* a comparison's result: in each lane, all bits or
                                                                     none */
typedef D OWN(doubles_anywhere) BRICK_ANYWHERE;
typedef U OWN(integers_anywhere) BRICK_ANYWHERE;

TARGET static void OWN(hashes)(uint64_t *hashes, uint64_t first, size_t blocks, uint64_t key)
{
    for (size_t i = 0; i < blocks; i += LANES) {
        U z = *(const U *)(const void *)brick_eight;
        z = ((z + (first + i)) ^ key) + UINT64_C(0x9E3779B97F4A7C15);
        z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
        z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
        *(U *)(void *)(hashes + i) = z ^ z >> 31;
    }
}

TARGET static uint64_t OWN(checksum)(const void *words, const uint64_t *hashes, size_t blocks)
{
    const OWN(integers_anywhere) *u = words;
    const U *even = (const void *)brick_even, *odd = (const void *)brick_odd;
    U sums[2] = {{0}, {0}};
    uint64_t sum = 0;
    for (size_t i = 0; i < blocks; i++, u += WORD_GROUPS) {
        uint64_t high = hashes[i] >> 32 | 1;
        __builtin_prefetch((const void *)((uintptr_t)u + BRICK_AHEAD)); /* a prefetch beyond the end is harmless */
#pragma GCC unroll 4
        for (int g = 0; g < WORD_GROUPS; g++) {
            U two = u[g];
            sums[0] += MULTIPLY(two, even[g] ^ high);
            sums[1] += MULTIPLY(two >> 32, odd[g] ^ high);
        }
    }
    sums[0] += sums[1];
    for (int l = 0; l < LANES; l++)
        sum += sums[0][l];
    return sum;
}

/* Changes *s only after all elements are known to be finite. */
TARGET static inline __attribute__((always_inline)) bool OWN(add)(struct brick_sums *s, const char *elements, bool wide,
                                                                 const uint64_t *hashes, size_t blocks, double scale)
{
    D bins[BRICK_SIXTEEN], sum[2], squares[2], least[2], most[2];
    for (int n = 0; n < BRICK_SIXTEEN; n++)
        bins[n] = ((const D *)(const void *)s->bins)[n];
    for (int n = 0; n < 2; n++) {
        sum[n] = ((const D *)(const void *)s->sum)[n];
        squares[n] = ((const D *)(const void *)s->squares)[n];
        least[n] = ((const D *)(const void *)s->bounds.least)[n];
        most[n] = ((const D *)(const void *)s->bounds.most)[n];
    }
    for (size_t i = 0; i < blocks; i++, elements += BRICK_SIXTEEN * (wide ? 8 : 4)) {
        const uint64_t h = hashes[i];
        const unsigned turn = h >> 16 & 15;
#pragma GCC unroll 8
        for (unsigned g = 0; g < GROUPS; g++) {
            D v;
            if (wide)
                v = *(const OWN(doubles_anywhere) *)(const void *)(elements + g * WIDTH) * scale;
            else
                v = PROMOTE(elements + g * (WIDTH / 2));
            sum[g & 1] += v;
            squares[g & 1] = MULADD(v, v, squares[g & 1]);
            least[g & 1] = MINIMUM(v, least[g & 1]);
            most[g & 1] = MAXIMUM(v, most[g & 1]);
            bins[turn ^ g * LANES] += NEGATE(v, h >> g * LANES);
        }
    }
    const D whole = squares[0] + squares[1];
    double finite = 0;
    for (int l = 0; l < LANES; l++)
        finite += whole[l];
    if (!(finite - finite == 0))
        return false;
    for (int n = 0; n < BRICK_SIXTEEN; n++)
        ((D *)(void *)s->bins)[n] = bins[n];
    for (int n = 0; n < 2; n++) {
        ((D *)(void *)s->sum)[n] = sum[n];
        ((D *)(void *)s->squares)[n] = squares[n];
        ((D *)(void *)s->bounds.least)[n] = least[n];
        ((D *)(void *)s->bounds.most)[n] = most[n];
    }
    return true;
}

TARGET static bool OWN(floats)(struct brick_sums *s, const void *elements, const uint64_t *hashes, size_t blocks)
{
    return OWN(add)(s, elements, false, hashes, blocks, 1);
}

TARGET static bool OWN(doubles)(struct brick_sums *s, const void *elements, const uint64_t *hashes, size_t blocks,
                                double scale)
{
    return OWN(add)(s, elements, true, hashes, blocks, scale);
}

TARGET static void OWN(clean)(struct brick_sums *s, double *elements, size_t blocks)
{
    D *bounds[2] = {(D *)(void *)s->bounds.least, (D *)(void *)s->bounds.most}, least = *bounds[0], most = *bounds[1];
    U nan = {0}, pos_inf = {0}, neg_inf = {0};
    const D infinite = (D){0} + __builtin_inf();
    for (D *v = (void *)elements, *end = v + blocks * GROUPS; v < end; v++) {
        L is_nan = *v != *v, is_pos = *v == infinite, is_neg = *v == -infinite, finite = ~(is_nan | is_pos | is_neg);
        nan -= (U)is_nan;
        pos_inf -= (U)is_pos;
        neg_inf -= (U)is_neg;
        *v = (D)((L)*v & finite);
        least = MINIMUM((D)((L)*v | ((L)infinite & ~finite)), least);
        most = MAXIMUM((D)((L)*v | ((L)-infinite & ~finite)), most);
    }
    for (int l = 0; l < LANES; l++) {
        s->nan += nan[l];
        s->pos_inf += pos_inf[l];
        s->neg_inf += neg_inf[l];
    }
    *bounds[0] = least;
    *bounds[1] = most;
}

/* Defines a loop over 16 elements, which the compiler turns into vector instructions. */
#define WIDEN(name, from_type, to_type, value)                                                                         \
    TARGET static void OWN(name)(const void *restrict from, void *restrict to, size_t blocks)                          \
    {                                                                                                                  \
        typedef from_type from_anywhere BRICK_ANYWHERE;                                                                \
        const from_anywhere *restrict x = from;                                                                        \
        for (to_type *restrict y = to; blocks > 0; blocks--, x += BRICK_SIXTEEN, y += BRICK_SIXTEEN)                   \
            for (int j = 0; j < BRICK_SIXTEEN; j++)                                                                    \
                y[j] = (value);                                                                                        \
    }

WIDEN(from_bool, uint8_t, float, x[j] != 0 ? 1.0f : 0.0f)
WIDEN(from_int8, int8_t, float, x[j])
WIDEN(from_int16, int16_t, float, x[j])
WIDEN(from_int32, int32_t, double, x[j])
WIDEN(from_int64, int64_t, double, (double)x[j])
WIDEN(from_uint8, uint8_t, float, x[j])
WIDEN(from_uint16, uint16_t, float, x[j])
WIDEN(from_uint32, uint32_t, double, x[j])
WIDEN(from_uint64, uint64_t, double, (double)x[j])
WIDEN(from_bfloat16, uint16_t, uint32_t, (uint32_t)x[j] << 16)
WIDEN(from_e4m3fn, uint8_t, float, brick_small(x[j] >> 7, x[j] & 0x7F, 20, 0x1p120f, 0x7E, 0x7FC00000))
WIDEN(from_e4m3fnuz, uint8_t, float, brick_small(x[j] >> 7, brick_fnuz(x[j]), 20, 0x1p119f, 0x7F, 0x7FC00000))
WIDEN(from_e5m2, uint8_t, float, brick_small(x[j] >> 7, x[j] & 0x7F, 21, 0x1p112f, 0x7B, 0x7F800000))
WIDEN(from_e5m2fnuz, uint8_t, float, brick_small(x[j] >> 7, brick_fnuz(x[j]), 21, 0x1p111f, 0x7F, 0x7FC00000))
WIDEN(promote_all, float, double, x[j])

TARGET static void OWN(promote)(const float *elements, double *promoted, size_t blocks)
{
    OWN(promote_all)(elements, promoted, blocks);
}

TARGET static void OWN(from_float16)(const void *from, void *to, size_t blocks)
{
    const char *x = from;
    for (float *y = to; blocks > 0; blocks--, x += BRICK_SIXTEEN * 2, y += BRICK_SIXTEEN)
        FROM_HALF(x, y);
}

static const struct brick_kernel OWN(kernel) = {
    .name = VARIANT_NAME,
    .lanes = LANES,
    .hashes = OWN(hashes),
    .checksum = OWN(checksum),
    .floats = OWN(floats),
    .doubles = OWN(doubles),
    .clean = OWN(clean),
    .promote = OWN(promote),
    .widen = {
        [BRICK_BOOL] = OWN(from_bool),
        [BRICK_INT8] = OWN(from_int8),
        [BRICK_INT16] = OWN(from_int16),
        [BRICK_INT32] = OWN(from_int32),
        [BRICK_INT64] = OWN(from_int64),
        [BRICK_UINT8] = OWN(from_uint8),
        [BRICK_UINT16] = OWN(from_uint16),
        [BRICK_UINT32] = OWN(from_uint32),
        [BRICK_UINT64] = OWN(from_uint64),
        [BRICK_FLOAT16] = OWN(from_float16),
        [BRICK_BFLOAT16] = OWN(from_bfloat16),
        [BRICK_FLOAT8_E4M3FN] = OWN(from_e4m3fn),
        [BRICK_FLOAT8_E4M3FNUZ] = OWN(from_e4m3fnuz),
        [BRICK_FLOAT8_E5M2] = OWN(from_e5m2),
        [BRICK_FLOAT8_E5M2FNUZ] = OWN(from_e5m2fnuz),
    },
};

#undef NAMED_
#undef NAMED
#undef OWN
#undef LANES
#undef GROUPS
#undef WORD_GROUPS
#undef D
#undef U
#undef L
#undef WIDEN
#undef VARIANT
#undef VARIANT_NAME
#undef WIDTH
#undef TARGET
#undef MINIMUM
#undef MAXIMUM
#undef MULADD
#undef MULTIPLY
#undef NEGATE
#undef PROMOTE
#undef FROM_HALF
