#include "span_rows.h"

#include <math.h>
#include <string.h>

#define NS_MAX (INT64_C(1) << 61) /* 73 years; two such times can be added without an overflow */

static inline int64_t limited(double ns)
{
    if (ns >= (double)NS_MAX)
        return NS_MAX;
    return ns <= -(double)NS_MAX ? -NS_MAX : llrint(ns);
}

int64_t brick_knots_ns(const struct brick_knot *knots, size_t count, uint64_t ticks, size_t *hint)
{
    const int64_t t = ticks > INT64_MAX ? INT64_MAX : (int64_t)ticks;
    size_t i = *hint < count ? *hint : 0;
    while (i > 0 && t < knots[i].ticks)
        i--;
    while (i + 1 < count && t >= knots[i + 1].ticks)
        i++;
    *hint = i;
    const int64_t ns = knots[i].ns + limited((double)(t - knots[i].ticks) * knots[i].tick_ns);
    /* Without this check, rounding could move a time past the next pair. */
    if (i + 1 < count && ns > knots[i + 1].ns)
        return knots[i + 1].ns;
    return ns > NS_MAX ? NS_MAX : ns;
}

/* A valid time or amount never has its highest bit set. */
static inline int possible(const struct brick_span *s)
{
    return (int64_t)(s->start | s->duration | s->child | s->elements | s->bytes | (s->start + s->duration)) >= 0
           && (s->kind != BRICK_KIND_STEP || s->bytes <= s->elements);
}

/* Counts the records that are missing between the last sequence and this one. Returns whether this sequence is
 * valid. */
static inline int follows(struct brick_row_state *state, uint64_t sequence)
{
    if (sequence <= state->sequence)
        return 0;
    if (state->sequence != 0) {
        const uint64_t gap = sequence - state->sequence - 1;
        state->missing += gap;
        state->lost += gap;
    }
    state->sequence = sequence;
    return 1;
}

static void times(const struct brick_span *s, int given, const struct brick_row_rules *rules, size_t *hint,
                  struct brick_span_row *row)
{
    const int64_t child = s->child < s->duration ? (int64_t)s->child : (int64_t)s->duration;
    if (given) { /* `start` is when the host gave the duration, which is after the span */
        const int64_t duration = s->duration < (uint64_t)NS_MAX ? (int64_t)s->duration : NS_MAX;
        row->begin_ns = brick_knots_ns(rules->knots, rules->knot_count, s->start, hint) - duration;
        row->duration_ns = duration;
        row->self_ns = child < duration ? duration - child : 0;
        return;
    }
    row->begin_ns = brick_knots_ns(rules->knots, rules->knot_count, s->start, hint);
    row->duration_ns = brick_knots_ns(rules->knots, rules->knot_count, s->start + s->duration, hint) - row->begin_ns;
    row->self_ns = row->duration_ns;
    if (child > 0)
        row->self_ns -= llrint((double)row->duration_ns * ((double)child / (double)s->duration));
}

size_t brick_span_rows(const struct brick_record *slots, size_t count, const struct brick_row_rules *rules,
                       struct brick_row_state *state, struct brick_span_row *to)
{
    size_t made = 0, hint = 0;
    state->missing = state->rejected = state->skipped = 0;
    for (size_t at = 0; at < count; at += slots[at].slots) {
        const struct brick_span *s = (const struct brick_span *)(const void *)&slots[at];
        const int is_step = s->kind == BRICK_KIND_STEP;
        if (s->slots == 0) {
            state->rejected++; /* the start of the next record cannot be known */
            break;
        }
        if (s->kind != BRICK_KIND_SPAN && !is_step) {
            state->skipped += (uint64_t)follows(state, s->sequence);
            continue;
        }
        if (s->slots != 1 || !possible(s) || !follows(state, s->sequence)) {
            state->rejected++;
            continue;
        }
        const uint32_t path = s->path < rules->known ? s->path : rules->known;
        const uint8_t flags = rules->paths[path];
        if ((flags & BRICK_PATH_LEFT_OUT) != 0 || (rules->has_step && s->step != rules->step))
            continue;
        struct brick_span_row *row = &to[made];
        times(s, flags & BRICK_PATH_GIVEN, rules, &hint, row);
        if (row->duration_ns < rules->longer_ns)
            continue;
        row->step = s->step;
        row->elements = is_step ? s->bytes : s->elements; /* of a step: its valid rows */
        row->bytes = is_step ? 0 : s->bytes;
        row->rows = is_step ? s->elements : 0;
        row->path = path;
        row->lost = state->lost < UINT32_MAX ? (uint32_t)state->lost : UINT32_MAX;
        row->kind = is_step ? BRICK_ROW_STEP : flags & BRICK_PATH_GIVEN ? BRICK_ROW_GIVEN : BRICK_ROW_SPAN;
        row->track = 0;
        state->lost = 0;
        made++;
    }
    return made;
}

size_t brick_deferred_slots(const struct brick_record *slots, size_t at, size_t count, struct brick_row_state *state,
                            struct brick_record *to)
{
    size_t made = 0;
    state->missing = state->rejected = state->skipped = 0;
    for (; at < count; at += slots[at].slots) {
        const struct brick_record *r = &slots[at];
        if (r->slots == 0) {
            state->rejected++;
            break;
        }
        if (!follows(state, r->sequence)) {
            state->rejected++;
            continue;
        }
        if (r->slots == 1 && (r->kind == BRICK_KIND_DEFER || r->kind == BRICK_KIND_FINALIZE || r->kind == BRICK_KIND_MEASURED))
            to[made++] = *r;
    }
    return made;
}
