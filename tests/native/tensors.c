/* tensors.c - fingerprints of tensors of all kinds, by every variant: tensors SEED SECONDS
 *
 * Each tensor is in a block of exactly the size that its view spans. All variants must give equal results. Sanitizers
 * check that no variant accesses memory outside of the block.
 */
#include "fingerprint/simd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t state;

static uint64_t random64(void) /* splitmix64 */
{
    uint64_t z = state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static const uint8_t sizes[BRICK_DTYPES] = {0, 1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 1, 1, 1, 1};
static int64_t shape[BRICK_DIMS_MAX], strides[BRICK_DIMS_MAX];

/* Draws a view; returns its number of bytes, and sets *first to the offset of its first element. */
static uint64_t some_view(struct brick_tensor *t, uint64_t *first)
{
    uint64_t room = 1 + random64() % (random64() % 8 == 0 ? 20000 : 300), span;
    t->dtype = 1 + random64() % (BRICK_DTYPES - 1);
    t->dims = random64() % 5;
    t->shape = shape;
    t->strides = strides;
    *first = 0;
    span = sizes[t->dtype];
    for (uint32_t d = t->dims; d-- > 0;) {
        shape[d] = (int64_t)(random64() % 16 == 0 ? random64() % 2 : 1 + random64() % (room < 40 ? room : room / 2));
        room = room / (uint64_t)(shape[d] + 1) + 1;
        /* a stride of 0 repeats the same elements */
        uint64_t step = random64() % 8 == 0 ? 0 : span + random64() % 3 * random64() % 20;
        uint64_t reach = shape[d] > 0 ? (uint64_t)(shape[d] - 1) * step : 0;
        bool backwards = random64() % 4 == 0;
        strides[d] = backwards ? -(int64_t)step : (int64_t)step;
        *first += backwards ? reach : 0;
        span += reach;
    }
    t->valid = t->dims > 0 && random64() % 3 == 0 ? random64() % (uint64_t)(shape[0] + 1) : BRICK_ALL_ROWS;
    return span;
}

static void fill(uint8_t *block, uint64_t bytes)
{
    bool quiet = random64() % 2 == 0;
    for (uint64_t i = 0; i < bytes; i++)
        block[i] = quiet ? 0x3C : (uint8_t)random64();
}

static bool near(double a, double b, double scale) { return a == b || __builtin_fabs(a - b) <= 1e-6 * scale; }

static const char *differs(const struct brick_fingerprint *a, const struct brick_fingerprint *b)
{
    if (a->checksum != b->checksum || a->fnv1a != b->fnv1a || a->elements != b->elements || a->bytes != b->bytes)
        return "the checksums";
    if (a->nan != b->nan || a->pos_inf != b->pos_inf || a->neg_inf != b->neg_inf || a->min != b->min || a->max != b->max)
        return "the counts or bounds";
    for (int p = 0; p < 16; p++)
        if (!near(a->sketch[p], b->sketch[p], a->l2) && a->l2 < 1e38)
            return "the sketches";
    return near(a->l2, b->l2, a->l2) ? NULL : "the norms";
}

/* Computes the fingerprint in one call, or in pieces. */
static const char *by(const struct brick_kernel *kernel, const struct brick_tensor *t,
                      struct brick_fingerprint_key key, struct brick_fingerprint *found)
{
    struct brick_pieces pieces;
    if (random64() % 2 == 0)
        return brick_fingerprint_with(kernel, t, key, found);
    const char *problem = brick_pieces_begin_with(kernel, &pieces, t, key);
    if (problem != NULL)
        return problem;
    while (brick_pieces_add(&pieces, t, random64() % 10000) == BRICK_PIECES_MORE)
        continue;
    brick_pieces_end(&pieces, found);
    return NULL;
}

int main(int count, char **arguments)
{
    static const char *const names[] = {"sse2", "avx2", "avx512"};
    if (count != 3)
        return 2;
    state = strtoull(arguments[1], NULL, 10);
    const time_t end = time(NULL) + atol(arguments[2]);
    uint64_t tensors = 0;
    for (; time(NULL) < end; tensors++) {
        struct brick_tensor t;
        struct brick_fingerprint wanted, found;
        uint64_t first, bytes = some_view(&t, &first);
        uint8_t *block = malloc(bytes);
        if (block == NULL)
            return 2;
        fill(block, bytes);
        t.data = block + first;
        const struct brick_fingerprint_key key = {{random64(), random64()}};
        const char *problem = by(brick_kernel_named("generic"), &t, key, &wanted);
        for (int n = 0; n < 3 && problem == NULL; n++) {
            const struct brick_kernel *kernel = brick_kernel_named(names[n]);
            if (kernel == NULL || (problem = by(kernel, &t, key, &found)) != NULL)
                continue;
            problem = differs(&wanted, &found);
        }
        free(block);
        if (problem != NULL) {
            fprintf(stderr, "tensors: %s of dtype %u with %u dimensions\n", problem, t.dtype, t.dims);
            return 1;
        }
    }
    printf("%llu tensors\n", (unsigned long long)tensors);
    return 0;
}
