/* steps POINT PASS: ten rounds of two spans with their details, killed at the PASS-th time at POINT. */
#include "dies.h"

#include <unistd.h>

int main(int count, char **arguments)
{
    const struct brick_control control = {.flags = BRICK_CONTROL_SPANS};
    if (!dies(count, arguments))
        return 2;
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
