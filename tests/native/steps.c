/* steps POINT PASS: ten times, records two spans with their details; is killed when it reaches POINT for the PASS-th
 * time. */
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
