/* first THREADS: threads start at the same time, and the first one opens the segment. Each thread gets the index of the
 * same name and begins spans with it, until it has begun 1,000 spans while the segment was open. Prints the number of
 * begun spans, and the number of threads whose index differed from that of the first thread. Then waits. */
#include "brick_agent.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_barrier_t together;
static uint32_t numbers[64];
static uint64_t tried; /* accessed atomically */

static void *run(void *which)
{
    uint32_t *number = (uint32_t *)which;
    pthread_barrier_wait(&together);
    uint64_t spans = 0;
    for (int left = 1000; left > 0; left -= brick_state() == BRICK_ON, spans++) {
        *number = brick_name("shared", 6, NULL);
        brick_begin(*number, NULL, NULL);
        brick_end(*number, NULL, 0, 0);
    }
    __atomic_fetch_add(&tried, spans, __ATOMIC_RELAXED);
    pthread_barrier_wait(&together);
    return NULL;
}

int main(int count, char **arguments)
{
    pthread_t threads[64];
    char turn;
    int many = count == 2 ? atoi(arguments[1]) : 0, strangers = 0;
    if (many < 1 || many > 64)
        return 2;
    pthread_barrier_init(&together, NULL, (unsigned)many);
    for (int n = 0; n < many; n++)
        pthread_create(&threads[n], NULL, run, &numbers[n]);
    for (int n = 0; n < many; n++)
        pthread_join(threads[n], NULL);
    for (int n = 1; n < many; n++)
        strangers += numbers[n] != numbers[0];
    printf("[%llu, %d]\n", (unsigned long long)tried, strangers);
    fflush(stdout);
    return read(0, &turn, 1) == 1 ? 0 : 4;
}
