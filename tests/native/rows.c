/* rows POINT PASS: writes records of one to four rows, again and again; is killed when it reaches POINT for the PASS-th
 * time. */
#include "dies.h"

int main(int count, char **arguments)
{
    static const float numbers[4][3] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}, {10, 11, 12}};
    const struct brick_config config = {.event_slots = 256};
    struct brick_rows rows;
    if (!dies(count, arguments))
        return 2;
    brick_init(&config);
    uint32_t kernel = brick_name("kernel", 6, NULL);
    for (int n = 0; n < 8; n++) {
        const int64_t shape[] = {n % 4 + 1, 3};
        const struct brick_tensor tensor = {
            .data = numbers, .dtype = BRICK_FLOAT32, .dims = 2, .shape = shape, .valid = BRICK_ALL_ROWS};
        brick_rows_choose(NULL, &tensor, &rows);
        brick_rows_record(kernel, NULL, NULL, &tensor, &rows);
    }
    return 0;
}
