#include "segment_copy.h"
#include "summary_math.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A summary is copied again if it changed during the copy. After this many copies, it is accepted as it is. */
#define TRIES 16
/* How many names are read at a time: 32 KiB, so that the second read finds them in the cache. */
#define NAMES_AT_ONCE 256u
/* How many ring slots are copied between two checks for a hole: 16 KiB. */
#define SLOTS_AT_ONCE 256u
#define FLOPS_MAX 0x1p142 /* 2^62 spans with 2^80 operations each */

int brick_refuse(struct brick_reader *r, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(r->reason, sizeof r->reason, format, values);
    va_end(values);
    return 0;
}

static int read_fd(const struct brick_source *source, uint64_t offset, void *to, uint64_t length)
{
    uint8_t *at = (uint8_t *)to;
    while (length > 0) {
        ssize_t got = pread(source->fd, at, length, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) /* 0 bytes: the file was truncated during the read */
            return 0;
        at += got;
        offset += (uint64_t)got;
        length -= (uint64_t)got;
    }
    return 1;
}

static uint64_t data_fd(const struct brick_source *source, uint64_t offset)
{
    off_t at = lseek(source->fd, (off_t)offset, SEEK_DATA);
    if (at >= 0)
        return (uint64_t)at;
    return errno == ENXIO ? UINT64_MAX : offset; /* another error means that the file system has no holes */
}

struct brick_source brick_source_of(int fd) { return (struct brick_source){.read = read_fd, .data = data_fd, .fd = fd}; }

/* Returns the first offset in [from, to) with data, or `to`. */
static uint64_t data_within(const struct brick_reader *r, uint64_t from, uint64_t to)
{
    uint64_t at = r->source.data == NULL ? from : r->source.data(&r->source, from);
    return at < to ? at : to;
}

int brick_fetch(struct brick_reader *r, uint64_t offset, void *to, uint64_t length)
{
    r->fetched += length;
    if (r->source.read(&r->source, offset, to, length))
        return 1;
    return brick_refuse(r, "cannot read %llu bytes at %llu: the file was truncated or is unreadable",
                        (unsigned long long)length, (unsigned long long)offset);
}

static uint32_t layout_crc(void)
{
    static uint32_t known; /* 0 until it is computed; every thread computes the same value */
    uint32_t crc = brick_load_relaxed32(&known);
    if (crc == 0)
        brick_store_relaxed32(&known, crc = brick_layout_crc());
    return crc;
}

int brick_reader_open(struct brick_reader *r, uint64_t file_size)
{
    struct brick_header *h = &r->header;
    if (file_size < sizeof *h)
        return brick_refuse(r, "has %llu bytes, expected at least a header of %zu", (unsigned long long)file_size, sizeof *h);
    if (!brick_fetch(r, 0, &h->magic, sizeof h->magic))
        return 0;
    brick_fence_acquire(); /* O2 in brick_shm.h: read the magic alone first, and then the header */
    if (h->magic == 0)
        return brick_refuse(r, "not published yet: its worker is starting, or died while it started");
    if (!brick_fetch(r, 0, h, sizeof *h))
        return 0;
    if (h->magic != BRICK_MAGIC)
        return brick_refuse(r, "not a segment: magic is %016llx, expected %016llx", (unsigned long long)h->magic,
                            (unsigned long long)BRICK_MAGIC);
    if (h->endian != BRICK_ENDIAN)
        return brick_refuse(r, "written on a machine of another byte order");
    if (h->major != BRICK_MAJOR)
        return brick_refuse(r, "format %u.%u, this brickd reads %u.x: install a brickd of that version", h->major,
                            h->minor, BRICK_MAJOR);
    if (h->header_crc != brick_header_crc(h))
        return brick_refuse(r, "the header is damaged: its checksum is %08x, expected %08x", brick_header_crc(h),
                            h->header_crc);
    if (h->layout_crc != layout_crc())
        return brick_refuse(r, "layout %08x of format %u.%u, expected %08x: install a brickd of the agent's version", h->layout_crc, h->major,
                            h->minor, layout_crc());
    if (!brick_layout_compute(h, &r->layout))
        return brick_refuse(r, "impossible counts: %u lanes, %u paths, %u names, %u sites, %u and %u slots, %u buckets",
                            h->lanes, h->paths, h->names, h->sites, h->span_slots, h->event_slots, h->buckets);
    if (r->layout.size != h->size || r->layout.size != file_size)
        return brick_refuse(r, "the file has %llu bytes, but its header says %llu, and its counts need %llu",
                            (unsigned long long)file_size, (unsigned long long)h->size,
                            (unsigned long long)r->layout.size);
    if (h->clock < BRICK_CLOCK_TSC || h->clock > BRICK_CLOCK_MONOTONIC)
        return brick_refuse(r, "clock kind %u is unknown", h->clock);
    return 1;
}

