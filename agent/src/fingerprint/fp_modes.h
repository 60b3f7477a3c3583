/* fingerprint/fp_modes.h - sets the floating-point modes for fingerprints, independent of the host's modes. */
#ifndef BRICK_MODES_H
#define BRICK_MODES_H

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/* Sets rounding to nearest, keeps subnormals, disables traps. Returns the host's modes and flags for
 * brick_modes_restore. Put the arithmetic between these two calls into a function that is not inlined: a compiler may
 * move other arithmetic across them. */
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
