/* clock.h - the clock that times spans. */
#ifndef BRICK_CLOCK_H
#define BRICK_CLOCK_H

#include "common.h"

#include <time.h>

static inline uint64_t brick_clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t brick_ticks(uint32_t clock)
{
#if defined(__x86_64__)
    if (BRICK_LIKELY(clock == BRICK_CLOCK_TSC))
        /* Not <x86intrin.h>: that header has 34,000 lines and takes half of the compile time. */
        return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    if (BRICK_LIKELY(clock == BRICK_CLOCK_CNTVCT)) {
        uint64_t v;
        __asm__ volatile("mrs %0, cntvct_el0" : "=r"(v));
        return v;
    }
#endif
    (void)clock;
    return brick_clock_ns(CLOCK_MONOTONIC_RAW);
}

/* Returns the best clock that `wish` allows. `clocksource`: the file that names the kernel's clock source. */
BRICK_HIDDEN uint32_t brick_clock_choose(const char *wish, const char *clocksource);
/* Reads ticks and CLOCK_MONOTONIC_RAW at the same time. */
BRICK_HIDDEN void brick_clock_pair(uint32_t clock, uint64_t *ticks, uint64_t *ns);
/* Returns the length of a segment's tick in ns: compares the segment's first pair of ticks and time with a new pair. 0
 * if unknown. */
BRICK_HIDDEN double brick_clock_tick_ns(const struct brick_header *h);

#endif
