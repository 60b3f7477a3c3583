/* core/drain.h - one consumer of the rings of a segment.
 *
 * It reads with pread, validates, keeps, and tells what to write where; it never writes
 * to a segment. An inconsistency refuses the segment for good; what was read before stays.
 */
#ifndef BRICKD_DRAIN_H
#define BRICKD_DRAIN_H

#include "segment_copy.h"
#include "cursor.h"
#include "span_details.h"
#include "events.h"
#include "recording_tap.h"

/* Event records and slots of checksums that one pass takes of a segment at most; the rest comes with the next. */
#define BRICK_EVENTS_MAX 65536u

/* Slots of each kind of ring that one pass over a segment copies, whatever the heads claim: 8 MiB in all, 2 ms. A ring of
 * the usual size has 4,096 slots. */
#define BRICK_PASS_SLOTS 65536u

/* Slots that are copied at once: few enough to stay in the second-level cache until they are taken. */
#define BRICK_BATCH 4096u

/* What a running pass needs, for each thread and not for each segment. */
struct brick_scratch {
    struct brick_record batch[BRICK_BATCH] __attribute__((aligned(64)));
    struct brick_process process;
    struct brick_lane lanes[BRICK_LANES_MAX]; /* after the process line, as in the file */
};

struct brick_drained_lane {
    struct brick_cursor cursor;
    struct brick_consumer line; /* as in the file, once all tails are written */
    uint64_t span_sequence;     /* of the last span record */
    uint64_t spans_salvaged, events_salvaged; /* read beyond the head of a dead writer: at most one each */
};

struct brick_drain {
    struct brick_reader reader;
    struct brick_details details;
    struct brick_events events; /* the records are those of the last pass */
    struct brick_track track;   /* what records it */
    struct brick_drained_lane *lanes;
    struct brick_scratch *scratch; /* of the running pass */
    uint64_t left[2];              /* slots that the pass may still copy, by kind of ring */
    uint32_t saved;   /* lanes with a checkpoint's cursor */
    uint32_t started; /* lanes whose start was decided */
    uint32_t used;    /* lanes that threads have owned */
    uint32_t passes;
    uint32_t breaks;  /* lanes whose events began with a break */
    int refused;
    int complete; /* the last pass reached every head */
    int ended;    /* the worker ended by itself */
    int salvage;
    uint64_t activity; /* changes whenever something was recorded */
    double fill;       /* the largest share of a ring's room that the last pass consumed */
    double held;       /* the largest share of an event ring that waits for tails(events) */
};

/* The source of d->reader is set; everything else is zeros. 0: refused, the reader has the reason. */
int brick_drain_open(struct brick_drain *d, uint64_t file_size);
void brick_drain_free(struct brick_drain *d);

/* Before the first pass: where the next lane starts. 0: there is no such lane. */
int brick_drain_resume(struct brick_drain *d, const struct brick_cursor *cursor);

/* Reads what is new, and records it unchanged if d->track has a spool. 0: refused, now or before. */
int brick_drain_pass(struct brick_drain *d, struct brick_scratch *scratch);

/* How full the fullest ring of the lanes in use and the next one is with what a pass would read; 1: unknown. */
double brick_drain_waiting(struct brick_drain *d, struct brick_scratch *scratch);

/* Bytes that it holds between two passes. */
uint64_t brick_drain_resident(const struct brick_drain *d);

/* How many lanes have cursors, from the checkpoint or because they are in use. */
uint32_t brick_drain_lanes(const struct brick_drain *d);

/* The consumer lines to write from *first on: all `halfway`, then all `whole` (O12). Returns how many; 0: they are written
 * already. Both have room for brick_drain_lanes(d). */
uint32_t brick_drain_tails(struct brick_drain *d, int events, uint32_t *first, struct brick_consumer *halfway,
                           struct brick_consumer *whole);

#endif
