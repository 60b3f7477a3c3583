/* Preloaded into a program. Counts how often the process reads the kernel's clock, which the agent uses if it cannot
 * use the TSC. */
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static uint64_t reads;

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *t)
{
    if (clock == CLOCK_MONOTONIC_RAW)
        __atomic_fetch_add(&reads, 1, __ATOMIC_RELAXED);
    return (int)syscall(SYS_clock_gettime, clock, t);
}

__attribute__((visibility("default"))) uint64_t clock_reads(void) { return __atomic_load_n(&reads, __ATOMIC_RELAXED); }
