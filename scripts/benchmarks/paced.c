/* paced.c - cheap workers that record at a given rate. They record a burst every few milliseconds, and sleep in
 * between.
 *
 *   paced WORKERS RATE BRICKS spans|deferred
 *
 * RATE is the number of records per second of each worker; a deferred start and its finalize count as two records. A
 * worker is ready (see crew.h) when it has a segment.
 */
#include "brick_agent.h"
#include "crew.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SECOND UINT64_C(1000000000)
#define PERIOD_NS (SECOND / 200)

/* The largest number of bursts that a delayed worker makes at once to catch up. More could make a ring overflow, which
 * would not be the consumer's fault. */
#define MADE_GOOD 4u

enum { BRICKS_MAX = 1024 };

static uint32_t workers, bricks[BRICKS_MAX], many;
static uint64_t rate, (*record)(uint64_t);

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

static void sleep_until(uint64_t ns)
{
    struct timespec t = {(time_t)(ns / SECOND), (long)(ns % SECOND)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) != 0) {
    }
}

static uint64_t span(uint64_t number)
{
    brick_begin(bricks[number % many], NULL, NULL);
    brick_end(bricks[number % many], NULL, number, 64);
    return 1;
}

static uint64_t deferred(uint64_t number)
{
    brick_defer(bricks[number % many], NULL, 0, NULL, number, 64, NULL);
    brick_finalize(NULL);
    return 2;
}

static void work(uint32_t worker)
{
    uint64_t began = now() + PERIOD_NS * worker / workers, done = 0, number = 0;
    for (uint64_t turn = 1; !atomic_load(over); turn++) {
        sleep_until(began + turn * PERIOD_NS);
        uint64_t due = (now() - began) * rate / SECOND, burst = rate * PERIOD_NS / SECOND + 1;
        /* `done` may exceed `due` by one, because a start and its finalize are recorded together */
        if (due > done + MADE_GOOD * burst)
            done = due - MADE_GOOD * burst;
        while (done < due)
            done += record(number++);
    }
}

/* Returns whether the segment is open and has all names. */
static int prepare(uint32_t worker)
{
    char name[16];
    snprintf(name, sizeof name, "%u", worker);
    struct brick_config config = {.service = "api", .worker = name};
    if (brick_init(&config) != BRICK_ON)
        return 0;
    for (uint32_t i = 0; i < many; i++) {
        int length = snprintf(name, sizeof name, "brick %u", i);
        bricks[i] = brick_name(name, (size_t)length, NULL);
    }
    return 1;
}

int main(int count, char **arguments)
{
    if (count != 5)
        return 2;
    workers = (uint32_t)atoi(arguments[1]);
    rate = strtoull(arguments[2], NULL, 10);
    many = (uint32_t)atoi(arguments[3]);
    record = strcmp(arguments[4], "spans") == 0 ? span : deferred;
    if (workers == 0 || many == 0 || many > BRICKS_MAX)
        return 2;
    return crew(workers, prepare, work);
}
