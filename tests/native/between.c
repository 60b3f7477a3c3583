/* between.c - a reader that calls the test before each read, so that the test can change the file. */
#include "core/segment_copy.h"

#include <string.h>

static void (*test)(void);

static int read_late(const struct brick_source *source, uint64_t offset, void *to, uint64_t length)
{
    test();
    return brick_source_of(source->fd).read(source, offset, to, length);
}

static int opened(struct brick_reader *r, int fd, void (*before)(void))
{
    memset(r, 0, sizeof *r);
    r->source = brick_source_of(fd);
    const struct brick_header *h = &r->header;
    if (!brick_fetch(r, 0, &r->header, sizeof r->header) || !brick_reader_open(r, h->size))
        return 0;
    test = before;
    r->source.read = read_late;
    return 1;
}

/* Does the same as brick_reader_summaries, and copies the reason of a refusal to `reason`, which has 200 bytes. */
int between_summaries(int fd, void (*before)(void), uint32_t count, struct brick_summary *into, struct brick_doubt *doubt,
                      char *reason);
int between_summaries(int fd, void (*before)(void), uint32_t count, struct brick_summary *into, struct brick_doubt *doubt,
                      char *reason)
{
    struct brick_reader r;
    const int whole = opened(&r, fd, before) && brick_reader_summaries(&r, 0, count, into, doubt);
    memcpy(reason, r.reason, sizeof r.reason);
    return whole;
}

/* Does the same as brick_reader_ring, for lane 0. */
int64_t between_ring(int fd, void (*before)(void), int events, struct brick_record *to, uint64_t *first, char *reason);
int64_t between_ring(int fd, void (*before)(void), int events, struct brick_record *to, uint64_t *first, char *reason)
{
    struct brick_reader r;
    const int64_t count = opened(&r, fd, before) ? brick_reader_ring(&r, 0, events, to, first) : -1;
    memcpy(reason, r.reason, sizeof r.reason);
    return count;
}
