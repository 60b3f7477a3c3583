/* epochs: shows in which epochs prompts are sampled: epochs RATE EVERY MOST FIRST... < prompts (one per line).
 *
 * For each FIRST, each prompt is sent in every EVERY-th epoch from that epoch on, at most MOST times. The step of a
 * request is the number that an engine derives from the prompt's text. Prints a line for each FIRST and prompt, with
 * the requests that were sampled. Each request is made twice: inside an open step, and with the step as an argument.
 */
#include "writer/lifecycle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PROMPTS 256

static void epoch_is(uint32_t epoch)
{
    const uint64_t word = (uint64_t)((uint32_t)time(NULL) + BRICK_EPOCH_HOLDS) << 32 | epoch;
    const uint64_t at = brick_agent.segment->layout.control + offsetof(struct brick_control, reserved);
    if (pwrite(brick_segment_fd(), &word, sizeof word, (off_t)(at + 8 * BRICK_CONTROL_EPOCH)) != (ssize_t)sizeof word)
        abort();
}

static int is_drawn(uint32_t kernel, uint64_t step, uint32_t rate)
{
    const struct brick_at given = {.step = &step};
    brick_begin(kernel, NULL, &step);
    const int open = brick_wants_of(kernel, NULL, NULL, rate);
    brick_end(kernel, NULL, 0, 0);
    if (brick_wants_of(kernel, NULL, &given, rate) != open)
        abort();
    return open;
}

int main(int argc, char **argv)
{
    static char line[4096];
    uint64_t steps[PROMPTS];
    unsigned prompts = 0;
    if (argc < 5 || brick_init(NULL) != BRICK_ON)
        return 2;
    const uint32_t rate = (uint32_t)strtoul(argv[1], NULL, 10), every = (uint32_t)strtoul(argv[2], NULL, 10);
    const uint32_t most = (uint32_t)strtoul(argv[3], NULL, 10), kernel = brick_name("mlp", 3, NULL);
    while (prompts < PROMPTS && fgets(line, sizeof line, stdin) != NULL) {
        const int64_t length = (int64_t)strlen(line);
        const struct brick_tensor tensor = {
            .data = line, .dtype = BRICK_INT8, .dims = 1, .shape = &length, .valid = BRICK_ALL_ROWS};
        steps[prompts++] = brick_step_given(0, &tensor);
    }
    for (int n = 4; n < argc; n++) {
        uint8_t *drawn = calloc(most, PROMPTS);
        const uint32_t first = (uint32_t)strtoul(argv[n], NULL, 10);
        for (uint32_t time = 0; drawn != NULL && time < most; time++) {
            epoch_is(first + time * every);
            for (unsigned p = 0; p < prompts; p++)
                drawn[p * most + time] = is_drawn(kernel, steps[p], rate) != 0;
        }
        for (unsigned p = 0; drawn != NULL && p < prompts; p++) {
            for (uint32_t time = 0; time < most; time++)
                if (drawn[p * most + time])
                    printf("%u ", time);
            puts("");
        }
        free(drawn);
    }
    brick_shutdown();
    return 0;
}
