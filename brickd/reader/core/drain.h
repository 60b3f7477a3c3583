/* core/drain.h - one consumer of the rings of a segment.
 *
 * The consumer reads with pread, validates and keeps records, and returns the tails to write; it never writes to a
 * segment itself. After an inconsistency, the consumer refuses the segment permanently, but keeps the records read
 * before.
 */
#ifndef BRICKD_DRAIN_H
#define BRICKD_DRAIN_H

#include "segment_copy.h"
#include "cursor.h"
#include "span_details.h"
#include "events.h"
#include "recording_tap.h"

/* The limit of event records and checksum slots that one pass reads from a segment; the next pass reads the rest. */
#define BRICK_EVENTS_MAX 65536u

/* The limit of slots that one pass copies from all rings of one kind in a segment, whatever the heads claim: 8 MiB in
 * total, which takes 2 ms. A default ring has 4,096 slots. */
#define BRICK_PASS_SLOTS 65536u

/* The number of slots copied at once, few enough to stay in the second-level cache until they are read. */
#define BRICK_BATCH 4096u

/* The memory of a running pass: one per thread, not per segment. */
struct brick_scratch {
    struct brick_record batch[BRICK_BATCH] __attribute__((aligned(64)));
    struct brick_process process;
    struct brick_lane lanes[BRICK_LANES_MAX]; /* the lane lines, in the order of the file */
};

struct brick_drained_lane {
    struct brick_cursor cursor;
    struct brick_consumer line; /* the consumer line in the file after all tails are written */
    uint64_t span_sequence;     /* the end time of the last span record */
    /* Slots read beyond the head of a dead writer, at most one record per ring. */
    uint64_t spans_salvaged, events_salvaged;
};

struct brick_drain {
    struct brick_reader reader;
    struct brick_details details;
    struct brick_events events; /* records of the last pass */
    struct brick_track track;   /* copies records for a recording, if there is one */
    struct brick_drained_lane *lanes;
    struct brick_scratch *scratch; /* the scratch memory of the running pass */
    uint64_t left[2];              /* slots that the pass may still copy, by kind of ring */
    uint32_t saved;   /* the number of lanes with a cursor from a checkpoint */
    uint32_t started; /* the number of lanes whose start of reading is set */
    uint32_t used;    /* the number of lanes that threads have owned */
    uint32_t passes;
    uint32_t breaks;  /* the number of lanes whose first events were missing */
    int refused;
    int complete; /* whether the last pass reached every head */
    int ended;    /* whether the worker ended cleanly */
    int salvage;
    uint64_t activity; /* changes whenever anything is recorded */
    double fill;       /* the largest share of a ring's room that the last pass consumed */
    double held;       /* the largest share of an event ring that is read but not freed */
};

/* Opens the segment at the source of d->reader; all other fields must be zeros. Returns 0 and sets the reader's reason
 * if the segment is refused. */
int brick_drain_open(struct brick_drain *d, uint64_t file_size);
void brick_drain_free(struct brick_drain *d);

/* Sets the cursor of the next lane, before the first pass. Returns 0 if there is no such lane. */
int brick_drain_resume(struct brick_drain *d, const struct brick_cursor *cursor);

/* Reads new records, and copies them unchanged if d->track has a spool. Returns 0 if the segment is or was refused. */
int brick_drain_pass(struct brick_drain *d, struct brick_scratch *scratch);

/* Returns the share of the fullest ring that a pass would read, over the used lanes and the next one; 1 if unknown. */
double brick_drain_waiting(struct brick_drain *d, struct brick_scratch *scratch);

/* Returns the bytes of memory that a drain uses between two passes. */
uint64_t brick_drain_resident(const struct brick_drain *d);

/* Returns the number of lanes with a cursor, from the checkpoint or because they are in use. */
uint32_t brick_drain_lanes(const struct brick_drain *d);

/* Sets the consumer lines to write from lane *first on: all of `halfway`, then all of `whole` (O12). Returns the number
 * of these lines; 0 if nothing moved. Both arrays need room for brick_drain_lanes(d) lines. */
uint32_t brick_drain_tails(struct brick_drain *d, int events, uint32_t *first, struct brick_consumer *halfway,
                           struct brick_consumer *whole);

#endif
