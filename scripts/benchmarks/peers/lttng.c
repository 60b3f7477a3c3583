/* lttng.c - the loops that record a span as two LTTng tracepoints, and the tracepoint provider. */
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "lttng_events.h"

void batch(uint64_t times)
{
    for (uint64_t i = 0; i < times; i++) {
        lttng_ust_tracepoint(brickd_bench, begin, 1, MARK);
        lttng_ust_tracepoint(brickd_bench, end, 1, MARK, 0);
    }
}

void batch_of_task(uint64_t times)
{
    for (uint64_t i = 0; i < times; i++) {
        lttng_ust_tracepoint(brickd_bench, task_begin, 1, MARK);
        lttng_ust_tracepoint(brickd_bench, task_end, 1, MARK, 0);
    }
}
