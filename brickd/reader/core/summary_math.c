#include "summary_math.h"

#include <math.h>

uint32_t brick_next_bucket(const struct brick_summary *s, uint32_t bucket)
{
    const uint64_t *at = &s->histogram[bucket];
    for (; bucket % 4 != 0 && bucket < BRICK_BUCKETS; bucket++, at++)
        if (*at != 0)
            return bucket;
    for (; bucket < BRICK_BUCKETS && (at[0] | at[1] | at[2] | at[3]) == 0; at += 4)
        bucket += 4;
    while (bucket < BRICK_BUCKETS && *at == 0) {
        bucket++;
        at++;
    }
    return bucket;
}

void brick_summary_add(struct brick_summary *into, const struct brick_summary *s)
{
    if (s->count == 0)
        return;
    if (into->count == 0 || s->min < into->min)
        into->min = s->min;
    if (s->max > into->max)
        into->max = s->max;
    into->count = brick_sum(into->count, s->count);
    into->total = brick_sum(into->total, s->total);
    into->child = brick_sum(into->child, s->child);
    into->again = brick_sum(into->again, s->again);
    into->squares += s->squares;
    into->elements = brick_sum(into->elements, s->elements);
    into->bytes = brick_sum(into->bytes, s->bytes);
    brick_summary_set_flops(into, brick_summary_flops(into) + brick_summary_flops(s));
    for (uint32_t b = brick_next_bucket(s, 0); b < BRICK_BUCKETS; b = brick_next_bucket(s, b + 1))
        into->histogram[b] = brick_sum(into->histogram[b], s->histogram[b]);
}

/* Returns the smallest duration of a bucket, in ticks. `bucket` may be BRICK_BUCKETS, which is the end of the last
 * bucket. */
static uint64_t bucket_start(uint32_t bucket)
{
    return bucket == 0 ? 0 : (uint64_t)exp2(BRICK_BUCKET_OCTAVE + bucket / (double)BRICK_BUCKETS_PER_OCTAVE);
}

static void subtract(uint64_t *from, uint64_t what) { *from = *from > what ? *from - what : 0; }

void brick_summary_subtract(struct brick_summary *from, const struct brick_summary *then)
{
    if (then->count == 0)
        return;
    if (from->count <= then->count) {
        *from = (struct brick_summary){0};
        return;
    }
    from->count -= then->count;
    subtract(&from->total, then->total);
    subtract(&from->child, then->child);
    subtract(&from->again, then->again);
    from->squares = from->squares > then->squares ? from->squares - then->squares : 0;
    subtract(&from->elements, then->elements);
    subtract(&from->bytes, then->bytes);
    brick_summary_set_flops(from, fmax(brick_summary_flops(from) - brick_summary_flops(then), 0));
    uint32_t first = BRICK_BUCKETS, last = 0;
    for (uint32_t b = brick_next_bucket(from, 0); b < BRICK_BUCKETS; b = brick_next_bucket(from, b + 1)) {
        subtract(&from->histogram[b], then->histogram[b]);
        if (from->histogram[b] != 0) {
            first = first < b ? first : b;
            last = b;
        }
    }
    if (first == BRICK_BUCKETS)
        return;
    if (from->min >= then->min && bucket_start(first) > from->min)
        from->min = bucket_start(first);
    if (from->max <= then->max && last < BRICK_BUCKETS - 1u && bucket_start(last + 1) < from->max)
        from->max = bucket_start(last + 1);
}

double brick_bucket_shift(double factor) { return round(BRICK_BUCKETS_PER_OCTAVE * log2(factor)); }

static uint64_t times(uint64_t ticks, double factor)
{
    double product = round((double)ticks * factor);
    return product < 0x1p64 ? (uint64_t)product : UINT64_MAX;
}

struct brick_summary brick_summary_scaled(const struct brick_summary *s, double factor)
{
    struct brick_summary scaled = *s;
    double shift = brick_bucket_shift(factor);
    scaled.total = times(s->total, factor);
    scaled.child = times(s->child, factor);
    scaled.again = times(s->again, factor);
    scaled.squares = s->squares * factor * factor;
    scaled.min = times(s->min, factor);
    scaled.max = times(s->max, factor);
    for (uint32_t b = 0; b < BRICK_BUCKETS; b++)
        scaled.histogram[b] = 0;
    for (uint32_t b = brick_next_bucket(s, 0); b < BRICK_BUCKETS; b = brick_next_bucket(s, b + 1)) {
        uint64_t *to = &scaled.histogram[brick_bucket_shifted(b, shift)];
        *to = brick_sum(*to, s->histogram[b]);
    }
    return scaled;
}
