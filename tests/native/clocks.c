/* clocks FILE: records a span of 1 ms; FILE contains the name of the kernel's clocksource. clocks back: records a span
 * during which the clock goes back by 1 s, then a span of 100 ns. The program replaces the C library's clock_gettime
 * with its own. Both wait at the end. */
#include "writer/clock.h"

#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static time_t behind;
static long passed;
static int faked;

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (faked) {
        now->tv_sec = 1000 - behind;
        now->tv_nsec = passed;
    }
    return result;
}

int main(int count, char **arguments)
{
    char turn;
    struct brick_config config = {.clocksource = arguments[1]};
    if (count != 2)
        return 2;
    int back = strcmp(arguments[1], "back") == 0;
    if (back)
        config = (struct brick_config){.clock = "monotonic"};
    brick_init(&config);
    uint32_t b = brick_name("b", 1, NULL);
    faked = back;
    brick_begin(b, NULL, NULL);
    if (back)
        behind = 1;
    else
        for (uint64_t t = brick_clock_ns(CLOCK_MONOTONIC); brick_clock_ns(CLOCK_MONOTONIC) - t < 1000000;)
            ;
    brick_end(b, NULL, 0, 0);
    if (back) {
        brick_begin(b, NULL, NULL);
        passed = 100;
        brick_end(b, NULL, 0, 0);
    }
    faked = 0;
    puts("0");
    fflush(stdout);
    return read(0, &turn, 1) == 1 ? 0 : 4;
}