int brick_reader_process(struct brick_reader *r, struct brick_process *to)
{
    return brick_fetch(r, r->layout.process, to, sizeof *to);
}

int brick_reader_lanes(struct brick_reader *r, struct brick_lane *lanes, struct brick_consumer *consumers)
{
    return brick_fetch(r, r->layout.lanes, lanes, r->header.lanes * sizeof *lanes)
           && (consumers == NULL
               || brick_fetch(r, r->layout.consumers, consumers, r->header.lanes * sizeof *consumers));
}

/* ---- tables ------------------------------------------------------------ */

uint32_t brick_reader_rows(const struct brick_reader *r, enum brick_table table, uint64_t claimed)
{
    const uint64_t starts[] = {r->layout.names, r->layout.paths, r->layout.sites}, start = starts[table];
    const uint32_t rooms[] = {r->header.names, r->header.paths, r->header.sites}, room = rooms[table];
    const uint64_t size = table == BRICK_NAMES ? sizeof(struct brick_name) : sizeof(uint64_t);
    const uint64_t rows = claimed < room ? claimed : room, end = start + rows * size;
    uint64_t known = r->source.data == NULL ? end : start;
    for (uint64_t at = known; (at = data_within(r, at, end)) < end; at = known)
        known = at / BRICK_PAGE * BRICK_PAGE + BRICK_PAGE;
    return (uint32_t)(known < end ? (known - start) / size : rows);
}

/* Reads all names twice, and uses the words of the first read and the texts of the second one (O3 in brick_shm.h). A
 * single read might return a text that is older than its word. */
static int names_read(struct brick_reader *r, struct brick_name *to, uint32_t first, uint32_t count)
{
    uint32_t words[NAMES_AT_ONCE];
    const uint64_t at = r->layout.names + first * (uint64_t)sizeof *to, end = at + count * sizeof *to;
    if (data_within(r, at, end) == end)
        return 1;
    if (!brick_fetch(r, at, to, count * sizeof *to))
        return 0;
    for (uint32_t i = 0; i < count; i++)
        words[i] = to[i].word;
    brick_fence_acquire();
    if (!brick_fetch(r, at, to, count * sizeof *to))
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        to[i].word = words[i];
        if ((words[i] & BRICK_NAME_READY) != 0 && (words[i] & BRICK_NAME_LENGTH) > BRICK_NAME_MAX)
            return brick_refuse(r, "name %u has %u bytes, expected at most %u", first + i, words[i] & BRICK_NAME_LENGTH,
                                BRICK_NAME_MAX);
    }
    return 1;
}

int brick_reader_names(struct brick_reader *r, struct brick_name *to, uint32_t count)
{
    for (uint32_t first = 0; first < count; first += NAMES_AT_ONCE) {
        const uint32_t left = count - first;
        if (!names_read(r, to + first, first, left < NAMES_AT_ONCE ? left : NAMES_AT_ONCE))
            return 0;
    }
    return 1;
}

/* Refuses a path whose id is not above the id of its parent, so a walk from a path to the root always ends. */
int brick_reader_keys(struct brick_reader *r, enum brick_table table, uint64_t *to, uint32_t count, uint32_t names)
{
    const int paths = table == BRICK_PATHS;
    if (!brick_fetch(r, paths ? r->layout.paths : r->layout.sites, to, count * sizeof *to))
        return 0;
    brick_fence_acquire(); /* O3: whatever a key refers to is complete */
    for (uint32_t n = 0; n < count; n++) {
        if ((to[n] & BRICK_KEY_READY) == 0)
            continue;
        const uint32_t parent = paths ? brick_key_parent(to[n]) : BRICK_ROOT;
        if (parent != BRICK_ROOT && parent >= n)
            return brick_refuse(r, "path %u is below path %u, which is newer", n, parent);
        if (brick_key_name(to[n]) >= names)
            return brick_refuse(r, "%s %u has name %u, expected a name below %u", paths ? "path" : "site", n,
                                brick_key_name(to[n]), names);
    }
    return 1;
}

/* ---- summaries --------------------------------------------------------- */

