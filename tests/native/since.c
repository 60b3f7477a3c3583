/* since.c - records deferred work that began at given times, with a stopped clock, so that a test can read the starts.
 *
 * Prints "paused" when all is recorded, and ends when its standard input closes.
 */
#include "writer/deferred.h"

#include <stdio.h>
#include <time.h>

#define NOW UINT64_C(5000000000)

int clock_gettime(clockid_t clock, struct timespec *t)
{
    (void)clock;
    t->tv_sec = (time_t)(NOW / 1000000000u);
    t->tv_nsec = (long)(NOW % 1000000000u);
    return 0;
}

int main(void)
{
    /* Some of these starts are one hour after now, before the clock began, or too far away for the field. */
    static const uint64_t starts[] = {NOW - 1000000, 1, NOW - 1, NOW, NOW + 1, NOW + UINT64_C(3600000000000),
                                      0, UINT64_MAX, UINT64_C(1) << 63, (UINT64_C(1) << 63) + NOW, INT64_MAX};
    const struct brick_config config = {.clock = "monotonic"};
    if (brick_init(&config) != BRICK_ON)
        return 1;
    const uint32_t brick = brick_name("kernel", 6, NULL);
    uint64_t id;
    for (size_t n = 0; n < sizeof starts / sizeof *starts; n++)
        if ((brick_defer_since(brick, NULL, &starts[n], 7, NULL, 1, 2, &id) & BRICK_REFUSED) != 0 || id == 0)
            return 1;
    if (brick_defer_since(brick, NULL, NULL, 7, NULL, 1, BRICK_AMOUNT_MAX + 1, NULL) != BRICK_DONE)
        return 1;
    printf("\"paused\"\n");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}
