/* nodes: makes each call for nodes of brick_graph.h, in a valid state and in every invalid state.
 *
 * Prints the outcome of each call, in order, then waits. */
#include "brick_graph.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int printed;

static void said(unsigned outcome) { printf("%s%u", printed++ ? ", " : "[", outcome); }

static uint32_t named(const char *text) { return brick_name(text, strlen(text), NULL); }

/* Two tasks of one thread, whose nodes overlap. */
static void tasks(uint32_t first, uint32_t second)
{
    static const char keys[2];
    said(brick_node_begin(first, &keys[0]));
    said(brick_node_begin(second, &keys[1]));
    said(brick_node_task(1, 1, &keys[0]));
    said(brick_node_end(first, &keys[0]));
    said(brick_node_task(2, 0, &keys[1]));
    said(brick_node_end(second, &keys[1]));
}

/* A child process begins without the open nodes of its parent. */
static int child_has_none(uint32_t open)
{
    int status = 1;
    const pid_t child = fork();
    if (child == 0) {
        brick_node(open, NULL, 0, NULL);
        const unsigned ended = brick_node_end(open, NULL);
        brick_shutdown();
        _exit(ended != BRICK_UNMATCHED);
    }
    return waitpid(child, &status, 0) == child && status == 0;
}

int main(void)
{
    const struct brick_config config = {.service = "nodes"};
    if (brick_init(&config) != BRICK_ON)
        return 2;
    const uint32_t norm = named("norm"), decode = named("decode"), file = named("server.c"), task = named("task");
    const struct brick_amounts did = {10, 20, 30};
    char turn;

    said(brick_node(norm, NULL, 5000, &did));
    said(brick_node_begin(decode, NULL));
    said(brick_node_defined(file, 42, NULL));
    said(brick_launched(norm, NULL, NULL, NULL, NULL));
    said(brick_node_begin(task, NULL));
    said(brick_node_defined(BRICK_UNNAMED, UINT32_MAX, NULL));
    said(brick_node_task(7, 3, NULL));
    said((unsigned)!child_has_none(task));
    said(brick_node_end(task, NULL));
    said(brick_node_end(decode, NULL));
    tasks(decode, task);

    /* Invalid calls: while nothing is open, while a span is open, an end without a begin, without a name, with amounts
     * that are too large. */
    said(brick_node_defined(file, 1, NULL));
    said(brick_node_task(1, 1, NULL));
    said(brick_begin(norm, NULL, NULL));
    said(brick_node_defined(file, 1, NULL));
    said(brick_node_task(1, 1, NULL));
    said(brick_node_end(norm, NULL));
    said(brick_end(norm, NULL, 0, 0));
    said(brick_node_end(decode, NULL));
    said(brick_node(BRICK_UNNAMED, NULL, 1, NULL));
    said(brick_node_begin(BRICK_UNNAMED, NULL));
    said(brick_node(norm, NULL, 0, NULL));
    said(brick_node_end(BRICK_UNNAMED, NULL));
    said(brick_node(task, NULL, UINT64_MAX, &(struct brick_amounts){UINT64_MAX, 0, -1}));
    printf("]\n");
    fflush(stdout);
    return read(0, &turn, 1) == 1 ? 0 : 4;
}
