/* lttng_events.h - the two events of a span. They have the same data as a span of brickd. The header of each event has
 * the time.
 *
 * Both exist twice: `begin` and `end` have no context, `task_begin` and `task_end` have their process and thread. LTTng
 * includes this file several times. MARK is in each event, so that events can be counted in a trace.
 */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER brickd_bench

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "lttng_events.h"

#if !defined(LTTNG_EVENTS_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define LTTNG_EVENTS_H

#include <lttng/tracepoint.h>
#include <stdint.h>

#define BEGIN_ARGS LTTNG_UST_TP_ARGS(uint32_t, brick, uint64_t, step)
#define END_ARGS LTTNG_UST_TP_ARGS(uint32_t, brick, uint64_t, elements, uint64_t, bytes)

LTTNG_UST_TRACEPOINT_EVENT_CLASS(
    brickd_bench, a_begin, BEGIN_ARGS,
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(uint32_t, brick, brick)
        lttng_ust_field_integer(uint64_t, step, step)))

LTTNG_UST_TRACEPOINT_EVENT_CLASS(
    brickd_bench, an_end, END_ARGS,
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(uint32_t, brick, brick)
        lttng_ust_field_integer(uint64_t, elements, elements)
        lttng_ust_field_integer(uint64_t, bytes, bytes)))

LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(brickd_bench, a_begin, brickd_bench, begin, BEGIN_ARGS)
LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(brickd_bench, a_begin, brickd_bench, task_begin, BEGIN_ARGS)
LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(brickd_bench, an_end, brickd_bench, end, END_ARGS)
LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(brickd_bench, an_end, brickd_bench, task_end, END_ARGS)

#endif

#include <lttng/tracepoint-event.h>
