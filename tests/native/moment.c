/* moment: records two moments and waits until stdin ends. */
#include "brick_agent.h"

#include <stdio.h>

int main(void)
{
    brick_init(NULL);
    brick_moment(42);
    brick_moment(0);
    puts("there");
    fflush(stdout);
    return getchar() == EOF ? 0 : 1;
}
