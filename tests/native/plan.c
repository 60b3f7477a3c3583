/* plan.c - computes the plan of a segment from the environment, for tests, without opening anything. */
#include "writer/config.h"

#include <string.h>

const char *plan_of(const struct brick_config *config, struct brick_header *header, char prefix[64], uint32_t *rate);
const char *plan_of(const struct brick_config *config, struct brick_header *header, char prefix[64], uint32_t *rate)
{
    struct brick_plan plan;
    const char *wrong = brick_plan_make(&plan, config);
    *header = plan.header;
    *rate = plan.rate;
    strcpy(prefix, plan.prefix);
    return wrong;
}
