/* core/perfetto_events.h - writes rows of spans as packets of a Perfetto trace.
 *
 * Each track is a packet sequence of its own: its first packet, which the caller writes, sets the track and the clock
 * as defaults, so an event repeats neither. A name is interned in the first event of the sequence that has it. The
 * numbers of the fields are those of protos/perfetto/trace/trace_packet.proto and track_event/track_event.proto.
 */
#ifndef BRICKD_PERFETTO_EVENTS_H
#define BRICKD_PERFETTO_EVENTS_H

#include "span_lines.h"
#include "span_tracks.h"

/* The ids of the interned names of annotations; the caller interns these names. */
enum brick_annotation {
    BRICK_ANNOTATION_STEP = 1,
    BRICK_ANNOTATION_ELEMENTS,
    BRICK_ANNOTATION_BYTES,
    BRICK_ANNOTATION_ROWS,
    BRICK_ANNOTATION_LOST,
};

struct brick_event_form {
    struct brick_pieces names;  /* by path: the fields of InternedData for its name and its category */
    struct brick_pieces events; /* by path: the fields of TrackEvent that refer to these, and its annotations */
    const uint32_t *sequences;  /* by track: the number of its packet sequence */
    size_t sequence_count;
    uint32_t steps; /* the packet sequence of the worker's steps: each step is also an instant there; 0: none */
};

/* Writes the begin and the end of as many rows as `room` bytes hold for certain. Returns the number of rows; sets
 * `used`, and adds to `untracked` the rows without a track. Returns SIZE_MAX if out of memory. */
size_t brick_perfetto_events(struct brick_tracks *tracks, const struct brick_span_row *rows, size_t count,
                             const struct brick_event_form *form, uint8_t *to, size_t room, size_t *used,
                             uint64_t *untracked);

#endif
