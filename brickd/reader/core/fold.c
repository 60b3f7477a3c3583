#include "fold.h"
#include "summary_math.h"

#include <math.h>

static double bucket_start(double bucket)
{
    return bucket <= 0 ? 0 : exp2(BRICK_BUCKET_OCTAVE + bucket / BRICK_BUCKETS_PER_OCTAVE);
}

/* Moves each bucket's count to the bucket of the row with the same durations: the limits of buckets are in ticks, and
 * the ticks of two workers may have different lengths. */
static void histogram_add(struct brick_row *row, const struct brick_summary *s, double ratio)
{
    double shift = brick_bucket_shift(ratio);
    for (uint32_t b = brick_next_bucket(s, 0); b < BRICK_BUCKETS; b = brick_next_bucket(s, b + 1))
            row->histogram[brick_bucket_shifted(b, shift)] += (double)s->histogram[b];
}

/* Returns `whole` minus `part`, but at least 0. A hostile worker may claim a part that exceeds the whole; this must not
 * reduce the times of other workers. */
static double rest(uint64_t whole, uint64_t part) { return part < whole ? (double)(whole - part) : 0; }

double brick_self_ns(const struct brick_part *part)
{
    double own = rest(part->summary->total, part->summary->child) * part->tick_ns;
    return own > part->given_ns ? own - part->given_ns : 0;
}

void brick_row_add(struct brick_row *row, const struct brick_part *part, double grid_ns)
{
    const struct brick_summary *s = part->summary;
    double tick_ns = part->tick_ns;
    if (s->count == 0)
        return;
    double min = (double)s->min * tick_ns, max = (double)s->max * tick_ns;
    if (row->count == 0 || min < row->min)
        row->min = min;
    if (max > row->max)
        row->max = max;
    row->count = brick_sum(row->count, s->count);
    row->total += (double)s->total * tick_ns;
    row->self += brick_self_ns(part);
    if (part->outer)
        row->inclusive += rest(s->total, s->again) * tick_ns;
    row->squares += s->squares * tick_ns * tick_ns;
    row->elements = brick_sum(row->elements, s->elements);
    row->bytes = brick_sum(row->bytes, s->bytes);
    row->flops += brick_summary_flops(s);
    histogram_add(row, s, tick_ns / grid_ns);
}

double brick_row_quantile(const struct brick_row *row, double fraction, double grid_ns)
{
    double all = 0;
    for (uint32_t b = 0; b < BRICK_BUCKETS; b++)
        all += row->histogram[b];
    if (all == 0)
        return 0;
    double rank = fraction * all, below = 0;
    uint32_t b = 0;
    while (b < BRICK_BUCKETS - 1 && below + row->histogram[b] < rank)
        below += row->histogram[b++];
    double part = row->histogram[b] > 0 ? (rank - below) / row->histogram[b] : 0;
    double low = bucket_start(b) * grid_ns, high = bucket_start(b + 1.0) * grid_ns;
    if (b == BRICK_BUCKETS - 1 && row->max > low)
        high = row->max;
    /* Interpolate on a logarithmic scale. The first bucket begins at 0, so interpolate on a linear scale there. */
    double value = low > 0 ? low * pow(high / low, part) : high * part;
    return fmin(fmax(value, row->min), row->max);
}

void brick_durations_add(struct brick_durations *into, const struct brick_summary *s, uint8_t flags,
                         const uint8_t *bounds)
{
    if (s->count == 0)
        return;
    uint64_t *sum = flags & BRICK_PART_NS ? &into->ns : &into->ticks;
    into->count = brick_sum(into->count, s->count);
    if (flags & BRICK_PART_OUTER)
        *sum = brick_sum(*sum, s->again < s->total ? s->total - s->again : 0);
    for (uint32_t b = 0; b < BRICK_BUCKETS; b++) {
        if (s->histogram[b] == 0) /* most buckets are empty; skipping them is faster than adding zeros */
            continue;
        uint64_t *within = &into->within[bounds[b] < BRICK_BOUNDS ? bounds[b] : BRICK_BOUNDS - 1];
        *within = brick_sum(*within, s->histogram[b]);
    }
}

void brick_durations_join(struct brick_durations *into, const struct brick_durations *of)
{
    into->count = brick_sum(into->count, of->count);
    into->ticks = brick_sum(into->ticks, of->ticks);
    into->ns = brick_sum(into->ns, of->ns);
    for (uint32_t b = 0; b < BRICK_BOUNDS; b++)
        into->within[b] = brick_sum(into->within[b], of->within[b]);
}
