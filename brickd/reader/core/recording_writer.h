/* core/recording_writer.h - writes a recording of bounded size, which is valid at any time.
 *
 * One thread writes, and it may wait for the disk. The writer allocates room with posix_fallocate before it uses the
 * room, always including room for END. So even on a full disk the file can be ended, and readers never see an
 * incomplete chunk. A chunk without room is counted (append) or stays in the spool (write). Other threads may read the
 * numbers at any time, because each is one word.
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
    uint64_t spare; /* the part of the limit that pieces leave to appended chunks */
    uint64_t ahead; /* how many bytes are allocated at once */
    uint64_t taken; /* the end of the allocated room */
    uint64_t dirty; /* all bytes are zeros from here on */
    /* Other threads may read these. */
    uint64_t at; /* where the next chunk begins */
    uint64_t number;
    uint64_t slots; /* ring slots written */
    uint64_t refused_chunks, refused_bytes, refused_slots;
    uint32_t broken; /* 1: the file was truncated by another process, so writing stops */
    uint32_t ended;
};

/* Begins a file and takes over the descriptor. On failure, returns 0 with errno, and the descriptor stays the
 * caller's. The caller sets `limit`, `spare` and `ahead` of `r`; all other fields are zeros. */
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
 * the spool refused since the last call. Returns 0 with errno as for append; then the rest stays in the spool. */
int brick_recorder_write(struct brick_recorder *r, struct brick_spool *spool, uint64_t end);

/* Returns the length of the longest body that the limit still allows. */
uint64_t brick_recorder_left(const struct brick_recorder *r);

#endif
