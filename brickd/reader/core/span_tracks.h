/* core/span_tracks.h - distributes the spans of one lane over tracks, so that on each track spans nest.
 *
 * Spans of interleaved tasks overlap without nesting, but a viewer of traces draws a stack. So a span is placed on the
 * first track where it contains, or is apart from, every span that is already there: colouring of intervals, first fit.
 *
 * Spans arrive in the order of their ends. On a track, only the outermost spans matter for the next one: their
 * intervals are apart from each other, and the next span ends after all of them. The next span crosses one of these
 * intervals exactly if it begins inside. Otherwise it contains the intervals that begin at the same time or later, and
 * replaces them.
 *
 * A viewer orders events of the same time by their order in the file. A span that begins at the same time as a span
 * inside it must be written first. Within one call, `tied` asks the caller to sort; a span that is tied with one of an
 * earlier call gets another track.
 */
#ifndef BRICKD_SPAN_TRACKS_H
#define BRICKD_SPAN_TRACKS_H

#include "span_rows.h"

/* If even more spans of a lane overlap without nesting, the rest of them is on no track. */
#define BRICK_TRACKS_MAX 1024u
/* The limit of outermost spans on a track: above it, the older half counts as one span. */
#define BRICK_TRACK_ROOTS 4096u
#define BRICK_NO_TRACK UINT32_MAX

struct brick_interval {
    int64_t begin, end;
};

struct brick_one_track {
    struct brick_interval *roots; /* sorted, apart from each other */
    uint32_t count, room;
    uint32_t fresh;    /* roots from this number on belong to this call */
    uint64_t call;     /* the call in which `fresh` was set */
    uint8_t *named;    /* used by perfetto_events: one bit for each path whose name is interned */
};

struct brick_tracks {
    struct brick_one_track *tracks;
    uint32_t count, room;
    uint64_t calls;
};

/* Sets `track` of each row, or BRICK_NO_TRACK. Sets `tied`: the rows must be sorted with brick_rows_sort before they
 * are written. Returns 0 if out of memory. */
int brick_tracks_place(struct brick_tracks *t, struct brick_span_row *rows, size_t count, int *tied);
void brick_tracks_free(struct brick_tracks *t);

/* Sorts by begin, then the longest first, then the last to arrive first. Returns 0 if out of memory. */
int brick_rows_sort(struct brick_span_row *rows, size_t count);

#endif
