/* deferred POINT PASS: ten rounds of deferred work, killed at the PASS-th time at POINT.
 *
 * Each round is four events: two starts, one measurement, a finalize.
 */
#include "dies.h"

int main(int count, char **arguments)
{
    if (!dies(count, arguments))
        return 2;
    brick_init(NULL);
    uint32_t kernel = brick_name("kernel", 6, NULL);
    for (uint64_t round = 0; round < 10; round++) {
        const uint64_t stream = round % 2;
        uint64_t id;
        brick_defer(kernel, NULL, stream, NULL, 3, 5, &id);
        brick_defer(kernel, NULL, stream, NULL, 3, 5, NULL);
        brick_measured(id, 17);
        brick_finalize(&stream);
    }
    return 0;
}
