/* ring.c - a segment with a full span ring, and two references for the speed of its drain.
 *
 * One reference is pread in pieces of the same size into memory that stays allocated. The other is memcpy of the same
 * number of bytes.
 */
#include "core/drain.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct brick_layout layout;
static uint64_t slots;
static int segment = -1;
static struct brick_record *source, *target; /* the memory that memcpy copies from and to */
static struct brick_record batch[BRICK_BATCH] __attribute__((aligned(64)));

static uint64_t state = 1;

static uint64_t random64(void) /* splitmix64 */
{
    uint64_t z = state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* Fills the ring with spans of the paths in random order. The durations of all spans together cover twelve octaves; the
 * durations of one path cover two. */
static void spans_make(struct brick_span *spans, uint32_t paths)
{
    for (uint64_t i = 0; i < slots; i++) {
        uint32_t path = (uint32_t)(random64() % paths);
        uint64_t shortest = UINT64_C(256) << path % 12;
        spans[i] = (struct brick_span){.sequence = i + 1,
                                       .path = path,
                                       .slots = 1,
                                       .kind = BRICK_KIND_SPAN,
                                       .start = 1000000 + i * 100,
                                       .duration = shortest + random64() % (3 * shortest),
                                       .child = shortest / 2,
                                       .step = i / 128,
                                       .elements = i % 4096,
                                       .bytes = 64};
    }
}

/* Makes a segment without a name, with its memory allocated as a worker does it. Returns the descriptor, or -1. */
int make_segment(const char *path, uint32_t span_slots, uint32_t paths)
{
    struct brick_header header = {.magic = BRICK_MAGIC,
                                  .endian = BRICK_ENDIAN,
                                  .major = BRICK_MAJOR,
                                  .minor = BRICK_MINOR,
                                  .layout_crc = brick_layout_crc(),
                                  .lanes = 1,
                                  .paths = 1024,
                                  .names = 64,
                                  .sites = 64,
                                  .span_slots = span_slots,
                                  .event_slots = 64,
                                  .buckets = BRICK_BUCKETS,
                                  .clock = BRICK_CLOCK_MONOTONIC};
    struct brick_lane lane = {.opened = 1, .span_head = span_slots, .span_attempts = span_slots};
    if (!brick_layout_compute(&header, &layout))
        return -1;
    slots = span_slots;
    header.size = layout.size;
    header.header_crc = brick_header_crc(&header);
    source = malloc(slots * sizeof *source);
    target = malloc(slots * sizeof *target);
    segment = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (source == NULL || target == NULL || segment < 0 || unlink(path) != 0
        || posix_fallocate(segment, 0, (off_t)layout.size) != 0)
        return -1;
    spans_make((struct brick_span *)(void *)source, paths);
    memset(target, 0, slots * sizeof *target);
    size_t bytes = slots * sizeof *source;
    off_t ring = (off_t)(layout.first + layout.span_ring);
    int whole = pwrite(segment, source, bytes, ring) == (ssize_t)bytes
                && pwrite(segment, &lane, sizeof lane, (off_t)layout.lanes) == (ssize_t)sizeof lane
                && pwrite(segment, &header, sizeof header, 0) == (ssize_t)sizeof header;
    return whole ? segment : -1;
}

void read_ring(uint64_t times)
{
    for (; times > 0; times--)
        for (uint64_t at = 0; at < slots; at += BRICK_BATCH)
            if (pread(segment, batch, sizeof batch, (off_t)(layout.first + layout.span_ring + at * sizeof *batch))
                != (ssize_t)sizeof batch)
                abort();
}

void copy_ring(uint64_t times)
{
    for (; times > 0; times--) {
        memcpy(target, source, slots * sizeof *source);
        __asm__ volatile("" : : "r"(target) : "memory"); /* keeps the compiler from removing the copy */
    }
}
