/* writer/clock.c - chooses a clock that this process can trust, and measures the length of its ticks. */
#include "clock.h"
#include "memory_limit.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* The kernel stops using the TSC as its clock source when the counters of two cores disagree. So the TSC is used only
 * if the kernel uses it, and if the processor reports that the counter has a constant rate and does not stop. */
uint32_t brick_clock_choose(const char *wish, const char *clocksource)
{
    char text[32];
    if (strcmp(wish, "monotonic") == 0 || brick_read_file(clocksource, text, sizeof text) < 0)
        return BRICK_CLOCK_MONOTONIC;
#if defined(__x86_64__)
    uint32_t a, b, c, d;
    if (strcmp(text, "tsc\n") == 0 && __get_cpuid(0x80000007u, &a, &b, &c, &d) && (d & 1u << 8) != 0)
        return BRICK_CLOCK_TSC;
#elif defined(__aarch64__)
    if (strcmp(text, "arch_sys_counter\n") == 0)
        return BRICK_CLOCK_CNTVCT;
#endif
    return BRICK_CLOCK_MONOTONIC;
}

void brick_clock_pair(uint32_t clock, uint64_t *ticks, uint64_t *ns)
{
    /* Read a few pairs, and take the one whose readings were closest together. */
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 5; i++) {
        uint64_t before = brick_ticks(clock);
        uint64_t now = brick_clock_ns(CLOCK_MONOTONIC_RAW);
        uint64_t after = brick_ticks(clock);
        if (after - before < least) {
            least = after - before;
            *ticks = before + least / 2;
            *ns = now;
        }
    }
    if (clock == BRICK_CLOCK_MONOTONIC)
        *ticks = *ns;
}

#define LONG_NS INT64_C(1000000000) /* long enough, because a pair of readings is exact to about 50 ns */

/* The length is the age of the segment in ns, divided by its age in ticks. Once the segment is old enough, the length
 * stays fixed, so that a reader gets the same time each time it converts the ticks of a span. If the counter has gone
 * back, for example after a suspend, the length is unknown. */
double brick_clock_tick_ns(const struct brick_header *h)
{
    static double known;
    uint64_t ticks, ns;
    if (h->clock == BRICK_CLOCK_MONOTONIC)
        return 1;
    const double before = brick_load_relaxed_f64(&known);
    if (before > 0)
        return before;
    brick_clock_pair(h->clock, &ticks, &ns);
    const int64_t past_ns = (int64_t)(ns - h->anchor_ns);
    const double tick_ns = (double)past_ns / (double)(int64_t)(ticks - h->anchor_ticks);
    if (!(tick_ns > 0.05 && tick_ns < 50)) /* outside of 20 MHz to 20 GHz */
        return 0;
    if (past_ns > LONG_NS)
        brick_store_relaxed_f64(&known, tick_ns);
    return tick_ns;
}
