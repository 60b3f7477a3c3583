/* brick_mix.h - the mixing function of brick_fingerprint.h, for all that is digested. */
#ifndef BRICK_MIX_H
#define BRICK_MIX_H

#include <stdint.h>

static inline uint64_t brick_splitmix64(uint64_t x)
{
    uint64_t z = x + UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

#endif
