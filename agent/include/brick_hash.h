/* brick_hash.h - splitmix64, which mixes numbers (brick_fingerprint.h defines it), and FNV-1a of 64 bits for texts. */
#ifndef BRICK_HASH_H
#define BRICK_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Spreads a difference in a few bits over all bits. Invertible. */
static inline uint64_t brick_mixed(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static inline uint64_t brick_splitmix64(uint64_t x) { return brick_mixed(x + UINT64_C(0x9E3779B97F4A7C15)); }

/* The inverse of brick_splitmix64: each factor here is the inverse, modulo 2^64, of a factor of brick_splitmix64. */
static inline uint64_t brick_unsplitmix64(uint64_t z)
{
    z = (z ^ z >> 31 ^ z >> 62) * UINT64_C(0x319642B2D24D8EC3);
    z = (z ^ z >> 27 ^ z >> 54) * UINT64_C(0x96DE1B173F119089);
    return (z ^ z >> 30 ^ z >> 60) - UINT64_C(0x9E3779B97F4A7C15);
}

static inline uint64_t brick_fnv1a(const void *bytes, size_t length)
{
    uint64_t hash = UINT64_C(0xCBF29CE484222325);
    for (const uint8_t *byte = (const uint8_t *)bytes; length > 0; length--)
        hash = (hash ^ *byte++) * UINT64_C(0x100000001B3);
    return hash;
}

#endif
