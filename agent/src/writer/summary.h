/* writer/summary.h - adds spans (writer/span.c) and marks (writer/mark.c) to a path's summary. */
#ifndef BRICK_SUMMARY_H
#define BRICK_SUMMARY_H

#include "record_path.h"

/* Returns whether the path's summary has memory. It may have none if its sequence is 0: then this lane has never
 * written it. */
static inline int brick_summary_there(struct brick_thread *t, uint32_t path)
{
    return BRICK_LIKELY(brick_load_relaxed(&t->sequences[path]) != 0) || brick_block_commit(t, path);
}

/* Returns whether a time that the host gives can be added to a path's total: a reader refuses a segment with a total
 * above 2^62 ns. */
static inline int brick_total_holds(const struct brick_thread *t, uint32_t path, uint64_t given_ns)
{
    return brick_load_relaxed(&t->summaries[path].total) <= (UINT64_C(1) << 62) - given_ns;
}

BRICK_ALWAYS void brick_summarize(struct brick_thread *t, uint32_t path, uint64_t duration, uint64_t child, uint64_t again,
                                  const struct brick_amounts *did)
{
    uint64_t *sequence = &t->sequences[path];
    struct brick_summary *s = &t->summaries[path];
    uint64_t odd = brick_load_relaxed(sequence) | 1;
    BRICK_POINT("summary");
    brick_store_relaxed(sequence, odd); /* O5 */
    brick_fence_release();
    BRICK_POINT("summary_odd");
    uint64_t count = brick_load_relaxed(&s->count); /* O6 */
    brick_store_relaxed(&s->count, count + 1);
    brick_add(&s->total, duration);
    brick_add(&s->child, child);
    if (BRICK_UNLIKELY(again != 0))
        brick_add(&s->again, again);
    BRICK_POINT("summary_half");
    double d = (double)(int64_t)duration;
    brick_store_relaxed_f64(&s->squares, brick_load_relaxed_f64(&s->squares) + d * d);
    if (BRICK_UNLIKELY(duration < brick_load_relaxed(&s->min) || count == 0))
        brick_store_relaxed(&s->min, duration);
    if (BRICK_UNLIKELY(duration > brick_load_relaxed(&s->max)))
        brick_store_relaxed(&s->max, duration);
    if (did->elements != 0)
        brick_add(&s->elements, did->elements);
    if (did->bytes != 0)
        brick_add(&s->bytes, did->bytes);
    if (did->flops != 0)
        brick_summary_set_flops(s, brick_summary_flops(s) + did->flops);
    brick_add(&s->histogram[brick_bucket(duration)], 1);
    BRICK_POINT("summary_even");
    brick_store_release(sequence, odd + 1); /* O7 */
}

#endif
