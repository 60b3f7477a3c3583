/* core/span_tracks.h - distributes the spans of one lane over tracks, so that on each track spans nest.
 *
 * Spans of interleaved tasks overlap without nesting, but a viewer of traces draws the spans of a track as a stack. So
 * a span is placed on the first track where each earlier span is either inside it or apart from it (colouring of
 * intervals, first fit).
 *
 * Spans arrive in the order of their ends. A span on a track is a root while no other span contains it. Only the roots
 * decide whether the next span fits on the track: the roots do not overlap, and the next span ends after all of them.
 * It does not fit if it begins inside of a root. Otherwise, it contains the roots that begin at the same time or later,
 * and becomes a root in their place.
 *
 * A viewer orders events of the same time by their order in the file. A span that begins at the same time as a span
 * inside it must be written first. If both are placed in the same call, `tied` tells the caller to sort the rows. If
 * the inner span was placed in an earlier call, it may already be written, so the outer one gets another track.
 */
#ifndef BRICKD_SPAN_TRACKS_H
#define BRICKD_SPAN_TRACKS_H

#include "span_rows.h"

/* A lane has at most this many tracks. A span that fits on none of them is left out. */
#define BRICK_TRACKS_MAX 1024u
/* A track has at most this many roots. If there are more, the older half becomes one root. */
#define BRICK_TRACK_ROOTS 4096u
#define BRICK_NO_TRACK UINT32_MAX

struct brick_interval {
    int64_t begin, end;
};

struct brick_one_track {
    struct brick_interval *roots; /* sorted; they do not overlap */
    uint32_t count, room;
    uint32_t fresh;    /* the roots from this number on were placed in the present call */
    uint64_t call;     /* the number of the call in which `fresh` was set */
    uint8_t *named;    /* for perfetto_events.c: one bit for each path, set when its name is interned */
};

struct brick_tracks {
    struct brick_one_track *tracks;
    uint32_t count, room;
    uint64_t calls;
};

/* Sets the track of each row; BRICK_NO_TRACK if no track fits. Sets `tied` to whether the caller must sort the rows
 * with brick_rows_sort before it writes them. Returns 0 if out of memory. */
int brick_tracks_place(struct brick_tracks *t, struct brick_span_row *rows, size_t count, int *tied);
void brick_tracks_free(struct brick_tracks *t);

/* Sorts rows by begin. Of rows with the same begin, the longest comes first; of equally long ones, the one that arrived
 * last. Returns 0 if out of memory. */
int brick_rows_sort(struct brick_span_row *rows, size_t count);

#endif
