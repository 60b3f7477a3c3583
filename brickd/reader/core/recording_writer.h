/* core/recording_writer.h - writes a recording of bounded size, which is valid at any time.
 *
 * One thread writes, and it may wait for the disk. The writer allocates room in the file with posix_fallocate before it
 * uses the room, and always includes room for END. So even on a full disk the file can be ended, and readers never see
 * an incomplete chunk. If there is no room for a chunk, brick_recorder_append counts it as refused, and
 * brick_recorder_write leaves it in the spool. Other threads may read the numbers below at any time, because each is
 * one word.
 */
#ifndef BRICKD_RECORDING_WRITER_H
#define BRICKD_RECORDING_WRITER_H

#include "brick_shm.h"
#include "recording_format.h"
#include "record_queue.h"

struct brick_recorder {
    int fd;
    struct brick_key key;
    uint64_t limit; /* the limit of the file's size, in bytes */
    uint64_t spare; /* how many bytes below the limit are reserved for brick_recorder_append */
    uint64_t ahead; /* how many bytes are allocated at a time */
    uint64_t taken; /* the end of the allocated room */
    uint64_t dirty; /* from this offset on, all bytes of the file are zeros */
    /* Other threads may read the following fields: */
    uint64_t at; /* where the next chunk begins */
    uint64_t number;
    uint64_t slots; /* how many ring slots are written */
    uint64_t refused_chunks, refused_bytes, refused_slots;
    uint32_t broken; /* 1: another process truncated the file, so nothing more is written */
    uint32_t ended;
};

/* Begins a file. On success, brick_recorder_end or brick_recorder_free will close the descriptor. On failure, returns 0
 * with errno, and the caller must close the descriptor. The caller sets `limit`, `spare` and `ahead` of `r`; all other
 * fields must be zeros. */
int brick_recorder_begin(struct brick_recorder *r, int fd, struct brick_title *title);
/* Writes END, truncates the file to its length and closes it; a second call does nothing. Returns 0 with errno on
 * failure. */
int brick_recorder_end(struct brick_recorder *r);
/* Closes the file without END. */
void brick_recorder_free(struct brick_recorder *r);

/* Appends a chunk. Returns 0 with errno: EFBIG (limit), ESTALE (truncated file), EBADF (ended), or the error of the
 * disk. */
int brick_recorder_append(struct brick_recorder *r, uint32_t kind, uint64_t at_ns, const void *body, uint64_t length);

/* Writes the spool's pieces below `end` while there is room; a piece may become several chunks. Counts the slots that
 * the spool refused since the last call. On failure, returns 0 with the same errno
 * values as brick_recorder_append, and the rest stays in the spool. */
int brick_recorder_write(struct brick_recorder *r, struct brick_spool *spool, uint64_t end);

/* Returns the length of the longest body that the limit still allows. */
uint64_t brick_recorder_left(const struct brick_recorder *r);

#endif
