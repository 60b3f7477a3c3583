/* lockstep.c - workers that take each step together, one of them slightly slow in one brick.
 *
 *   lockstep SERVICE WORKERS SEED SLOW_WORKER SLOW_BRICK PER_MILLE
 *
 * A step is four bricks and a barrier. A brick waits until a deadline, as a host waits for its device, so many workers
 * fit on few processors. Each duration is drawn from a lognormal distribution with a width of 3 %; one in a hundred is
 * 20 % longer on average. In the brick SLOW_BRICK, SLOW_WORKER takes PER_MILLE thousandths longer. A real device would
 * not be delayed by other work on this machine. Therefore the workers get a high priority, if this is allowed. A worker
 * is ready (see crew.h) when it has a segment.
 */
#include "brick_agent.h"
#include "crew.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

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
    int last; /* One worker sets this between two barriers, so all workers see it at the same step. */
};

static struct shared *shared;
static const char *service;
static uint32_t workers, slow_worker;
static int slow_brick;
static double slowdown;
static uint64_t seed, state;

static double uniform(void) /* Returns a random number in (0, 1), by splitmix64. */
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

/* Returns whether all workers take another step. */
static int another(uint32_t worker)
{
    if (worker == 0)
        shared->last = atomic_load(over);
    pthread_barrier_wait(&shared->barrier);
    return !shared->last;
}

static void steps(uint32_t worker)
{
    uint32_t forward = brick_name("forward", 7, NULL), all_reduce = brick_name("all_reduce", 10, "Collective");
    uint32_t bricks[MANY];
    for (int i = 0; i < MANY; i++) {
        size_t length = 0;
        while (BRICKS[i].name[length])
            length++;
        bricks[i] = brick_name(BRICKS[i].name, length, BRICKS[i].category);
    }
    while (another(worker)) {
        brick_begin(forward, NULL, NULL);
        for (int i = 0; i < MANY; i++) {
            double ms = BRICKS[i].ms * noise() * (worker == slow_worker && i == slow_brick ? 1 + slowdown : 1);
            brick_begin(bricks[i], NULL, NULL);
            work(ms);
            brick_end(bricks[i], NULL, ELEMENTS, 0);
        }
        brick_begin(all_reduce, NULL, NULL);
        pthread_barrier_wait(&shared->barrier);
        brick_end(all_reduce, NULL, ELEMENTS, 0);
        brick_end(forward, NULL, 0, 0);
    }
}

static int prepare(uint32_t worker)
{
    prctl(PR_SET_TIMERSLACK, 1UL);
    sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 1});
    char name[16];
    snprintf(name, sizeof name, "%u", worker);
    struct brick_config config = {.service = service, .worker = name};
    state = seed * workers + worker;
    return brick_init(&config) == BRICK_ON;
}

int main(int count, char **arguments)
{
    if (count != 7)
        return 2;
    service = arguments[1];
    workers = (uint32_t)atoi(arguments[2]);
    seed = strtoull(arguments[3], NULL, 10);
    slow_worker = (uint32_t)atoi(arguments[4]);
    slow_brick = atoi(arguments[5]);
    slowdown = atof(arguments[6]) / 1000;
    if (workers == 0)
        return 2;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t across;
    if (shared == MAP_FAILED || pthread_barrierattr_init(&across) != 0 ||
        pthread_barrierattr_setpshared(&across, PTHREAD_PROCESS_SHARED) != 0 ||
        pthread_barrier_init(&shared->barrier, &across, workers) != 0)
        return 1;
    return crew(workers, prepare, steps);
}
