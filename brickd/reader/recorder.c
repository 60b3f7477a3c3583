#include "recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t most(uint64_t a, uint64_t b) { return a > b ? a : b; }

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* 0, with errno. */
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

/* 0, with errno. */
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

/* Whether the file is as long as it was made. */
static int uncut(struct brick_recorder *r)
{
    struct stat status;
    r->broken |= fstat(r->fd, &status) != 0 || (uint64_t)status.st_size < r->taken;
    errno = ESTALE;
    return !r->broken;
}

/* Room up to `end`, and for END behind it. 0, with errno. */
static int reach(struct brick_recorder *r, uint64_t end)
{
    uint64_t wanted = end + BRICK_END_BYTES;
    if (!uncut(r))
        return 0;
    if (wanted > r->limit) {
        errno = EFBIG;
        return 0;
    }
    return wanted <= r->taken || take(r, least(most(wanted, r->taken + r->ahead), r->limit)) || take(r, wanted);
}

/* The head of the chunk whose body stands there, and with it the body's first block where that is not there. */
static int publish(struct brick_recorder *r, struct brick_chunk *head, const struct brick_records *records)
{
    static const uint8_t zeros[sizeof *head];
    uint64_t next = r->at + sizeof *head + brick_blocks_of(head->length);
    struct {
        struct brick_chunk head;
        struct brick_records records;
    } first;
    head->magic = BRICK_CHUNK_MAGIC;
    head->number = r->number;
    brick_chunk_seal(head, &r->key);
    first.head = *head;
    if (records != NULL)
        first.records = *records;
    if (next < r->dirty && !write_whole(r->fd, next, zeros, sizeof zeros))
        return 0;
    brick_fence_release(); /* who sees the head sees the body, which was stored or copied before */
    if (!write_whole(r->fd, r->at, &first, records != NULL ? sizeof first : sizeof first.head))
        return 0;
    r->at = next;
    r->dirty = most(r->dirty, next);
    r->number++;
    return 1;
}

static int append(struct brick_recorder *r, uint32_t kind, uint64_t at_ns, const void *body, uint64_t length)
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
           && write_whole(r->fd, begin + length - rest, padded, rest > 0 ? sizeof padded : 0)
           && publish(r, &head, NULL);
}

int brick_recorder_append(struct brick_recorder *r, uint32_t kind, uint64_t at_ns, const void *body, uint64_t length)
{
    pthread_mutex_lock(&r->mutex);
    int whole = 0;
    errno = EBADF;
    if (!r->ended)
        whole = reach(r, r->at + sizeof(struct brick_chunk) + brick_blocks_of(length))
                && append(r, kind, at_ns, body, length);
    int error = errno;
    if (!whole && !r->ended) {
        r->refused_chunks++;
        r->refused_bytes += length;
        r->error = error;
    }
    pthread_mutex_unlock(&r->mutex);
    errno = error;
    return whole;
}

/* ---- the window -------------------------------------------------------- */

static void unmap(struct brick_recorder *r)
{
    if (r->window != NULL)
        munmap(r->window, r->window_end - r->window_at);
    r->window = NULL;
}

/* From where the next chunk begins as far as there is room. 0, with errno. */
static int map(struct brick_recorder *r)
{
    unmap(r);
    r->window_at = r->at - r->at % BRICK_PAGE;
    r->window_end = r->taken;
    void *window = mmap(NULL, r->window_end - r->window_at, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd,
                        (off_t)r->window_at);
    if (window == MAP_FAILED)
        return 0;
    r->window = window;
    return 1;
}

void brick_recorder_ready(struct brick_recorder *r)
{
    pthread_mutex_lock(&r->mutex);
    if (!r->ended && r->window == NULL)
        map(r);
    pthread_mutex_unlock(&r->mutex);
}

uint8_t *brick_recorder_place(struct brick_recorder *r, uint64_t bytes)
{
    uint64_t end = r->at + bytes;
    if (r->ended)
        return NULL;
    if (!reach(r, end) || ((r->window == NULL || r->window_end < end) && !map(r))) {
        r->error = errno;
        return NULL;
    }
    r->dirty = most(r->dirty, end);
    return r->window + (r->at - r->window_at);
}

int brick_recorder_publish(struct brick_recorder *r, struct brick_chunk *head, const struct brick_records *records)
{
    head->at_ns = now_ns();
    if (publish(r, head, records))
        return 1;
    r->error = errno;
    return 0;
}

/* ---- its life ---------------------------------------------------------- */

int brick_recorder_begin(struct brick_recorder *r, int fd, struct brick_title *title, uint64_t limit, uint64_t ahead)
{
    memset(r, 0, sizeof *r);
    title->magic = BRICK_TITLE_MAGIC;
    title->major = BRICK_RECORDING_MAJOR;
    title->minor = BRICK_RECORDING_MINOR;
    brick_title_seal(title);
    const struct brick_title both[2] = {*title, *title};
    r->fd = fd;
    r->limit = limit;
    r->ahead = ahead;
    r->key = brick_title_key(title);
    r->at = r->dirty = BRICK_RECORDING_FIRST;
    if (!reach(r, r->at) || !write_whole(fd, 0, both, sizeof both))
        return 0;
    errno = pthread_mutex_init(&r->mutex, NULL);
    return errno == 0;
}

int brick_recorder_end(struct brick_recorder *r)
{
    pthread_mutex_lock(&r->mutex);
    int whole = 1, error = 0;
    if (!r->ended) {
        const struct brick_end end = {.chunks = r->number,
                                      .refused_chunks = r->refused_chunks,
                                      .refused_bytes = r->refused_bytes,
                                      .refused_slots = r->refused_slots};
        whole = uncut(r) && append(r, BRICK_CHUNK_END, now_ns(), &end, sizeof end)
                && ftruncate(r->fd, (off_t)r->at) == 0;
        error = errno;
        r->ended = 1;
        unmap(r);
        close(r->fd);
    }
    pthread_mutex_unlock(&r->mutex);
    errno = error;
    return whole;
}

void brick_recorder_free(struct brick_recorder *r)
{
    unmap(r);
    if (!r->ended)
        close(r->fd);
    pthread_mutex_destroy(&r->mutex);
}
