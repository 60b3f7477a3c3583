/* core/drain.h - one consumer's way through the rings of a segment.
 *
 * Reads with pread, judges, takes, and says what is to be written where; it
 * never writes to a segment. What does not add up refuses the segment for good;
 * what was read before stays.
 */
#ifndef BRICKD_DRAIN_H
#define BRICKD_DRAIN_H

#include "segment_copy.h"
#include "cursor.h"
#include "span_details.h"
#include "events.h"
#include "recording_tap.h"

/* Event records of one segment that one pass takes at most, and slots of checksums; the rest comes with the next. */
#define BRICK_EVENTS_MAX 65536u

/* Slots of the rings of each kind that one pass over a segment copies, whatever their heads claim: 8 MiB in all, 2 ms.
 * The rest comes with the next pass. A ring of the usual size has 4,096 slots. */
#define BRICK_PASS_SLOTS 65536u

/* Slots that are copied at once: few enough to stay in the second cache until they are taken. */
#define BRICK_BATCH 4096u

/* What a pass needs while it runs, of each thread and not of each segment. */
struct brick_scratch {
    struct brick_record batch[BRICK_BATCH] __attribute__((aligned(64)));
    struct brick_process process;
    struct brick_lane lanes[BRICK_LANES_MAX]; /* behind the process line, as in the file */
};

struct brick_drained_lane {
    struct brick_cursor cursor;
    struct brick_consumer line; /* as it stands in the file, or will when all was written that was given out */
    uint64_t span_sequence;     /* of the last span record */
    uint64_t spans_salvaged, events_salvaged; /* read though the head had not come to pass them: at most one each */
};

struct brick_drain {
    struct brick_reader reader;
    struct brick_details details;
    struct brick_events events; /* the records are those of the last pass */
    struct brick_track track;   /* where it is recorded */
    struct brick_drained_lane *lanes;
    struct brick_scratch *scratch; /* of the pass that runs */
    uint64_t left[2];              /* slots that it may still copy, by kind of ring */
    uint32_t saved;   /* lanes whose cursors a checkpoint gave */
    uint32_t started; /* lanes whose start was decided */
    uint32_t used;    /* lanes that threads have owned */
    uint32_t passes;
    uint32_t breaks;  /* lanes whose events began with one */
    int refused;
    int complete; /* the last pass came to every head */
    int ended;    /* the worker came to its end by itself */
    int salvage;
    uint64_t activity; /* a number that changes whenever something was recorded */
    double fill;       /* the largest share of a ring's room that the last pass consumed */
    double held;       /* the largest share of an event ring that waits for tails(events) */
};

/* The source of d->reader is set; everything else is zeros. 0: refused, the reader has the reason. */
int brick_drain_open(struct brick_drain *d, uint64_t file_size);
void brick_drain_free(struct brick_drain *d);

/* Before the first pass: where the next lane is to go on. 0: there is no such lane. */
int brick_drain_resume(struct brick_drain *d, const struct brick_cursor *cursor);

/* Reads what is new, and records it as it is where d->track has a spool. 0: refused, now or before. */
int brick_drain_pass(struct brick_drain *d, struct brick_scratch *scratch);

/* How full the fullest ring is of what a pass would find, as far as the lanes in use and the next one tell; where that
 * cannot be told, 1. */
double brick_drain_waiting(struct brick_drain *d, struct brick_scratch *scratch);

/* Bytes that it holds between two passes. */
uint64_t brick_drain_resident(const struct brick_drain *d);

/* How many lanes have cursors: those of the checkpoint, and those in use. */
uint32_t brick_drain_lanes(const struct brick_drain *d);

/* The consumer lines from *first on, as they are to be written: all `halfway`,
 * then all `whole` (O12). Returns how many, 0 when they stand there already.
 * Both have room for brick_drain_lanes(d). */
uint32_t brick_drain_tails(struct brick_drain *d, int events, uint32_t *first, struct brick_consumer *halfway,
                           struct brick_consumer *whole);

#endif