/* Validates a summary. `changes`: how many spans may have been added to it during the copy. */
static int summary_check(struct brick_reader *r, uint32_t lane, uint32_t path, const struct brick_summary *s,
                       uint64_t changes)
{
    static const uint64_t limit = UINT64_C(1) << 62;
    uint64_t spans = 0;
    for (uint32_t b = 0; b < BRICK_BUCKETS; b++) {
        if (s->histogram[b] > limit - spans) /* check before each addition: a wrapped sum could equal the count */
            return brick_refuse(r, "lane %u, path %u: the histogram has more than 2^62 spans, with %llu in bucket %u", lane,
                                path, (unsigned long long)s->histogram[b], b);
        spans += s->histogram[b];
    }
    uint64_t apart = spans > s->count ? spans - s->count : s->count - spans;
    if (s->count > limit || apart > changes)
        return brick_refuse(r, "lane %u, path %u: the histogram has %llu spans, expected %llu", lane, path,
                            (unsigned long long)spans, (unsigned long long)s->count);
    if (s->total > limit || s->child > limit || s->again > limit || s->min > limit || s->max > limit)
        return brick_refuse(r, "lane %u, path %u: a time is above 2^62 ticks", lane, path);
    if (!(s->squares >= 0 && s->squares <= 0x1p124)) /* 2^124: the square of 2^62 ticks */
        return brick_refuse(r, "lane %u, path %u: the sum of squares is %g", lane, path, s->squares);
    if (!(brick_summary_flops(s) >= 0 && brick_summary_flops(s) <= FLOPS_MAX))
        return brick_refuse(r, "lane %u, path %u: %g floating-point operations", lane, path, brick_summary_flops(s));
    if (changes == 0 && s->count > 0 && (s->min > s->max || s->total < s->max || s->again > s->total))
        return brick_refuse(r, "lane %u, path %u: minimum %llu, maximum %llu, total %llu and again %llu contradict",
                            lane, path, (unsigned long long)s->min, (unsigned long long)s->max,
                            (unsigned long long)s->total, (unsigned long long)s->again);
    return 1;
}

/* Reads the sequence of a summary, then the summary, then its sequence again (O8 in brick_shm.h). */
static int summary_read(struct brick_reader *r, uint64_t sequences, uint64_t summaries, uint32_t path,
                      struct brick_summary *s, uint64_t *before, uint64_t *after)
{
    if (!brick_fetch(r, sequences + path * (uint64_t)8, before, 8))
        return 0;
    brick_fence_acquire();
    if (!brick_fetch(r, summaries + path * (uint64_t)sizeof *s, s, sizeof *s))
        return 0;
    brick_fence_acquire();
    return brick_fetch(r, sequences + path * (uint64_t)8, after, 8);
}

/* Returns the first path, from `first` on, of a block that has data, or `count` if there is none. `first` and the
 * result are multiples of BRICK_BLOCK. */
static uint32_t next_block(const struct brick_reader *r, uint32_t lane, uint32_t first, uint32_t count)
{
    const uint64_t size = sizeof(struct brick_summary);
    const uint64_t table = r->layout.first + lane * r->layout.stride + r->layout.summaries, end = table + count * size;
    const uint64_t at = data_within(r, table + first * size, end);
    return at == end ? count : (uint32_t)((at - table) / size) / BRICK_BLOCK * BRICK_BLOCK;
}

int brick_reader_whole(struct brick_reader *r)
{
    uint8_t last;
    return brick_fetch(r, r->layout.size - 1, &last, 1);
}

uint32_t brick_reader_blocks(const struct brick_reader *r, uint32_t lane, uint32_t count)
{
    uint32_t blocks = 0;
    for (uint32_t first = 0; first < count && (first = next_block(r, lane, first, count)) < count; first += BRICK_BLOCK)
        blocks++;
    return blocks;
}

static int block_add(struct brick_reader *r, uint32_t lane, uint32_t first, uint32_t count, struct brick_summary *into,
                     struct brick_doubt *doubt, struct brick_summary *copy)
{
    uint64_t area = r->layout.first + lane * r->layout.stride;
    uint64_t sequences = area + r->layout.sequences, summaries = area + r->layout.summaries;
    uint64_t before[BRICK_BLOCK], after[BRICK_BLOCK];
    if (!brick_fetch(r, sequences + first * (uint64_t)8, before, count * (uint64_t)8))
        return 0;
    uint64_t any = 0;
    for (uint32_t i = 0; i < count; i++)
        any |= before[i];
    if (any == 0) /* the block was never written; do not read it, because it may be a hole */
        return 1;
    brick_fence_acquire(); /* O8, for all summaries of the block at once */
    if (!brick_fetch(r, summaries + first * (uint64_t)sizeof *copy, copy, count * (uint64_t)sizeof *copy))
        return 0;
    brick_fence_acquire();
    if (!brick_fetch(r, sequences + first * (uint64_t)8, after, count * (uint64_t)8))
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        for (int tries = 0; tries < TRIES && (before[i] != after[i] || before[i] % 2 != 0); tries++)
            if (!summary_read(r, sequences, summaries, first + i, &copy[i], &before[i], &after[i]))
                return 0;
        uint64_t changes = (after[i] - before[i] + before[i] % 2 + 1) / 2;
        doubt->odd += before[i] == after[i] && before[i] % 2 != 0;
        doubt->moving += before[i] != after[i];
        if (!summary_check(r, lane, first + i, &copy[i], changes))
            return 0;
        brick_summary_add(&into[first + i], &copy[i]);
    }
    return 1;
}

