/* paced.c - workers that record at a given rate for little: a burst every few milliseconds, asleep in between.
 *
 *   paced WORKERS RATE BRICKS spans|deferred
 *
 * RATE: records a second of each worker; deferred, a start and its finalize are two. Prints how many workers have a
 * segment; they begin at the first byte on standard input and end with it, or with the process that forked them.
 */
#include "brick_agent.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECOND UINT64_C(1000000000)
#define PERIOD_NS (SECOND / 200)

/* A worker that the machine kept waiting makes good for so many bursts and no more: a ring that overflows for that
 * would say nothing about its consumer. */
#define MADE_GOOD 4u

enum { BRICKS_MAX = 1024 };

static uint32_t bricks[BRICKS_MAX], many;
static atomic_int *over;

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

static void work(uint64_t (*record)(uint64_t), uint64_t rate, uint64_t phase)
{
    uint64_t began = now() + phase, done = 0, number = 0;
    for (uint64_t turn = 1; !atomic_load(over); turn++) {
        sleep_until(began + turn * PERIOD_NS);
        uint64_t due = (now() - began) * rate / SECOND, burst = rate * PERIOD_NS / SECOND + 1;
        if (due > done + MADE_GOOD * burst) /* a start and its finalize may be one ahead */
            done = due - MADE_GOOD * burst;
        while (done < due)
            done += record(number++);
    }
}

/* Whether there is a segment, with all names. */
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
    int ready[2], go[2];
    char byte;
    uint32_t workers = count == 5 ? (uint32_t)atoi(arguments[1]) : 0, prepared = 0;
    if (workers == 0 || pipe(ready) != 0 || pipe(go) != 0)
        return 2;
    uint64_t rate = strtoull(arguments[2], NULL, 10);
    many = (uint32_t)atoi(arguments[3]);
    if (many == 0 || many > BRICKS_MAX)
        return 2;
    uint64_t (*record)(uint64_t) = strcmp(arguments[4], "spans") == 0 ? span : deferred;
    over = mmap(NULL, sizeof *over, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (over == MAP_FAILED)
        return 1;
    for (uint32_t worker = 0; worker < workers; worker++) {
        pid_t child = fork();
        if (child < 0)
            return 1;
        if (child > 0)
            continue;
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        close(ready[0]);
        close(go[1]);
        if (!prepare(worker) || write(ready[1], ".", 1) != 1)
            return 1;
        close(ready[1]);
        if (read(go[0], &byte, 1) == 0) /* nobody is left who could write */
            work(record, rate, PERIOD_NS * worker / workers);
        return 0;
    }
    close(ready[1]);
    close(go[0]);
    while (read(ready[0], &byte, 1) == 1)
        prepared++;
    printf("%u\n", prepared);
    fflush(stdout);
    int more = read(STDIN_FILENO, &byte, 1) == 1;
    atomic_store(over, !more);
    close(go[1]);
    while (more)
        more = read(STDIN_FILENO, &byte, 1) == 1;
    atomic_store(over, 1);
    while (wait(NULL) > 0) {
    }
    return 0;
}
