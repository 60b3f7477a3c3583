/* fingerprint/fp_modes.h - the floating-point modes of fingerprints, whatever the host has set. */
#ifndef BRICK_MODES_H
#define BRICK_MODES_H

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/* Rounding to nearest, subnormals as they are, no trap. Returns the host's modes and flags for brick_modes_restore. The
 * arithmetic between the two must be in a call, which no compiler moves out. */
static inline unsigned brick_modes_usual(void)
{
#if defined(__x86_64__)
    const unsigned hosts = _mm_getcsr();
    _mm_setcsr(0x1F80);
    return hosts;
#else
    return 0;
#endif
}

static inline void brick_modes_restore(unsigned hosts)
{
#if defined(__x86_64__)
    _mm_setcsr(hosts);
#else
    (void)hosts;
#endif
}

#endif
