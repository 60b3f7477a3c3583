/* core/summary_math.h - arithmetic on the summary of one path. */
#ifndef BRICKD_SUMMARY_MATH_H
#define BRICKD_SUMMARY_MATH_H

#include "brick_shm.h"

/* Adds two numbers. If the sum is too large, which only hostile numbers cause, returns UINT64_MAX. */
static inline uint64_t brick_sum(uint64_t a, uint64_t b) { return a + b >= a ? a + b : UINT64_MAX; }

/* Adds a span as the worker's thread does, but without overflow. The first span of a summary becomes its maximum, and
 * only then `count` is checked to set the minimum. So all other spans need just two comparisons. */
static inline void brick_summary_add_span(struct brick_summary *s, uint64_t duration, uint64_t child, uint64_t elements,
                                    uint64_t bytes)
{
    if (__builtin_expect(duration < s->min, 0))
        s->min = duration;
    if (__builtin_expect(duration > s->max, 0)) {
        s->max = duration;
        s->min = s->count > 0 ? s->min : duration;
    }
    uint64_t *alike = &s->histogram[brick_bucket(duration)];
    double d = (double)duration;
    s->count = brick_sum(s->count, 1);
    s->total = brick_sum(s->total, duration);
    s->child = brick_sum(s->child, child);
    s->squares += d * d;
    s->elements = brick_sum(s->elements, elements);
    s->bytes = brick_sum(s->bytes, bytes);
    *alike = brick_sum(*alike, 1);
}

/* Returns the first bucket, from this one on, that is not empty, or BRICK_BUCKETS. It is fast, because most buckets are
 * empty. */
uint32_t brick_next_bucket(const struct brick_summary *s, uint32_t bucket);

/* Adds a summary whose ticks have the same length. */
void brick_summary_add(struct brick_summary *into, const struct brick_summary *s);

/* Subtracts from a sum an earlier state of the same sum. If `then` cannot be an earlier state, sets the sum to zeros.
 * Afterwards, min and max are only bounds of the remaining durations. */
void brick_summary_subtract(struct brick_summary *from, const struct brick_summary *then);

/* Returns a summary with its times multiplied by a factor, for example to convert ticks to ns. */
struct brick_summary brick_summary_scaled(const struct brick_summary *s, double factor);

/* If all durations are multiplied by a factor, the counts of a histogram move to other buckets. Returns by how many
 * buckets they move. */
double brick_bucket_shift(double factor);

static inline uint32_t brick_bucket_shifted(uint32_t bucket, double shift)
{
    double to = bucket + shift;
    return to <= 0 ? 0 : to >= BRICK_BUCKETS - 1 ? BRICK_BUCKETS - 1 : (uint32_t)to;
}

#endif
