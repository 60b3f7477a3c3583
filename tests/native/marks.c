/* marks POINT PASS: ten times, records a span that launches a kernel of one shape; is killed when it reaches POINT for
 * the PASS-th time. */
#include "dies.h"

#include "brick_graph.h"

int main(int count, char **arguments)
{
    const struct brick_launch how = {.grid = {16, 1, 1}, .block = {256, 1, 1}, .shared_bytes = 1024};
    if (!dies(count, arguments))
        return 2;
    brick_init(NULL);
    uint32_t norm = brick_name("norm", 4, NULL), kernel = brick_name("kernel", 6, "kernel");
    for (int round = 0; round < 10; round++) {
        brick_begin(norm, NULL, NULL);
        brick_launched(kernel, NULL, &how, NULL, NULL);
        brick_end(norm, NULL, 0, 0);
    }
    return 0;
}
