/* steps POINT PASS: ten rounds of two spans with their details, killed at the PASS-th time at POINT. */
#include "brick_internal.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *fatal;
static long passes;

static void die_here(const char *name)
{
    if (strcmp(name, fatal) == 0 && --passes == 0)
        raise(SIGKILL);
}

int main(int count, char **arguments)
{
    const struct brick_control control = {.flags = BRICK_CONTROL_SPANS};
    if (count != 3)
        return 2;
    fatal = arguments[1];
    passes = atol(arguments[2]);
    brick_test_point = die_here;
    brick_init(NULL);
    if (pwrite(brick_segment_fd(), &control, sizeof control, BRICK_PAGE) != (ssize_t)sizeof control)
        return 3;
    uint32_t outer = brick_name("outer", 5, NULL), inner = brick_name("inner", 5, NULL);
    for (int round = 0; round < 10; round++) {
        brick_begin(outer, NULL, NULL);
        brick_begin(inner, NULL, NULL);
        brick_end(inner, NULL, 3, 5);
        brick_end(outer, NULL, 0, 0);
    }
    return 0;
}
