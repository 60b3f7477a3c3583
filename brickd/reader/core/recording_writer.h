/* core/recording_writer.h - writes a recording: bounded, whole at every moment, with room taken before it is used.
 *
 * One thread writes, and may wait for the disk as long as that takes. Room is
 * taken with posix_fallocate, that of END always: so a full disk leaves a file
 * that can be ended, and what is not whole in it is seen by nobody. What a chunk
 * finds no room for is counted (append), or stays where it was (write).
 *
 * Who reads the numbers waits for nothing: each is stored as one word, and is
 * right for itself.
 */
#ifndef BRICKD_RECORDING_WRITER_H
#define BRICKD_RECORDING_WRITER_H

#include "brick_shm.h"
#include "recording_format.h"
#include "record_queue.h"

struct brick_recorder {
    int fd;
    struct brick_key key;
    uint64_t limit; /* of the file, in bytes */
    uint64_t spare; /* what is written leaves so much of it to what is appended */
    uint64_t ahead; /* so much room is taken at once */
    uint64_t taken; /* where the room ends */
    uint64_t dirty; /* what lies at and above it are zeros */
    /* Others may read these. */
    uint64_t at; /* where the next chunk begins */
    uint64_t number;
    uint64_t slots; /* of rings, that are written */
    uint64_t refused_chunks, refused_bytes, refused_slots;
    uint32_t broken; /* somebody cut the file: nothing more is written into it */
    uint32_t ended;
};

/* Begins a file. It owns the descriptor from then on; 0, with errno: it does not, and there is none. `r` has its limit,
 * spare and ahead; everything else is zeros. */
int brick_recorder_begin(struct brick_recorder *r, int fd, struct brick_title *title);
/* END, the file cut to its true length, the descriptor closed. Again: nothing. 0, with errno. */
int brick_recorder_end(struct brick_recorder *r);
/* Gives everything up as it is. */
void brick_recorder_free(struct brick_recorder *r);

/* A whole chunk. 0, with errno: EFBIG the limit, ESTALE somebody cut the file, EBADF it was ended, else what the disk
 * said. */
int brick_recorder_append(struct brick_recorder *r, uint32_t kind, uint64_t at_ns, const void *body, uint64_t length);

/* What a spool has below `end`, the oldest first, as far as there is room: a piece may come to be several chunks. What
 * was refused there since the last call is this file's. 0, with errno as above: the rest is in the spool still. */
int brick_recorder_write(struct brick_recorder *r, struct brick_spool *spool, uint64_t end);

/* The longest body that the limit allows now. */
uint64_t brick_recorder_left(const struct brick_recorder *r);

#endif
