/* forks intern ROUNDS: forks while two threads add names and record as fast as they can. forks vfork ROUNDS: calls
 * vfork and posix_spawn this number of times. Both print how many spans the process itself recorded, then wait. */
#include "writer/common.h"

#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static uint32_t known;
static uint64_t started, allowed, stop; /* accessed atomically */

static void record(uint32_t brick, int many)
{
    for (int n = 0; n < many; n++) {
        brick_begin(brick, NULL, NULL);
        brick_end(brick, NULL, 0, 0);
    }
}

/* While more names are allowed, records under a new name each time; otherwise, records under the last name. */
static void *intern(void *which)
{
    char text[32];
    uint64_t spans = 0;
    for (uint64_t number = 0; brick_load_acquire(&stop) == 0;) {
        int length = snprintf(text, sizeof text, "%s %llu", (const char *)which, (unsigned long long)number);
        record(brick_name(text, (size_t)length, "mine"), 20);
        spans += 20;
        if (number == 0)
            brick_fetch_add(&started, 1);
        number += number < brick_load_relaxed(&allowed);
    }
    return (void *)(uintptr_t)spans;
}

static int wait_for(pid_t child)
{
    int status;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int while_interning(int rounds, uint64_t *spans)
{
    pthread_t threads[2];
    void *theirs;
    int well = 1;
    pthread_create(&threads[0], NULL, intern, (void *)(uintptr_t)"left");
    pthread_create(&threads[1], NULL, intern, (void *)(uintptr_t)"right");
    /* each round allows 50 more names */
    while (brick_load_acquire(&started) < 2)
        ;
    for (int round = 0; round < rounds; round++) {
        brick_fetch_add(&allowed, 50);
        pid_t child = fork();
        if (child == 0) {
            record(known, 100);
            record(brick_name("fresh", 5, NULL), 10);
            _exit(brick_name("known", 5, NULL) != known);
        }
        well &= wait_for(child);
    }
    brick_store_release(&stop, 1);
    for (int n = 0; n < 2; n++) {
        pthread_join(threads[n], &theirs);
        *spans += (uint64_t)(uintptr_t)theirs;
    }
    return well;
}

static int vfork_once(void)
{
    pid_t child = vfork();
    if (child == 0)
        _exit(0);
    return wait_for(child);
}

static int without_a_copy(int rounds)
{
    char *const arguments[] = {(char *)(uintptr_t)"true", NULL};
    extern char **environ;
    int well = 1;
    for (int round = 0; round < rounds; round++) {
        pid_t child;
        well &= vfork_once() && posix_spawnp(&child, "true", NULL, NULL, arguments, environ) == 0 && wait_for(child);
    }
    return well;
}

int main(int count, char **arguments)
{
    const struct brick_config config = {.names = 8192, .paths = 8192};
    uint64_t spans = 10;
    char turn;
    if (count != 3)
        return 2;
    brick_init(&config);
    known = brick_name("known", 5, NULL);
    record(known, 10);
    int rounds = atoi(arguments[2]);
    if (!(strcmp(arguments[1], "intern") == 0 ? while_interning(rounds, &spans) : without_a_copy(rounds)))
        return 3;
    printf("%llu\n", (unsigned long long)spans);
    fflush(stdout);
    return read(0, &turn, 1) == 1 ? 0 : 4;
}
