/* writer.c - the loop of an engine in C around the agent's writer. */
#include "brick_agent.h"

#define EXPORTED __attribute__((visibility("default")))

static uint32_t brick;

/* Returns the descriptor of the segment, or -1. */
EXPORTED int open_segment(const char *prefix)
{
    struct brick_config config = {.service = "bench-c", .prefix = prefix};
    if (brick_init(&config) != BRICK_ON)
        return -1;
    brick = brick_name("b", 1, NULL);
    return brick_segment_fd();
}

EXPORTED void batch(uint64_t times)
{
    for (uint64_t i = 0; i < times; i++) {
        brick_begin(brick, NULL, NULL);
        brick_end(brick, NULL, 0, 0);
    }
}
