#include "perfetto_events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The keys of protobuf fields: number << 3 | wire type. */
enum {
    TRACE_PACKET = 1 << 3 | 2,
    PACKET_TIMESTAMP = 8 << 3 | 0,
    PACKET_SEQUENCE = 10 << 3 | 0,
    PACKET_TRACK_EVENT = 11 << 3 | 2,
    PACKET_INTERNED = 12 << 3 | 2,
    PACKET_FLAGS = 13 << 3 | 0,
    EVENT_TYPE = 9 << 3 | 0,
    EVENT_NAME = 23 << 3 | 2, /* as a varint, this key has two bytes */
    EVENT_ANNOTATION = 4 << 3 | 2,
    ANNOTATION_NAME = 1 << 3 | 0,
    ANNOTATION_UINT = 3 << 3 | 0,
    ANNOTATION_POINTER = 7 << 3 | 0, /* the Perfetto UI shows such a value in hexadecimal */
};
enum { SLICE_BEGIN = 1, SLICE_END = 2, INSTANT = 3, NEEDS_INCREMENTAL_STATE = 2 };

/* The largest size in bytes of one packet without the texts of the caller. */
#define EVENT_BYTES_MAX 192u

static uint8_t *put_varint(uint8_t *to, uint64_t value)
{
    while (value >= 0x80) {
        *to++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *to++ = (uint8_t)value;
    return to;
}

static size_t varint_bytes(uint64_t value) { return (size_t)(70 - __builtin_clzll(value | 1)) / 7; }

static uint8_t *put_text(uint8_t *to, const struct brick_text *t)
{
    memcpy(to, t->text, t->length);
    return to + t->length;
}

static uint8_t *put_annotation(uint8_t *to, uint8_t name, uint8_t key, uint64_t value)
{
    *to++ = EVENT_ANNOTATION;
    *to++ = (uint8_t)(3 + varint_bytes(value));
    *to++ = ANNOTATION_NAME;
    *to++ = name;
    *to++ = key;
    return put_varint(to, value);
}

static uint8_t *put_annotations(uint8_t *to, const struct brick_span_row *row)
{
    if (row->step != 0)
        to = put_annotation(to, BRICK_ANNOTATION_STEP, ANNOTATION_POINTER, row->step);
    if (row->elements != 0)
        to = put_annotation(to, BRICK_ANNOTATION_ELEMENTS, ANNOTATION_UINT, row->elements);
    if (row->bytes != 0)
        to = put_annotation(to, BRICK_ANNOTATION_BYTES, ANNOTATION_UINT, row->bytes);
    if (row->kind == BRICK_ROW_STEP)
        to = put_annotation(to, BRICK_ANNOTATION_ROWS, ANNOTATION_UINT, row->rows);
    if (row->lost != 0)
        to = put_annotation(to, BRICK_ANNOTATION_LOST, ANNOTATION_UINT, row->lost);
    return to;
}

/* Writes a packet: the fields that all events have, then the fields of the event, then interned data. */
static uint8_t *put_packet(uint8_t *to, int64_t at_ns, uint32_t sequence, const struct brick_text *event,
                           const struct brick_text *interned)
{
    const uint64_t time = at_ns > 0 ? (uint64_t)at_ns : 0;
    const size_t own = event->length;
    size_t length = 1 + varint_bytes(time) + 1 + varint_bytes(sequence) + 2 + 1 + varint_bytes(own) + own;
    if (interned->length > 0)
        length += 1 + varint_bytes(interned->length) + interned->length;
    *to++ = TRACE_PACKET;
    to = put_varint(to, length);
    *to++ = PACKET_TIMESTAMP;
    to = put_varint(to, time);
    *to++ = PACKET_SEQUENCE;
    to = put_varint(to, sequence);
    *to++ = PACKET_FLAGS;
    *to++ = NEEDS_INCREMENTAL_STATE;
    if (interned->length > 0) {
        *to++ = PACKET_INTERNED;
        to = put_varint(to, interned->length);
        to = put_text(to, interned);
    }
    *to++ = PACKET_TRACK_EVENT;
    to = put_varint(to, own);
    return put_text(to, event);
}

/* Sets `text` to the data that this track must intern for the path. The text is empty if the track interned them
 * before. Returns NULL if out of memory. */
static const struct brick_text *interned(struct brick_one_track *track, const struct brick_event_form *form, uint32_t path,
                                         struct brick_text *text)
{
    if (track->named == NULL && (track->named = calloc(form->names.count / 8 + 1, 1)) == NULL)
        return NULL;
    const uint8_t bit = (uint8_t)(1u << path % 8);
    *text = (struct brick_text){"", 0};
    if ((track->named[path / 8] & bit) == 0) {
        track->named[path / 8] |= bit;
        *text = brick_piece(&form->names, path);
    }
    return text;
}

/* Writes an instant event with the name "step N". */
static uint8_t *put_step(uint8_t *to, const struct brick_span_row *row, uint32_t sequence)
{
    static const struct brick_text nothing = {"", 0};
    char name[32], event[64];
    const int length = snprintf(name, sizeof name, "step %llu", (unsigned long long)row->step);
    uint8_t *behind = (uint8_t *)event;
    *behind++ = EVENT_TYPE;
    *behind++ = INSTANT;
    behind = put_varint(behind, EVENT_NAME);
    behind = put_varint(behind, (uint64_t)length);
    memcpy(behind, name, (size_t)length);
    const struct brick_text instant = {event, (size_t)(behind + length - (uint8_t *)event)};
    return put_packet(to, row->begin_ns, sequence, &instant, &nothing);
}

size_t brick_perfetto_events(struct brick_tracks *tracks, const struct brick_span_row *rows, size_t count,
                             const struct brick_event_form *form, uint8_t *to, size_t room, size_t *used,
                             uint64_t *untracked)
{
    static const char slice_end[] = {EVENT_TYPE, SLICE_END};
    const struct brick_text end = {slice_end, sizeof slice_end}, nothing = {"", 0};
    const size_t longest_event = brick_longest_piece(&form->events) + EVENT_BYTES_MAX;
    const size_t longest = 3 * EVENT_BYTES_MAX + longest_event + brick_longest_piece(&form->names);
    uint8_t *event = malloc(longest_event), *at = to;
    size_t i = 0;
    for (; event != NULL && i < count && (size_t)(at - to) + longest <= room; i++) {
        const struct brick_span_row *row = &rows[i];
        if (row->track >= tracks->count || row->track >= form->sequence_count || row->path >= form->events.count
            || row->path >= form->names.count) {
            *untracked += 1;
            continue;
        }
        struct brick_text text;
        const struct brick_text names = brick_piece(&form->events, row->path);
        if (interned(&tracks->tracks[row->track], form, row->path, &text) == NULL)
            break;
        uint8_t *behind = event;
        *behind++ = EVENT_TYPE;
        *behind++ = SLICE_BEGIN;
        behind = put_annotations(put_text(behind, &names), row);
        const struct brick_text begin = {(const char *)event, (size_t)(behind - event)};
        const uint32_t sequence = form->sequences[row->track];
        at = put_packet(at, row->begin_ns, sequence, &begin, &text);
        at = put_packet(at, row->begin_ns + row->duration_ns, sequence, &end, &nothing);
        if (row->kind == BRICK_ROW_STEP && form->steps != 0)
            at = put_step(at, row, form->steps);
    }
    free(event);
    *used = (size_t)(at - to);
    return event != NULL ? i : SIZE_MAX;
}
