/* mix.h - spreads what differs in few bits over all of them. */
#ifndef BRICKD_MIX_H
#define BRICKD_MIX_H

#include <stdint.h>

static inline uint64_t brick_mixed(uint64_t z) /* of splitmix64: it has an inverse */
{
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

#endif
