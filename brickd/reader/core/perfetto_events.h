/* core/perfetto_events.h - writes rows of spans as packets of a Perfetto trace.
 *
 * Each track is a separate packet sequence. The caller writes the first packet of the sequence, which sets the track
 * and the clock as defaults. So events need not name their track or their clock. The first event of a sequence with a
 * name interns the name. The numbers of the fields come from protos/perfetto/trace/trace_packet.proto and
 * track_event/track_event.proto.
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
    struct brick_pieces names;  /* for each path: fields of InternedData that intern its name and its category */
    struct brick_pieces events; /* for each path: fields of TrackEvent with its name, category and annotations */
    const uint32_t *sequences;  /* for each track: the number of its packet sequence */
    size_t sequence_count;
    uint32_t steps; /* the packet sequence that gets an instant event for each step of the worker; 0: none */
};

/* Writes the begin and the end of each row, and stops when the longest possible row might not fit into the rest of the
 * `room` bytes. Returns the number of processed rows, sets `used` to the number of written bytes, and adds the number
 * of rows without a track to `untracked`. Returns SIZE_MAX if out of memory. */
size_t brick_perfetto_events(struct brick_tracks *tracks, const struct brick_span_row *rows, size_t count,
                             const struct brick_event_form *form, uint8_t *to, size_t room, size_t *used,
                             uint64_t *untracked);

#endif
