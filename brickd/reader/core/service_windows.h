/* core/service_windows.h - the windows of fingerprints of all services, which share a limit of bytes in equal parts.
 *
 * Each service has a window for each tier of fingerprints that it sends, because a step has many more rows than
 * tensors. Whenever a window is added or removed, the limit is divided anew. So a service that sends many fingerprints
 * evicts only its own ones, and only those of the same tier. The number of a fingerprint is unique over all windows: its
 * upper bits are the number of the window, which is never used again. If `shares` is 0, there is only window 0, which
 * has all fingerprints.
 */
#ifndef BRICKD_SERVICE_WINDOWS_H
#define BRICKD_SERVICE_WINDOWS_H

#include "fingerprint_window.h"

/* At most this many windows belong to one service each. All further services share one more window for each tier. So if the limit is
 * 64 MiB, each window has at least 200 KiB. */
#ifndef BRICK_WINDOWS_MAX
#define BRICK_WINDOWS_MAX 256u
#endif
#define BRICK_WINDOW_SHIFT 40u

struct brick_service_window {
    struct brick_fingerprints window;
    uint64_t number;
    uint32_t service;
    enum brick_tier tier;
};

struct brick_windows {
    struct brick_service_window *windows; /* in the order of their numbers */
    size_t count, room;
    size_t bytes_max;
    uint64_t key;
    uint64_t numbers;  /* how many window numbers are used so far */
    int shares;
    uint64_t dropped, dropped_refused, dropped_unlike, dropped_untracked; /* the counts of dropped windows */
};

enum brick_windows_sum { BRICK_SUM_FIRST, BRICK_SUM_END, BRICK_SUM_REFUSED, BRICK_SUM_UNLIKE, BRICK_SUM_UNTRACKED };

/* Creates the windows. Returns 0 if out of memory. */
int brick_windows_init(struct brick_windows *w, size_t bytes_max, uint64_t key, int shares);
void brick_windows_free(struct brick_windows *w);

/* Returns the window for a service's fingerprints of this tier, or NULL if the service has no such window. */
struct brick_service_window *brick_windows_of(struct brick_windows *w, uint32_t service, enum brick_tier tier);
/* Like brick_windows_of, but creates the window if it is missing. Returns NULL if out of memory. */
struct brick_service_window *brick_windows_made(struct brick_windows *w, uint32_t service, enum brick_tier tier);
/* Returns the window that has this fingerprint, and sets *there to its number in the window. Returns NULL if the
 * fingerprint was evicted. */
struct brick_fingerprints *brick_windows_hold(struct brick_windows *w, uint64_t number, uint64_t *there);
/* Frees the windows of a service, but not the windows that it shares with other services. */
void brick_windows_drop(struct brick_windows *w, uint32_t service);

uint64_t brick_windows_sum(const struct brick_windows *w, enum brick_windows_sum sum);

static inline uint64_t brick_windows_number(const struct brick_service_window *of, uint64_t there)
{
    return of->number << BRICK_WINDOW_SHIFT | there;
}

#endif
