/* totals.c - reads the summaries of its own process, and calls the test before each relaxed load of a word. */
#include "python/core.h"

#include "writer/lifecycle.h"

static void (*test)(void);

static uint64_t load_late(const uint64_t *at)
{
    test();
    return brick_load_relaxed(at);
}
#define brick_load_relaxed(at) load_late(at)
#include "python/own_totals.c"
#undef brick_load_relaxed

struct brick_agent brick_agent; /* this program reads only segments that the test made */
double brick_clock_tick_ns(const struct brick_header *h) { return (double)h->clock; }

int totals_copy(const uint64_t *sequence, const struct brick_summary *from, struct brick_summary *to, void (*before)(void));
int totals_copy(const uint64_t *sequence, const struct brick_summary *from, struct brick_summary *to, void (*before)(void))
{
    test = before;
    return copy_summary(sequence, from, to);
}