int brick_reader_summaries(struct brick_reader *r, uint32_t lane, uint32_t count, struct brick_summary *into,
                           struct brick_doubt *doubt)
{
    struct brick_summary *copy = (struct brick_summary *)malloc(BRICK_BLOCK * sizeof *copy);
    if (copy == NULL)
        return brick_refuse(r, "no memory");
    int whole = 1;
    for (uint32_t first = 0; whole && first < count; first += BRICK_BLOCK) {
        first = next_block(r, lane, first, count);
        if (first >= count)
            break;
        uint32_t left = count - first;
        whole = block_add(r, lane, first, left < BRICK_BLOCK ? left : BRICK_BLOCK, into, doubt, copy);
    }
    free(copy);
    return whole;
}

/* ---- rings ------------------------------------------------------------- */

/* Sets *position to the first record that the writer may not overwrite. Returns 0 if this position is not known, and -1
 * if the segment is refused. */
static int ring_tail(struct brick_reader *r, uint32_t lane, int events, uint64_t head, uint64_t slots,
                     uint64_t *position)
{
    struct brick_consumer consumer;
    if (!brick_fetch(r, r->layout.consumers + lane * (uint64_t)sizeof consumer, &consumer, sizeof consumer))
        return -1;
    const struct brick_tail *tail = events ? &consumer.event : &consumer.span;
    const int has_next = brick_tail_has_next(tail, head, slots);
    *position = has_next ? ~tail->complement : tail->position;
    return has_next || brick_tail_untouched(tail, head, slots);
}

/* Copies slots up to the head or to a hole. A hole has no records, and where a record starts behind it is not known.
 * Returns the number of copied slots, or -1. */
static int64_t ring_copy(struct brick_reader *r, uint64_t ring, uint64_t slots, uint64_t from, uint64_t head,
                         struct brick_record *to)
{
    uint64_t at = from;
    while (at < head) {
        const uint64_t slot = at & (slots - 1), run = brick_least(brick_least(slots - slot, head - at), SLOTS_AT_ONCE);
        const uint64_t offset = ring + slot * sizeof *to;
        if (data_within(r, offset, offset + run * sizeof *to) != offset)
            break;
        if (!brick_fetch(r, offset, to + (at - from), run * sizeof *to))
            return -1;
        at += run;
    }
    return (int64_t)(at - from);
}

int64_t brick_reader_ring(struct brick_reader *r, uint32_t lane, int events, struct brick_record *to, uint64_t *first)
{
    uint64_t slots = events ? r->header.event_slots : r->header.span_slots;
    uint64_t head_at = r->layout.lanes + lane * (uint64_t)sizeof(struct brick_lane)
                       + (events ? offsetof(struct brick_lane, event_head) : offsetof(struct brick_lane, span_head));
    uint64_t ring = r->layout.first + lane * r->layout.stride + (events ? r->layout.event_ring : r->layout.span_ring);
    uint64_t head = 0, before = 0, after = 0;
    /* While slots are copied, the consumer may free them, and the writer may overwrite them. So read the tail again
     * after the copy, and drop all slots below it. */
    for (int tries = 0; tries < TRIES; tries++) {
        if (!brick_fetch(r, head_at, &head, 8))
            return -1;
        brick_fence_acquire(); /* O11 in brick_shm.h: the records below the head are complete */
        int known = ring_tail(r, lane, events, head, slots, &before);
        if (known < 0)
            return -1;
        if (!known)
            continue;
        const int64_t copied = ring_copy(r, ring, slots, before, head, to);
        if (copied < 0 || ((uint64_t)copied < head - before && !brick_reader_whole(r)))
            return -1;
        brick_fence_acquire();
        known = ring_tail(r, lane, events, head, slots, &after);
        if (known < 0)
            return -1;
        if (!known || after < before)
            continue;
        const uint64_t end = before + (uint64_t)copied;
        *first = after;
        if (end <= after)
            return 0;
        memmove(to, to + (after - before), (end - after) * sizeof *to);
        return (int64_t)(end - after);
    }
    brick_refuse(r, "lane %u: head %llu and tail %llu are impossible in a ring of %llu slots", lane,
                 (unsigned long long)head, (unsigned long long)before, (unsigned long long)slots);
    return -1;
}
