/* ticks.c - computes the length of a tick in a segment that began this many nanoseconds ago, with `each` nanoseconds
 * per tick. */
#include "writer/clock.h"

#if defined(__aarch64__)
#define CLOCK BRICK_CLOCK_CNTVCT
#else
#define CLOCK BRICK_CLOCK_TSC
#endif

double tick_ns(uint64_t ago_ns, double each);
double tick_ns(uint64_t ago_ns, double each)
{
    struct brick_header h = {.clock = CLOCK};
    brick_clock_pair(CLOCK, &h.anchor_ticks, &h.anchor_ns);
    h.anchor_ns -= ago_ns;
    h.anchor_ticks -= (uint64_t)((double)ago_ns / each);
    return brick_clock_tick_ns(&h);
}
