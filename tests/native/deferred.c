/* deferred POINT PASS: does ten rounds of deferred work, and is killed when it reaches POINT for the PASS-th time.
 *
 * Each round has four events: two starts, a measurement and a finalize.
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
