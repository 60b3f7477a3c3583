/* brick_clock.c - which clock this process may trust. */
#include "brick_internal.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* The kernel measures the time stamp counters of all cores against each other
 * and takes another clocksource when they disagree: we follow its judgement,
 * and ask the processor that the counter keeps its rate and does not stop. */
static uint32_t hardware_clock(const char *clocksource)
{
    char text[32];
    uint32_t a, b, c, d;
    if (brick_read_file(clocksource, text, sizeof text) < 0 || strcmp(text, "tsc\n") != 0)
        return BRICK_CLOCK_NONE;
    if (!__get_cpuid(0x80000007u, &a, &b, &c, &d) || (d & 1u << 8) == 0)
        return BRICK_CLOCK_NONE;
    return BRICK_CLOCK_TSC;
}
#elif defined(__aarch64__)
static uint32_t hardware_clock(const char *clocksource)
{
    char text[32];
    if (brick_read_file(clocksource, text, sizeof text) < 0 || strcmp(text, "arch_sys_counter\n") != 0)
        return BRICK_CLOCK_NONE;
    return BRICK_CLOCK_CNTVCT;
}
#else
static uint32_t hardware_clock(const char *clocksource)
{
    (void)clocksource;
    return BRICK_CLOCK_NONE;
}
#endif

uint32_t brick_clock_choose(const char *wish, const char *clocksource)
{
    uint32_t clock = BRICK_CLOCK_NONE;
    if (strcmp(wish, "monotonic") != 0)
        clock = hardware_clock(clocksource);
    return clock != BRICK_CLOCK_NONE ? clock : BRICK_CLOCK_MONOTONIC;
}
