/* tensors.c - fingerprints of one tensor, and two references for their speed: a plain read of the tensor, and FNV-1a
 * over every byte. */
#include "fingerprint/simd.h"
#include "brick_siphash.h"

#include <stdlib.h>

static const struct brick_fingerprint_key none;
static float *data;
static volatile uint64_t sink; /* keeps the compiler from removing code whose result is not used */

/* Returns float32 values of similar size. None of them is a special value. Returns NULL if there is no memory. */
float *tensor_make(uint64_t elements)
{
    uint64_t state = 1;
    data = aligned_alloc(64, (elements * 4 + 63) / 64 * 64);
    for (uint64_t i = 0; data != NULL && i < elements; i++) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
        data[i] = (float)(int32_t)(state >> 32) * 0x1p-31f;
    }
    return data;
}

int tensor_has(const char *variant) { return brick_kernel_named(variant) != NULL; }
const char *tensor_chosen(void) { return brick_kernel_choose()->name; }

/* Returns the checksum of `elements` elements whose words have this sum. */
uint64_t tensor_checksum(uint32_t dtype, uint64_t elements, uint64_t sum)
{
    return brick_siphash(none.words, (const uint64_t[]){sum, elements * 4, dtype}, 3);
}

/* Returns how many of `times` fingerprints of the first elements have the right checksum. */
uint64_t tensor_fingerprints(const char *variant, uint32_t dtype, uint64_t elements, uint64_t wanted, uint64_t times)
{
    const int64_t shape[1] = {(int64_t)elements};
    const struct brick_tensor tensor = {data, dtype, 1, shape, NULL, BRICK_ALL_ROWS};
    const struct brick_kernel *kernel = brick_kernel_named(variant);
    struct brick_fingerprint found;
    uint64_t right = 0;
    while (times-- > 0)
        right += brick_fingerprint_with(kernel, &tensor, none, &found) == NULL && found.checksum == wanted;
    return right;
}

#if defined(__x86_64__)
#define WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDEST
#endif

typedef uint64_t words __attribute__((vector_size(64)));

/* Reads the tensor as fast as this processor can, with loads and the fewest operations that use their results. */
WIDEST void tensor_read(uint64_t bytes, uint64_t times)
{
    while (times-- > 0) {
        words a = {0}, b = {0}, c = {0}, d = {0};
        const words *from = (const void *)data;
        for (uint64_t i = 0; i + 4 <= bytes / 64; i += 4) {
            a |= from[i];
            b |= from[i + 1];
            c |= from[i + 2];
            d |= from[i + 3];
        }
        a |= b | c | d;
        sink = a[0] | a[1] | a[2] | a[3] | a[4] | a[5] | a[6] | a[7];
    }
}

void tensor_fnv(uint64_t bytes, uint64_t times)
{
    while (times-- > 0) {
        uint64_t hash = UINT64_C(0xCBF29CE484222325);
        for (uint64_t i = 0; i < bytes; i++)
            hash = (hash ^ ((const uint8_t *)data)[i]) * UINT64_C(0x100000001B3);
        sink = hash;
    }
}
