#include "span_tracks.h"

#include <stdlib.h>
#include <string.h>

#define ROOTS_AT_FIRST 16u

/* Makes one root of the older half of the roots. This is safe: at worst, a later span is placed on another track. */
static void merge_older(struct brick_one_track *track)
{
    const uint32_t half = track->count / 2;
    track->roots[0].end = track->roots[half - 1].end;
    memmove(&track->roots[1], &track->roots[half], (track->count - half) * sizeof *track->roots);
    track->count -= half - 1;
    track->fresh = track->fresh > half ? track->fresh - (half - 1) : 0;
}

static int has_room(struct brick_one_track *track)
{
    if (track->count < track->room)
        return 1;
    if (track->room >= BRICK_TRACK_ROOTS) {
        merge_older(track);
        return 1;
    }
    const uint32_t room = track->room > 0 ? 2 * track->room : ROOTS_AT_FIRST;
    struct brick_interval *roots = realloc(track->roots, room * sizeof *roots);
    if (roots == NULL)
        return 0;
    track->roots = roots;
    track->room = room;
    return 1;
}

/* Returns how many roots of the track end before the span begins. The span contains the other roots. Returns UINT32_MAX
 * if the span cannot be placed on this track. */
static uint32_t kept_below(const struct brick_one_track *track, const struct brick_interval *span, int *tied)
{
    uint32_t kept = track->count;
    if (kept > 0 && span->end < track->roots[kept - 1].end)
        return UINT32_MAX; /* out of order: spans inside the last root are no longer known */
    int tie = 0;
    while (kept > 0 && track->roots[kept - 1].begin >= span->begin) {
        kept--;
        if (track->roots[kept].begin == span->begin && track->roots[kept].end > span->begin) {
            if (kept < track->fresh)
                return UINT32_MAX;
            tie = 1;
        }
    }
    if (kept > 0 && track->roots[kept - 1].end > span->begin)
        return UINT32_MAX;
    *tied |= tie;
    return kept;
}

static struct brick_one_track *more_tracks(struct brick_tracks *t)
{
    if (t->count == t->room) {
        const uint32_t room = t->room > 0 ? 2 * t->room : 4;
        struct brick_one_track *tracks = realloc(t->tracks, room * sizeof *tracks);
        if (tracks == NULL)
            return NULL;
        t->tracks = tracks;
        t->room = room;
    }
    memset(&t->tracks[t->count], 0, sizeof *t->tracks);
    return &t->tracks[t->count++];
}

int brick_tracks_place(struct brick_tracks *t, struct brick_span_row *rows, size_t count, int *tied)
{
    t->calls++;
    *tied = 0;
    for (size_t i = 0; i < count; i++) {
        const struct brick_interval span = {rows[i].begin_ns, rows[i].begin_ns + rows[i].duration_ns};
        uint32_t n = 0, kept = UINT32_MAX;
        for (; n < t->count; n++) {
            struct brick_one_track *track = &t->tracks[n];
            if (track->call != t->calls) {
                track->call = t->calls;
                track->fresh = track->count;
            }
            if ((kept = kept_below(track, &span, tied)) != UINT32_MAX)
                break;
        }
        rows[i].track = BRICK_NO_TRACK;
        if (n == BRICK_TRACKS_MAX)
            continue;
        struct brick_one_track *track = n < t->count ? &t->tracks[n] : more_tracks(t);
        if (track == NULL)
            return 0;
        if (n + 1 == t->count && track->count == 0)
            track->call = t->calls;
        track->count = kept != UINT32_MAX ? kept : 0;
        track->fresh = track->fresh < track->count ? track->fresh : track->count;
        if (!has_room(track))
            return 0;
        track->roots[track->count++] = span;
        rows[i].track = n;
    }
    return 1;
}

void brick_tracks_free(struct brick_tracks *t)
{
    for (uint32_t n = 0; n < t->count; n++) {
        free(t->tracks[n].roots);
        free(t->tracks[n].named);
    }
    free(t->tracks);
    memset(t, 0, sizeof *t);
}

/* ---- order --------------------------------------------------------------- */

struct keyed {
    struct brick_span_row row;
    size_t at;
};

static int compare(const void *a, const void *b)
{
    const struct keyed *x = a, *y = b;
    if (x->row.begin_ns != y->row.begin_ns)
        return x->row.begin_ns < y->row.begin_ns ? -1 : 1;
    if (x->row.duration_ns != y->row.duration_ns)
        return x->row.duration_ns > y->row.duration_ns ? -1 : 1;
    return x->at > y->at ? -1 : x->at < y->at;
}

int brick_rows_sort(struct brick_span_row *rows, size_t count)
{
    struct keyed *keyed = malloc((count > 0 ? count : 1) * sizeof *keyed);
    if (keyed == NULL)
        return 0;
    for (size_t i = 0; i < count; i++)
        keyed[i] = (struct keyed){rows[i], i};
    qsort(keyed, count, sizeof *keyed, compare);
    for (size_t i = 0; i < count; i++)
        rows[i] = keyed[i].row;
    free(keyed);
    return 1;
}
