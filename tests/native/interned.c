/* interned: reads commands, one per line, and answers each with a number. The answer to "nNAME" is the index of the
 * name. "lLAYER" records a span in that layer; the answer is 0. The program ends at the end of its input. */
#include "brick_agent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
    char line[256];
    brick_init(NULL);
    const uint32_t brick = brick_name("brick", 5, NULL);
    while (fgets(line, sizeof line, stdin) != NULL) {
        const size_t length = strcspn(line, "\n");
        uint32_t answer = 0;
        if (line[0] == 'n') {
            answer = brick_name(line + 1, length - 1, NULL);
        } else {
            const uint32_t layer = (uint32_t)strtoul(line + 1, NULL, 10);
            brick_layer_begin(layer, NULL);
            brick_begin(brick, NULL, NULL);
            brick_end(brick, NULL, 1, 0);
            brick_layer_end(layer, NULL);
        }
        printf("%u\n", answer);
        fflush(stdout);
    }
    return 0;
}
