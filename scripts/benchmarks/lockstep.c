/* lockstep.c - workers that take each step together, one of them a little slow in one brick.
 *
 *   lockstep SERVICE WORKERS SEED SLOW_WORKER SLOW_BRICK PER_MILLE
 *
 * A step is four bricks and a barrier. A brick waits until a deadline, as a host waits for its device: so many workers
 * fit on few processors. How long is drawn anew for each: lognormal, 3 % wide, and one of a hundred is 20 % longer on
 * average. SLOW_WORKER's are longer by PER_MILLE in SLOW_BRICK. A device is not kept waiting by what else this machine
 * does, so where they may the workers go first. Prints how many workers have a segment; they begin at the first byte on
 * standard input and end with it, or with the process that forked them.
 */
#include "brick_agent.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECOND UINT64_C(1000000000)
#define ELEMENTS 4096
#define TWO_PI 6.283185307179586

static const double WIDTH = 0.03, SPIKES = 0.01, SPIKE = 0.2;

static const struct {
    const char *name, *category;
    double ms;
} BRICKS[] = {{"attention", "Attention", 10}, {"moe_gemm", "FFN", 14}, {"mlp", "FFN", 8}, {"lm_head", "Other", 6}};

enum { MANY = sizeof BRICKS / sizeof *BRICKS };

struct shared {
    pthread_barrier_t barrier;
    atomic_int over; /* set by one worker between two barriers, so that all see it at the same step */
    atomic_int ended;
};

static struct shared *shared;
static uint64_t state;

static double uniform(void) /* splitmix64, in (0, 1) */
{
    uint64_t z = state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return ((double)((z ^ z >> 31) >> 12) + 0.5) / 4503599627370496.0;
}

static double noise(void)
{
    double normal = sqrt(-2 * log(uniform())) * cos(TWO_PI * uniform());
    double spike = uniform() < SPIKES ? -log(uniform()) * SPIKE : 0;
    return exp(WIDTH * normal - WIDTH * WIDTH / 2) * (1 + spike);
}

static void work(double ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t until = (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec + (uint64_t)(ms * 1e6);
    t.tv_sec = (time_t)(until / SECOND);
    t.tv_nsec = (long)(until % SECOND);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) != 0) {
    }
}

static void steps(uint32_t worker, int slow_brick, double slowdown)
{
    uint32_t forward = brick_name("forward", 7, NULL), all_reduce = brick_name("all_reduce", 10, "Collective");
    uint32_t bricks[MANY];
    for (int i = 0; i < MANY; i++) {
        size_t length = 0;
        while (BRICKS[i].name[length])
            length++;
        bricks[i] = brick_name(BRICKS[i].name, length, BRICKS[i].category);
    }
    while (!atomic_load(&shared->over)) {
        brick_begin(forward, NULL, NULL);
        for (int i = 0; i < MANY; i++) {
            double ms = BRICKS[i].ms * noise() * (i == slow_brick ? 1 + slowdown : 1);
            brick_begin(bricks[i], NULL, NULL);
            work(ms);
            brick_end(bricks[i], NULL, ELEMENTS, 0);
        }
        brick_begin(all_reduce, NULL, NULL);
        pthread_barrier_wait(&shared->barrier);
        brick_end(all_reduce, NULL, ELEMENTS, 0);
        brick_end(forward, NULL, 0, 0);
        if (worker == 0)
            atomic_store(&shared->over, atomic_load(&shared->ended));
        pthread_barrier_wait(&shared->barrier);
    }
}

int main(int count, char **arguments)
{
    int ready[2], go[2];
    char byte;
    uint32_t workers = count == 7 ? (uint32_t)atoi(arguments[2]) : 0, prepared = 0;
    if (workers == 0 || pipe(ready) != 0 || pipe(go) != 0)
        return 2;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t across;
    if (shared == MAP_FAILED || pthread_barrierattr_init(&across) != 0 ||
        pthread_barrierattr_setpshared(&across, PTHREAD_PROCESS_SHARED) != 0 ||
        pthread_barrier_init(&shared->barrier, &across, workers) != 0)
        return 1;
    for (uint32_t worker = 0; worker < workers; worker++) {
        pid_t child = fork();
        if (child < 0)
            return 1;
        if (child > 0)
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a barrier that nobody else reaches is no place to end */
        prctl(PR_SET_TIMERSLACK, 1UL);
        sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 1});
        close(ready[0]);
        close(go[1]);
        char name[16];
        snprintf(name, sizeof name, "%u", worker);
        struct brick_config config = {.service = arguments[1], .worker = name};
        if (brick_init(&config) != BRICK_ON || write(ready[1], ".", 1) != 1)
            return 1;
        close(ready[1]);
        state = strtoull(arguments[3], NULL, 10) * workers + worker;
        if (read(go[0], &byte, 1) == 0) { /* nobody is left who could write */
            int slow = worker == (uint32_t)atoi(arguments[4]) ? atoi(arguments[5]) : -1;
            steps(worker, slow, atof(arguments[6]) / 1000);
        }
        return 0;
    }
    close(ready[1]);
    close(go[0]);
    while (read(ready[0], &byte, 1) == 1)
        prepared++;
    printf("%u\n", prepared);
    fflush(stdout);
    int more = read(STDIN_FILENO, &byte, 1) == 1;
    atomic_store(&shared->over, !more);
    close(go[1]);
    while (more)
        more = read(STDIN_FILENO, &byte, 1) == 1;
    atomic_store(&shared->ended, 1);
    while (wait(NULL) > 0) {
    }
    return 0;
}
