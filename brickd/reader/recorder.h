/* recorder.h - writes a recording: bounded, whole at every moment, with room taken before it is used.
 *
 * Room is taken with posix_fallocate: a full disk is an error of this call and
 * not a SIGBUS of a later store. Where the room ends what comes is refused and
 * counted; what stands there stays whole.
 *
 * Small things are written (append). What is read from rings is read straight
 * into a window of the file that is mapped here (place, publish): it is copied
 * once, and judged where it lies. Nobody else writes there: a recording is its
 * writer's own, as a checkpoint is. Whoever cuts the file under its writer stops
 * the recording, and no more: the kernel finds that out when it copies into the
 * window, but for the moment between that copy and the look at it.
 */
#ifndef BRICKD_RECORDER_H
#define BRICKD_RECORDER_H

#include "brick_shm.h"
#include "recording.h"

#include <pthread.h>

struct brick_recorder {
    pthread_mutex_t mutex;
    int fd;
    int error;      /* of the last refusal */
    int broken;     /* somebody cut the file: nothing more is written into it */
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
};

/* Begins a file. It owns the descriptor from then on; 0, with errno: it does not, and there is none. */
int brick_recorder_begin(struct brick_recorder *r, int fd, struct brick_title *title, uint64_t limit, uint64_t ahead);
/* END, the file cut to its true length, the descriptor closed. Again: nothing. 0, with errno. */
int brick_recorder_end(struct brick_recorder *r);
/* Gives everything up as it is. */
void brick_recorder_free(struct brick_recorder *r);

/* A whole chunk. 0, with errno: EFBIG the limit, ESTALE somebody cut the file, EBADF it was ended, else what the disk
 * said. */
int brick_recorder_append(struct brick_recorder *r, uint32_t kind, uint64_t at_ns, const void *body, uint64_t length);

/* The window is there before the first piece is: to map it takes longer than to use it. */
void brick_recorder_ready(struct brick_recorder *r);

/* ---- in pieces, with the lock held ------------------------------------- */

/* So many bytes where the next chunk begins, of which the head is not to be touched; NULL, with r->error. */
uint8_t *brick_recorder_place(struct brick_recorder *r, uint64_t bytes);
/* The chunk is there whose body stands in that place, but for its beginning: kind, length and body_sum are set. 0, with
 * r->error. */
int brick_recorder_publish(struct brick_recorder *r, struct brick_chunk *head, const struct brick_records *records);

#endif
