/* core/drain.h - one consumer of the rings of a segment.
 *
 * The consumer reads the rings with pread, validates the records and keeps them. It never writes to a segment: it
 * returns the tails, and the caller writes them. If the consumer finds an inconsistency, it refuses the segment
 * permanently, but keeps the records that it read before.
 */
#ifndef BRICKD_DRAIN_H
#define BRICKD_DRAIN_H

#include "segment_copy.h"
#include "cursor.h"
#include "span_details.h"
#include "events.h"
#include "recording_tap.h"

/* One pass reads at most this many event records and checksum slots from a segment. The next pass reads the rest. */
#define BRICK_EVENTS_MAX 65536u

/* One pass copies at most this many slots from all span rings of a segment, and as many from all event rings, whatever
 * the heads claim. Both together are 8 MiB, which takes 2 ms. A default ring has 4,096 slots. */
#define BRICK_PASS_SLOTS 65536u

/* The number of slots copied at once, few enough to stay in the second-level cache until they are read. */
#define BRICK_BATCH 4096u

/* The memory that a pass needs while it runs. There is one for each thread, not one for each segment. */
struct brick_scratch {
    struct brick_record batch[BRICK_BATCH] __attribute__((aligned(64)));
    struct brick_process process;
    struct brick_lane lanes[BRICK_LANES_MAX]; /* the lane lines, in the order of the file */
};

struct brick_drained_lane {
    struct brick_cursor cursor;
    struct brick_consumer line; /* the consumer line as it is in the file when all tails are written */
    uint64_t span_sequence;     /* the sequence of the last span record */
    /* The slots that were read beyond the heads after the writer died: at most one record per ring. */
    uint64_t spans_salvaged, events_salvaged;
};

struct brick_drain {
    struct brick_reader reader;
    struct brick_details details;
    struct brick_events events; /* the records of the last pass */
    struct brick_track track;   /* copies records for a recording, if there is one */
    struct brick_drained_lane *lanes;
    struct brick_scratch *scratch; /* the memory of the running pass */
    uint64_t left[2];              /* how many slots the pass may still copy, by kind of ring */
    uint32_t saved;   /* how many lanes have a cursor from the checkpoint */
    uint32_t started; /* for how many lanes the first slot to read is known */
    uint32_t used;    /* the number of the last lane that a thread has ever owned, plus 1 */
    uint32_t passes;
    uint32_t breaks;  /* how many lanes had lost events before the first pass read them */
    int refused;
    int complete; /* whether the last pass read every ring up to its head */
    int ended;    /* whether the worker ended cleanly */
    int salvage;
    uint64_t activity; /* changes whenever the worker records anything */
    double fill;       /* how full the fullest ring was before the last pass: 1 is full */
    double held;       /* the largest share of any event ring that was read, but is not free yet */
};

/* Opens the segment that d->reader reads. All other fields of `d` must be zeros. If the segment is refused, returns 0
 * and sets the reason in d->reader. */
int brick_drain_open(struct brick_drain *d, uint64_t file_size);
void brick_drain_free(struct brick_drain *d);

/* Sets the cursor of the next lane, before the first pass. Returns 0 if there is no such lane. */
int brick_drain_resume(struct brick_drain *d, const struct brick_cursor *cursor);

/* Reads new records, and copies them unchanged if d->track has a spool. Returns 0 if the segment is or was refused. */
int brick_drain_pass(struct brick_drain *d, struct brick_scratch *scratch);

/* Returns how full the fullest ring is now; 1 is full. Looks at the lanes in use and at the lane after them. Returns 1
 * if the lanes cannot be read. */
double brick_drain_waiting(struct brick_drain *d, struct brick_scratch *scratch);

/* Returns the bytes of memory that a drain uses between two passes. */
uint64_t brick_drain_resident(const struct brick_drain *d);

/* Returns how many lanes have a cursor: those of the checkpoint and those in use. */
uint32_t brick_drain_lanes(const struct brick_drain *d);

/* Computes the consumer lines that changed, from lane *first on, and returns how many they are; 0 if no tail moved. The
 * caller must write all lines of `halfway` before any line of `whole` (O12 in brick_shm.h). Both arrays need room for
 * brick_drain_lanes(d) lines. */
uint32_t brick_drain_tails(struct brick_drain *d, int events, uint32_t *first, struct brick_consumer *halfway,
                           struct brick_consumer *whole);

#endif
