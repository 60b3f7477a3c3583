#include "recording_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t most(uint64_t a, uint64_t b) { return a > b ? a : b; }

static int write_whole(int fd, uint64_t at, const void *bytes, uint64_t length)
{
    const uint8_t *from = bytes;
    while (length > 0) {
        ssize_t put = pwrite(fd, from, length, (off_t)at);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0) {
            errno = put == 0 ? EIO : errno;
            return 0;
        }
        from += put;
        at += (uint64_t)put;
        length -= (uint64_t)put;
    }
    return 1;
}

/* ---- room -------------------------------------------------------------- */

static int take(struct brick_recorder *r, uint64_t end)
{
    int error;
    do
        error = posix_fallocate(r->fd, (off_t)r->taken, (off_t)(end - r->taken));
    while (error == EINTR);
    errno = error;
    if (error != 0)
        return 0;
    r->taken = end;
    return 1;
}

/* Checks that the file still has all the room that was allocated. Returns 0 with errno if not. */
static int uncut(struct brick_recorder *r)
{
    struct stat status;
    if (fstat(r->fd, &status) != 0 || (uint64_t)status.st_size < r->taken)
        brick_store_relaxed32(&r->broken, 1);
    errno = ESTALE;
    return !r->broken;
}

/* Enlarges the file up to `end`, with room for the END chunk after it. Returns 0 with errno on failure. */
static int reach(struct brick_recorder *r, uint64_t end)
{
    const uint64_t needed = end + BRICK_END_BYTES;
    if (!uncut(r))
        return 0;
    if (needed > r->limit) {
        errno = EFBIG;
        return 0;
    }
    return needed <= r->taken || take(r, brick_least(most(needed, r->taken + r->ahead), r->limit)) || take(r, needed);
}

uint64_t brick_recorder_left(const struct brick_recorder *r)
{
    uint64_t used = brick_load_relaxed(&r->at) + sizeof(struct brick_chunk) + BRICK_END_BYTES;
    int closed = brick_load_relaxed32(&r->ended) || brick_load_relaxed32(&r->broken);
    return !closed && used < r->limit ? (r->limit - used) & ~(uint64_t)(BRICK_BLOCK - 1) : 0;
}

/* ---- chunks ------------------------------------------------------------ */

/* Writes the head of a chunk whose body is already written. Returns 0 with errno on failure. */
static int publish(struct brick_recorder *r, struct brick_chunk *head)
{
    static const uint8_t zeros[sizeof *head];
    uint64_t next = r->at + sizeof *head + brick_blocks_of(head->length);
    head->magic = BRICK_CHUNK_MAGIC;
    head->number = r->number;
    brick_chunk_seal(head, &r->key);
    if (next < r->dirty && !write_whole(r->fd, next, zeros, sizeof zeros))
        return 0;
    brick_fence_release(); /* so that a reader that sees the head also sees the body */
    if (!write_whole(r->fd, r->at, head, sizeof *head))
        return 0;
    r->dirty = most(r->dirty, next);
    brick_store_relaxed(&r->at, next);
    brick_add(&r->number, 1);
    return 1;
}

/* Writes a chunk into room that is already allocated. Returns 0 with errno on failure. */
static int put(struct brick_recorder *r, uint32_t kind, uint64_t at_ns, const void *body, uint64_t length)
{
    struct brick_chunk head = {.kind = kind, .at_ns = at_ns, .length = length};
    uint64_t whole = length / BRICK_BLOCK, rest = length % BRICK_BLOCK, begin = r->at + sizeof head;
    const uint8_t *tail = (const uint8_t *)body + length - rest;
    uint8_t padded[BRICK_BLOCK] = {0};
    struct brick_sum sum;
    if (rest > 0)
        memcpy(padded, tail, rest);
    brick_sum_begin(&sum, &r->key);
    brick_sum_add(&sum, body, whole);
    brick_sum_add(&sum, padded, rest > 0);
    head.body_sum = brick_sum_end(&sum);
    r->dirty = most(r->dirty, begin + brick_blocks_of(length));
    return write_whole(r->fd, begin, body, length - rest)
           && write_whole(r->fd, begin + length - rest, padded, rest > 0 ? sizeof padded : 0) && publish(r, &head);
}

int brick_recorder_append(struct brick_recorder *r, uint32_t kind, uint64_t at_ns, const void *body, uint64_t length)
{
    errno = EBADF;
    if (r->ended)
        return 0;
    if (reach(r, r->at + sizeof(struct brick_chunk) + brick_blocks_of(length)) && put(r, kind, at_ns, body, length))
        return 1;
    brick_add(&r->refused_chunks, 1);
    brick_add(&r->refused_bytes, length);
    return 0;
}

/* Writes as many slots of a piece as the limit allows. Returns their number; 0 with errno on failure. */
static uint64_t write_piece(struct brick_recorder *r, const struct brick_chunk *piece)
{
    uint64_t left = brick_recorder_left(r), before = sizeof(struct brick_records) + r->spare;
    uint64_t room = left > before ? (left - before) / sizeof(struct brick_record) : 0;
    uint64_t slots = brick_least(brick_piece_slots(piece), room);
    uint64_t length = sizeof(struct brick_records) + slots * sizeof(struct brick_record);
    errno = r->broken ? ESTALE : EFBIG;
    if (slots == 0 || !reach(r, r->at + sizeof *piece + length))
        return 0;
    return put(r, piece->kind, piece->at_ns, piece + 1, length) ? slots : 0;
}

int brick_recorder_write(struct brick_recorder *r, struct brick_spool *spool, uint64_t end)
{
    errno = EBADF;
    if (r->ended)
        return 0;
    brick_add(&r->refused_slots, brick_spool_charge(spool));
    for (struct brick_chunk *piece; (piece = brick_spool_oldest(spool, end)) != NULL;) {
        uint64_t slots = write_piece(r, piece);
        if (slots == 0)
            return 0;
        brick_spool_took(spool, piece, slots);
        brick_add(&r->slots, slots);
    }
    return 1;
}

/* ---- begin and end ----------------------------------------------------- */

int brick_recorder_begin(struct brick_recorder *r, int fd, struct brick_title *title)
{
    title->magic = BRICK_TITLE_MAGIC;
    title->major = BRICK_RECORDING_MAJOR;
    title->minor = BRICK_RECORDING_MINOR;
    brick_title_seal(title);
    const struct brick_title both[2] = {*title, *title};
    r->fd = fd;
    r->key = brick_title_key(title);
    r->at = r->dirty = BRICK_RECORDING_FIRST;
    return reach(r, r->at) && write_whole(fd, 0, both, sizeof both);
}

int brick_recorder_end(struct brick_recorder *r)
{
    if (r->ended)
        return 1;
    const struct brick_end end = {.chunks = r->number,
                                  .refused_chunks = r->refused_chunks,
                                  .refused_bytes = r->refused_bytes,
                                  .refused_slots = r->refused_slots};
    int whole = uncut(r) && put(r, BRICK_CHUNK_END, brick_now_ns(), &end, sizeof end) && ftruncate(r->fd, (off_t)r->at) == 0;
    int error = errno;
    brick_store_relaxed32(&r->ended, 1);
    close(r->fd);
    errno = error;
    return whole;
}

void brick_recorder_free(struct brick_recorder *r)
{
    if (!r->ended)
        close(r->fd);
}
