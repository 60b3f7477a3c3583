#include "service_windows.h"

#include <stdlib.h>
#include <string.h>

#define THERE ((UINT64_C(1) << BRICK_WINDOW_SHIFT) - 1)
#define COUNTS_MIN ((size_t)1024)
#define TOGETHER UINT32_MAX /* in place of a service: all services that have no separate windows */

static struct brick_service_window *append(struct brick_windows *w, uint32_t service, enum brick_tier tier)
{
    if (w->count == w->room) {
        const size_t room = w->room > 0 ? 2 * w->room : 4;
        struct brick_service_window *more = realloc(w->windows, room * sizeof *more);
        if (more == NULL)
            return NULL;
        w->windows = more;
        w->room = room;
    }
    struct brick_service_window *of = &w->windows[w->count++];
    *of = (struct brick_service_window){.number = w->numbers++, .service = service, .tier = tier};
    brick_fingerprints_init(&of->window, w->bytes_max, w->key);
    return of;
}

int brick_windows_init(struct brick_windows *w, size_t bytes_max, uint64_t key, int shares)
{
    *w = (struct brick_windows){.bytes_max = bytes_max, .key = key, .shares = shares};
    return shares || append(w, 0, BRICK_TIER_TENSORS) != NULL;
}

void brick_windows_free(struct brick_windows *w)
{
    for (size_t n = 0; n < w->count; n++)
        brick_fingerprints_free(&w->windows[n].window);
    free(w->windows);
}

static struct brick_service_window *found(const struct brick_windows *w, uint32_t service, enum brick_tier tier)
{
    for (size_t n = 0; n < w->count; n++)
        if (w->windows[n].service == service && w->windows[n].tier == tier)
            return &w->windows[n];
    return NULL;
}

struct brick_service_window *brick_windows_of(struct brick_windows *w, uint32_t service, enum brick_tier tier)
{
    if (!w->shares)
        return &w->windows[0];
    struct brick_service_window *own = found(w, service, tier);
    return own != NULL ? own : found(w, TOGETHER, tier);
}

/* Limits each window to its share, and evicts the fingerprints that exceed it. Returns 0 if out of memory. */
static int share(struct brick_windows *w)
{
    int whole = 1;
    for (size_t n = 0; n < w->count; n++) {
        const size_t part = w->bytes_max / w->count, bytes = part > 0 || w->bytes_max == 0 ? part : 1;
        const size_t counts = BRICK_SITE_COUNTS_MAX / w->count;
        w->windows[n].window.counts_max = counts > COUNTS_MIN ? counts : COUNTS_MIN;
        w->windows[n].window.births.most = w->windows[n].window.counts_max;
        whole &= brick_fingerprints_limit(&w->windows[n].window, bytes);
    }
    return whole;
}

struct brick_service_window *brick_windows_made(struct brick_windows *w, uint32_t service, enum brick_tier tier)
{
    struct brick_service_window *of = w->shares ? found(w, service, tier) : &w->windows[0];
    if (of != NULL)
        return of;
    const int together = w->count >= BRICK_WINDOWS_MAX;
    if (together && (of = found(w, TOGETHER, tier)) != NULL)
        return of;
    return append(w, together ? TOGETHER : service, tier) != NULL && share(w) ? &w->windows[w->count - 1] : NULL;
}

struct brick_fingerprints *brick_windows_hold(struct brick_windows *w, uint64_t number, uint64_t *there)
{
    *there = number & THERE;
    for (size_t n = 0; n < w->count; n++)
        if (w->windows[n].number == number >> BRICK_WINDOW_SHIFT)
            return brick_fingerprints_hold(&w->windows[n].window, *there) ? &w->windows[n].window : NULL;
    return NULL;
}

static void drop(struct brick_windows *w, struct brick_service_window *of)
{
    w->dropped += of->window.end;
    w->dropped_refused += of->window.refused;
    w->dropped_unlike += of->window.unlike_all;
    w->dropped_untracked += of->window.births.untracked;
    brick_fingerprints_free(&of->window);
    w->count--;
    memmove(of, of + 1, (size_t)(&w->windows[w->count] - of) * sizeof *of);
}

void brick_windows_drop(struct brick_windows *w, uint32_t service)
{
    for (int tier = 0; w->shares && tier < BRICK_TIERS; tier++) {
        struct brick_service_window *of = found(w, service, (enum brick_tier)tier);
        if (of != NULL) {
            drop(w, of);
            share(w); /* the shares of the other windows are larger now */
        }
    }
}

uint64_t brick_windows_sum(const struct brick_windows *w, enum brick_windows_sum sum)
{
    uint64_t sums[] = {
        [BRICK_SUM_FIRST] = w->dropped,
        [BRICK_SUM_END] = w->dropped,
        [BRICK_SUM_REFUSED] = w->dropped_refused,
        [BRICK_SUM_UNLIKE] = w->dropped_unlike,
        [BRICK_SUM_UNTRACKED] = w->dropped_untracked,
    };
    for (size_t n = 0; n < w->count; n++) {
        const struct brick_fingerprints *p = &w->windows[n].window;
        sums[BRICK_SUM_FIRST] += p->first;
        sums[BRICK_SUM_END] += p->end;
        sums[BRICK_SUM_REFUSED] += p->refused;
        sums[BRICK_SUM_UNLIKE] += p->unlike_all;
        sums[BRICK_SUM_UNTRACKED] += p->births.untracked;
    }
    return sums[sum];
}
