/* engine.c - a small inference engine that shows where its time goes.
 *
 *   $ mkdir -p objects && cd objects && gcc -O2 -pthread -I../../include -c ../../src/writer/[a-z]*.c ../../src/fingerprint/[a-z]*.c
 *   $ ar rcs libbrick.a objects/[a-z]*.o
 *   $ gcc -std=c11 -O2 -Wall -Wextra -pthread -I../include engine.c libbrick.a -lm -o engine
 *   $ ./engine 4 200
 *
 * Four threads serve 200 requests; a million requests leave time to run `brickd status`.
 *
 * What to copy: create names once, after brick_init and before the threads start. A function ends its spans even after
 * an error. A request is one step, and the spans inside the request have its step number. A layer is a scope. A time
 * from another clock is recorded unchanged. The end of a device's work is recorded after the host has waited for it.
 */
#define _POSIX_C_SOURCE 200809L

#include "brick_agent.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LAYERS = 4, ROWS = 8, WIDTH = 64, THREADS_MAX = 64 };
typedef float Batch[ROWS][WIDTH];

static float weights[LAYERS][WIDTH][WIDTH];
static unsigned long long requests;
static atomic_ullong next_request, failed;
static uint32_t request_brick, upload_brick, copy_brick, norm_brick, gemm_brick;

static int norm(Batch x)
{
    int result = 0;
    brick_begin(norm_brick, NULL, NULL);
    for (int row = 0; row < ROWS && result == 0; row++) {
        float squares = 1e-6f;
        for (int i = 0; i < WIDTH; i++)
            squares += x[row][i] * x[row][i];
        if (!isfinite(squares))
            result = -1;
        for (int i = 0; i < WIDTH; i++)
            x[row][i] /= sqrtf(squares / WIDTH);
    }
    brick_end(norm_brick, NULL, ROWS * WIDTH, sizeof(Batch));
    return result;
}

static void gemm(Batch y, Batch x, float w[WIDTH][WIDTH])
{
    brick_begin(gemm_brick, NULL, NULL);
    memset(y, 0, sizeof(Batch));
    for (int row = 0; row < ROWS; row++)
        for (int to = 0; to < WIDTH; to++)
            for (int from = 0; from < WIDTH; from++)
                y[row][to] += x[row][from] * w[to][from];
    brick_end(gemm_brick, NULL, ROWS * WIDTH, 2 * sizeof(Batch) + sizeof weights[0]);
}

static int forward(Batch x)
{
    int result = 0;
    for (uint32_t layer = 0; layer < LAYERS && result == 0; layer++) {
        Batch y;
        brick_layer_begin(layer, NULL);
        result = norm(x);
        if (result == 0) {
            gemm(y, x, weights[layer]);
            memcpy(x, y, sizeof y);
        }
        brick_layer_end(layer, NULL);
    }
    return result;
}

/* Imitates a library with its own clock: returns the duration in ns. One request in fifty arrives damaged. */
static uint64_t copy_in(Batch x, uint64_t request)
{
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < ROWS * WIDTH; i++)
        x[i / WIDTH][i % WIDTH] = (float)((request + (uint64_t)i) % 17) - 8;
    if (request % 50 == 0)
        x[ROWS - 1][0] = NAN;
    clock_gettime(CLOCK_MONOTONIC, &to);
    return (uint64_t)((to.tv_sec - from.tv_sec) * 1000000000 + to.tv_nsec - from.tv_nsec);
}

static int serve(uint64_t request)
{
    Batch x;
    brick_begin(request_brick, NULL, &request);
    uint64_t elapsed_ns = copy_in(x, request);
    brick_record(copy_brick, NULL, elapsed_ns, ROWS * WIDTH, sizeof x);
    int result = forward(x);
    brick_step_end(request_brick, NULL, ROWS, ROWS);
    return result;
}

/* Sends the weights to a device on this thread's stream. The host does other work until it waits for that stream. */
static void upload(uint64_t stream)
{
    uint64_t id;
    brick_defer(upload_brick, NULL, stream, NULL, LAYERS * WIDTH * WIDTH, sizeof weights, &id);
    /* cudaMemcpyAsync(..., stream); cudaEventRecord(...); ...; cudaStreamSynchronize(stream); */
    brick_measured(id, 85000); /* the result of cudaEventElapsedTime; without it, brickd shows a bound */
    brick_finalize(&stream);
}

static void *run(void *unused)
{
    upload((uint64_t)(uintptr_t)&unused); /* the address stands for a stream's handle: each thread has its own stream */
    for (uint64_t request; (request = atomic_fetch_add(&next_request, 1)) < requests;)
        if (serve(request) != 0)
            atomic_fetch_add(&failed, 1);
    return unused;
}

static uint32_t named(const char *name, const char *category) { return brick_name(name, strlen(name), category); }

int main(int count, char **arguments)
{
    pthread_t threads[THREADS_MAX];
    int many = count == 3 ? atoi(arguments[1]) : 0;
    if (many < 1 || many > THREADS_MAX) {
        fprintf(stderr, "usage: engine THREADS REQUESTS, with 1 to %d threads\n", THREADS_MAX);
        return 2;
    }
    requests = strtoull(arguments[2], NULL, 10);
    for (int i = 0; i < LAYERS * WIDTH * WIDTH; i++)
        weights[i / WIDTH / WIDTH][i / WIDTH % WIDTH][i % WIDTH] = (float)(i % 13 - 6) / WIDTH;

    brick_init(NULL); /* the service's name comes from the environment, else from the program's name */
    request_brick = named("request", "step");
    upload_brick = named("upload", "transfer");
    copy_brick = named("copy", "transfer");
    norm_brick = named("norm", "norm");
    gemm_brick = named("gemm", "ffn");

    for (int n = 0; n < many; n++)
        if (pthread_create(&threads[n], NULL, run, NULL) != 0)
            return 1;
    for (int n = 0; n < many; n++)
        pthread_join(threads[n], NULL);
    printf("%llu requests, %llu failed\n", requests, (unsigned long long)failed);
    return 0;
}
