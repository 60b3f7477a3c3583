/* checked POINT PASS: records twenty checksums, and is killed when it reaches POINT for the PASS-th time.
 *
 * The checksums have no input and two inputs, alternately.
 */
#include "dies.h"

int main(int count, char **arguments)
{
    static const float numbers[] = {1, 2, 3};
    static const int64_t shape[] = {3};
    const struct brick_tensor tensor = {
        .data = numbers, .dtype = BRICK_FLOAT32, .dims = 1, .shape = shape, .valid = BRICK_ALL_ROWS};
    const struct brick_config config = {.event_slots = 128};
    struct brick_taken taken[2];
    if (!dies(count, arguments))
        return 2;
    brick_init(&config);
    uint32_t kernel = brick_name("kernel", 6, NULL);
    for (int n = 0; n < 20; n++) {
        for (int i = 0; i < 2; i++)
            if (brick_take(kernel, NULL, NULL, &tensor, &taken[i]) != NULL)
                return 3;
        brick_checksum(kernel, NULL, NULL, &taken[0], taken, n % 2 ? 2 : 0);
    }
    return 0;
}
