/* brick_siphash.h - SipHash-2-4 of whole 64-bit words: the result reveals neither the key nor the words.
 *
 * SipHash is by Aumasson and Bernstein (2012); this code is for lengths that are multiples of eight. The words are
 * hashed as their little-endian bytes; the first word of the key is the first eight of its 16 bytes.
 */
#ifndef BRICK_SIPHASH_H
#define BRICK_SIPHASH_H

#include <stdint.h>

#define BRICK_ROTATED(x, bits) ((x) << (bits) | (x) >> (64 - (bits)))

static inline void brick_siphash_rounds(uint64_t v[4], int count)
{
    while (count-- > 0) {
        v[0] += v[1];
        v[1] = BRICK_ROTATED(v[1], 13) ^ v[0];
        v[0] = BRICK_ROTATED(v[0], 32);
        v[2] += v[3];
        v[3] = BRICK_ROTATED(v[3], 16) ^ v[2];
        v[0] += v[3];
        v[3] = BRICK_ROTATED(v[3], 21) ^ v[0];
        v[2] += v[1];
        v[1] = BRICK_ROTATED(v[1], 17) ^ v[2];
        v[2] = BRICK_ROTATED(v[2], 32);
    }
}

/* Hashes at most 31 words; `words` may be NULL if `count` is 0. */
static inline uint64_t brick_siphash(const uint64_t key[2], const uint64_t *words, uint32_t count)
{
    uint64_t v[4] = {key[0] ^ UINT64_C(0x736f6d6570736575), key[1] ^ UINT64_C(0x646f72616e646f6d),
                     key[0] ^ UINT64_C(0x6c7967656e657261), key[1] ^ UINT64_C(0x7465646279746573)};
    for (uint32_t n = 0; n <= count; n++) {
        const uint64_t word = n < count ? words[n] : (uint64_t)count * 8 << 56; /* the last word has the number of bytes */
        v[3] ^= word;
        brick_siphash_rounds(v, 2);
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    brick_siphash_rounds(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

#undef BRICK_ROTATED

#endif
