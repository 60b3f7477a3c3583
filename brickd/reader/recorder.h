/* recorder.h - writes a recording: bounded, whole at every moment, with room taken before it is used.
 *
 * Room is taken with posix_fallocate: a full disk is an error of this call and
 * not a SIGBUS of a later store. Where the room ends what comes is refused and
 * counted; what stands there stays whole.
 *
 * Small things are written (append). What is read from rings is read straight
 * into a window of the file that is mapped here (room, took, commit): it is
 * copied once, and judged where it lies. Nobody else writes there: a recording
 * is its writer's own, as a checkpoint is. Whoever has the right to cut the file
 * under its writer stops the recording, no more: the kernel finds that out when
 * it copies into the window, but for the moment between that copy and the look
 * at it.
 *
 * Every function holds the recorder's lock; room keeps it until commit.
 */
#ifndef BRICKD_RECORDER_H
#define BRICKD_RECORDER_H

#include "brick_shm.h"
#include "recording.h"

#include <pthread.h>

/* Slots of one chunk. */
#define BRICK_RECORDED_SLOTS 16384u

struct brick_recorder {
    pthread_mutex_t mutex;
    int fd;
    int error;      /* of the last refusal */
    int broken;     /* the file cannot be written any more */
    int ended;
    struct brick_key key;
    uint64_t limit; /* of the file, in bytes */
    uint64_t ahead; /* so much room is taken at once */
    uint64_t at;    /* where the next chunk begins */
    uint64_t taken; /* where the room ends */
    uint64_t dirty; /* what lies at and above it are zeros */
    uint64_t number;
    uint64_t refused_chunks, refused_bytes, refused_slots;
    uint8_t *window; /* from window_at to window_end */
    uint64_t window_at, window_end;
    int open; /* room was given, and is not committed */
    struct brick_records records;
    struct brick_sum sum;
    uint64_t slots;
};

/* Begins a file. It owns the descriptor from then on; 0, with errno: it does not, and there is none. */
int brick_recorder_begin(struct brick_recorder *r, int fd, struct brick_title *title, uint64_t limit, uint64_t ahead);
/* END, the file cut to its true length, the descriptor closed. Again: nothing. 0, with errno. */
int brick_recorder_end(struct brick_recorder *r);
/* Gives everything up as it is. */
void brick_recorder_free(struct brick_recorder *r);

/* A whole chunk. 0, with errno: EFBIG the limit, EBADF it was ended, else what the disk said. */
int brick_recorder_append(struct brick_recorder *r, uint32_t kind, uint64_t at_ns, const void *body, uint64_t length);

#endif
