/* core/service_windows.h - windows of fingerprints. The windows share a limit of bytes in equal parts.
 *
 * A service has one window of whole tensors and another window of rows, because a step has many more rows than tensors.
 * If there is only one window, it may use all bytes. When another window starts, each window is limited to its share.
 * So a service that sends many fingerprints evicts only its own fingerprints, and rows of a service evict only rows.
 * Numbers of fingerprints are unique over all windows: the upper bits are the window's number, which is never reused.
 * Without shares, window 0 has all fingerprints.
 */
#ifndef BRICKD_SERVICE_WINDOWS_H
#define BRICKD_SERVICE_WINDOWS_H

#include "fingerprint_window.h"

/* The most windows. All further services share two more windows. So each window has at least 200 KiB of 64 MiB. */
#ifndef BRICK_WINDOWS_MAX
#define BRICK_WINDOWS_MAX 256u
#endif
#define BRICK_WINDOW_SHIFT 40u

struct brick_service_window {
    struct brick_fingerprints window;
    uint64_t number;
    uint32_t service;
    int rows; /* whether the window has rows, not whole tensors */
};

struct brick_windows {
    struct brick_service_window *windows; /* in the order of their numbers */
    size_t count, room;
    size_t bytes_max;
    uint64_t key;
    uint64_t numbers;  /* the number of windows assigned so far */
    int shares;
    uint64_t dropped, dropped_refused, dropped_unlike, dropped_untracked; /* the counts of dropped windows */
};

enum brick_windows_sum { BRICK_SUM_FIRST, BRICK_SUM_END, BRICK_SUM_REFUSED, BRICK_SUM_UNLIKE, BRICK_SUM_UNTRACKED };

/* Creates the windows. Returns 0 if out of memory. */
int brick_windows_init(struct brick_windows *w, size_t bytes_max, uint64_t key, int shares);
void brick_windows_free(struct brick_windows *w);

/* Returns the window of a service's whole tensors, or of its rows; or NULL. */
struct brick_service_window *brick_windows_of(struct brick_windows *w, uint32_t service, int rows);
/* Like brick_windows_of, but creates the window if it is missing. Returns NULL if out of memory. */
struct brick_service_window *brick_windows_made(struct brick_windows *w, uint32_t service, int rows);
/* Returns the window of this fingerprint, and the fingerprint's number there; NULL if the fingerprint was evicted. */
struct brick_fingerprints *brick_windows_hold(struct brick_windows *w, uint64_t number, uint64_t *there);
/* Frees the windows of a service, if it has separate ones. */
void brick_windows_drop(struct brick_windows *w, uint32_t service);

uint64_t brick_windows_sum(const struct brick_windows *w, enum brick_windows_sum sum);

static inline uint64_t brick_windows_number(const struct brick_service_window *of, uint64_t there)
{
    return of->number << BRICK_WINDOW_SHIFT | there;
}

#endif
