/* contended.c - independent workers on busy processors; one of them is slow in one brick, or pinned.
 *
 *   contended SERVICE WORKERS SEED SLOW_WORKER PER_MILLE PINNED_CPU
 *
 * Each worker answers requests that come at random times: four bricks that compute for about 1 to 4 ms each. Each
 * duration is drawn from a lognormal distribution with a width of 5 %. SLOW_WORKER computes longer by PER_MILLE in the
 * second brick. If PINNED_CPU is 0 or more, SLOW_WORKER computes as long as the others, but it may run on that
 * processor only.
 */
#include "brick_agent.h"
#include "crew.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#define TWO_PI 6.283185307179586

static const double WIDTH = 0.05, PAUSE_MS = 60;

static const struct {
    const char *name, *category;
    double thousands; /* Computes for thousands of rounds; a round takes one to three nanoseconds. */
} BRICKS[] = {{"attention", "Attention", 2000}, {"gemm", "FFN", 3000}, {"mlp", "FFN", 1500}, {"lm_head", "Other", 600}};

enum { MANY = sizeof BRICKS / sizeof *BRICKS };

static const char *service;
static uint32_t slow_worker;
static int pinned_cpu;
static double slowdown;
static uint64_t seed, state;
static volatile double sink;

static double uniform(void) /* Returns a random number in (0, 1), by splitmix64. */
{
    uint64_t z = state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return ((double)((z ^ z >> 31) >> 12) + 0.5) / 4503599627370496.0;
}

static void compute(double thousands)
{
    double normal = sqrt(-2 * log(uniform())) * cos(TWO_PI * uniform());
    double sum = sink; /* volatile, so that the compiler cannot compute the result */
    for (uint64_t n = (uint64_t)(1000 * thousands * exp(WIDTH * normal)); n > 0; n--)
        sum = sum * 0.999999 + 0.000001;
    sink = sum;
}

static void pause_ms(double ms)
{
    struct timespec t = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(fmod(ms, 1000) * 1e6)};
    nanosleep(&t, NULL);
}

static void requests(uint32_t worker)
{
    uint32_t forward = brick_name("forward", 7, NULL), bricks[MANY];
    for (int i = 0; i < MANY; i++) {
        size_t length = 0;
        while (BRICKS[i].name[length])
            length++;
        bricks[i] = brick_name(BRICKS[i].name, length, BRICKS[i].category);
    }
    while (!atomic_load(over)) {
        pause_ms(-log(uniform()) * PAUSE_MS);
        brick_begin(forward, NULL, NULL);
        for (int i = 0; i < MANY; i++) {
            double slower = worker == slow_worker && i == 1 && pinned_cpu < 0 ? 1 + slowdown : 1;
            brick_begin(bricks[i], NULL, NULL);
            compute(BRICKS[i].thousands * slower);
            brick_end(bricks[i], NULL, 1, 0);
        }
        brick_end(forward, NULL, 1, 0);
    }
}

static int prepare(uint32_t worker)
{
    char name[16];
    snprintf(name, sizeof name, "%u", worker);
    struct brick_config config = {.service = service, .worker = name};
    state = seed * 1000 + worker;
    if (worker == slow_worker && pinned_cpu >= 0) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET((unsigned)pinned_cpu, &one);
        sched_setaffinity(0, sizeof one, &one);
    }
    return brick_init(&config) == BRICK_ON;
}

int main(int count, char **arguments)
{
    if (count != 7)
        return 2;
    service = arguments[1];
    seed = strtoull(arguments[3], NULL, 10);
    slow_worker = (uint32_t)atoi(arguments[4]);
    slowdown = atof(arguments[5]) / 1000;
    pinned_cpu = atoi(arguments[6]);
    return crew((uint32_t)atoi(arguments[2]), prepare, requests);
}
