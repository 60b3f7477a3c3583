/* fuzz.c - the reader on changed segments: fuzz IMAGE SEED SECONDS
 *
 * First inverts each byte of the image in turn. Then makes random changes until the time is over: extreme words, moved
 * ranges, truncations. Every second header gets a correct checksum. Everything that the reader accepts must give finite
 * numbers, and a recording of it must have complete chunks. The file is read from a block of exactly its size, so that
 * sanitizers find every access outside of it.
 */
#include "core/drain.h"
#include "core/fold.h"
#include "core/recording_writer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct image {
    uint8_t *bytes;
    uint64_t size;
};

static uint64_t state;
static struct brick_layout golden_layout;

static uint64_t random64(void) /* splitmix64 */
{
    uint64_t z = state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static int read_image(const struct brick_source *source, uint64_t offset, void *to, uint64_t length)
{
    const struct image *image = (const struct image *)source->base;
    if (offset > image->size || length > image->size - offset)
        return 0;
    memcpy(to, image->bytes + offset, length);
    return 1;
}

static void *memory(uint64_t bytes)
{
    void *p = malloc(bytes > 0 ? bytes : 1);
    if (p == NULL)
        exit(2);
    return p;
}

static void wrong(const char *what)
{
    fprintf(stderr, "fuzz: %s\n", what);
    exit(1);
}

static void add_up(const struct brick_summary *s, uint32_t paths)
{
    static const double quantiles[] = {0.5, 0.9, 0.99, 0.999};
    struct brick_row row;
    memset(&row, 0, sizeof row);
    for (uint32_t path = 0; path < paths; path++) {
        struct brick_part part = {.summary = &s[path], .tick_ns = path % 2 ? 1.0 : 0.4, .given_ns = path * 10.0, .outer = 1};
        brick_row_add(&row, &part, 1.0);
    }
    for (int i = 0; i < 4; i++) {
        double q = brick_row_quantile(&row, quantiles[i], 1.0);
        if (!isfinite(q) || (row.count != 0 && (q < row.min || q > row.max)))
            wrong("a percentile is not between minimum and maximum");
    }
    if (!isfinite(row.total) || !isfinite(row.squares) || !(row.inclusive >= 0) || !(row.squares >= 0))
        wrong("a sum is not a number");
}

/* Reads everything that the daemon reads; returns 1 if all of it was accepted. */
static int digest(struct brick_reader *r)
{
    struct brick_process process;
    if (!brick_reader_process(r, &process))
        return 0;
    uint32_t lanes = r->header.lanes, names = r->header.names, paths = r->header.paths, believed = 1;
    names = process.names < names ? (uint32_t)process.names : names;
    paths = process.paths < paths ? (uint32_t)process.paths : paths;
    struct brick_lane *lines = memory(lanes * sizeof *lines);
    struct brick_consumer *consumers = memory(lanes * sizeof *consumers);
    struct brick_name *texts = memory(names * sizeof *texts);
    uint64_t *keys = memory(paths * sizeof *keys);
    struct brick_summary *into = memory(paths * sizeof *into);
    memset(into, 0, paths * sizeof *into);
    believed &= (uint32_t)brick_reader_lanes(r, lines, consumers);
    believed &= (uint32_t)brick_reader_names(r, texts, names);
    believed &= (uint32_t)brick_reader_keys(r, BRICK_PATHS, keys, paths, r->header.names);
    for (uint32_t n = 0; believed && n < paths; n++) { /* walk from each path to its root, as views do */
        uint32_t at = n;
        for (uint32_t steps = 0; at != BRICK_ROOT && (keys[at] & BRICK_KEY_READY) != 0; steps++) {
            if (steps > paths)
                wrong("the parents of a path form a cycle");
            at = brick_key_parent(keys[at]);
        }
    }
    struct brick_doubt doubt = {0, 0};
    uint32_t whole = believed;
    for (uint32_t n = 0; whole && n < lanes; n++)
        whole = (uint32_t)brick_reader_summaries(r, n, paths, into, &doubt);
    if (whole)
        add_up(into, paths);
    for (uint32_t n = 0; n < 2 * lanes; n++) {
        uint64_t slots = n % 2 ? r->header.event_slots : r->header.span_slots, first = 0;
        struct brick_record *records = memory(slots * sizeof *records);
        int64_t count = brick_reader_ring(r, n / 2, (int)(n % 2), records, &first);
        if (count > (int64_t)slots)
            wrong("more records than slots");
        for (int64_t i = 0; i < count; i++)
            if (records[i].kind == 0xFFFF) /* so that every record is read */
                whole &= 1;
        free(records);
    }
    free(lines);
    free(consumers);
    free(texts);
    free(keys);
    free(into);
    return (int)(believed & whole);
}

static int judge(const struct image *image)
{
    struct brick_reader r;
    memset(&r, 0, sizeof r);
    r.source = (struct brick_source){.read = read_image, .fd = -1, .base = image};
    return brick_reader_open(&r, image->size) && digest(&r);
}

/* ---- a drain, while the segment changes -------------------------------- */

static void change(struct image *image);

static int is_event(uint16_t kind)
{
    switch (kind) {
#define KIND(NAME, number, name, record) case BRICK_KIND_##NAME:
        BRICK_EVENT_KINDS(KIND)
#undef KIND
        return kind != BRICK_KIND_CHECKED; /* checksums are in another buffer */
    default:
        return 0;
    }
}

static void check_drain(const struct brick_drain *d)
{
    for (size_t i = 0; i < d->events.count; i++) {
        const struct brick_record *r = &d->events.records[i];
        if (r->slots != 1 || !is_event(r->kind))
            wrong("an accepted event has an unknown kind");
        if (r->kind == BRICK_KIND_DEFER && r->payload >= d->reader.header.paths)
            wrong("an accepted deferred start has an invalid path");
    }
    uint64_t paths = 0;
    for (uint32_t path = 0; path < d->details.end; path++) {
        const struct brick_longest *each = d->details.by_path[path];
        paths += each != NULL;
        if (each != NULL && (each->duration | each->start | each->elements) >> 63 != 0)
            wrong("an accepted span has an impossible time");
    }
    if (paths > d->details.spans || d->details.kept > BRICK_RECENT)
        wrong("more paths or newest spans than spans");
}

static void check_cursors(const struct brick_drain *d)
{
    for (uint32_t n = 0; n < d->used; n++) {
        const struct brick_drained_lane *l = &d->lanes[n];
        if (l->cursor.span != d->scratch->lanes[n].span_head + l->spans_salvaged
            || l->cursor.event.position != d->scratch->lanes[n].event_head + l->events_salvaged)
            wrong("a cursor is not at the head of its ring");
    }
}

/* Checks the writes that the drain requests: none may be outside of the consumer's lines, and no tail may be beyond its
 * head. */
static void check_tails(struct brick_drain *d)
{
    uint32_t lanes = d->reader.header.lanes;
    struct brick_consumer *halfway = memory(2 * lanes * sizeof *halfway), *whole = halfway + lanes;
    uint32_t first, count = brick_drain_tails(d, (int)(random64() % 2), &first, halfway, whole);
    if (first > lanes || count > lanes - first)
        wrong("the tails to write exceed the lanes");
    for (uint32_t n = first; n < first + count; n++) {
        uint64_t head = d->scratch->lanes[n].span_head;
        if (whole[n].span.position == ~whole[n].span.complement && whole[n].span.position > head)
            wrong("a tail to write is beyond the head");
    }
    free(halfway);
}

/* Begins a recording of what is drained, with a small spool and a small file. */
static void recorder_begin(struct brick_recorder *to, struct brick_spool *spool)
{
    struct brick_title title = {.made_ns = 1};
    *to = (struct brick_recorder){.limit = BRICK_RECORDING_FIRST + BRICK_END_BYTES + random64() % 60000,
                                  .spare = random64() % 900,
                                  .ahead = random64() % 9000};
    int fd = memfd_create("recording", 0);
    if (fd < 0 || !brick_recorder_begin(to, fd, &title)
        || !brick_spool_begin(spool, BRICK_SPOOL_LEAST + random64() % 30000, (enum brick_left)(random64() % 3)))
        wrong("the recording cannot be begun");
}

/* Checks that a recording has only complete chunks, the last of which is END. */
static void check_recording(struct brick_recorder *from)
{
    int fd = dup(from->fd);
    if (!brick_recorder_end(from))
        wrong("the recording cannot be ended");
    struct brick_chunk head = {.kind = 0};
    uint64_t at = BRICK_RECORDING_FIRST, number = 0;
    while (head.kind != BRICK_CHUNK_END) {
        if (pread(fd, &head, sizeof head, (off_t)at) != sizeof head || !brick_chunk_whole(&head, &from->key)
            || head.number != number++)
            wrong("the head of a chunk is invalid");
        uint8_t *body = memory(head.length);
        struct brick_sum sum;
        if (pread(fd, body, head.length, (off_t)(at + sizeof head)) != (ssize_t)head.length)
            wrong("a chunk is truncated");
        brick_sum_begin(&sum, &from->key);
        brick_sum_add(&sum, body, head.length / BRICK_BLOCK);
        if (brick_sum_end(&sum) != head.body_sum)
            wrong("the body of a chunk has a wrong checksum");
        free(body);
        at += sizeof head + head.length;
    }
    if (lseek(fd, 0, SEEK_END) != (off_t)at || at > from->limit)
        wrong("the recording has a wrong length");
    close(fd);
    brick_recorder_free(from);
}

/* Makes passes until one refuses the segment; with `changes`, changes the segment between passes. Returns 1 if no pass
 * refused it. */
static int drained(struct image *image, int changes)
{
    static struct brick_scratch scratch;
    struct brick_drain d;
    memset(&d, 0, sizeof d);
    d.reader.source = (struct brick_source){.read = read_image, .fd = -1, .base = image};
    int whole = brick_drain_open(&d, image->size), records = random64() % 16 == 0;
    struct brick_recorder recorder;
    struct brick_spool spool;
    if (records) {
        recorder_begin(&recorder, &spool);
        d.track = (struct brick_track){.spool = &spool, .worker = 3};
    }
    if (whole && random64() % 4 == 0) {
        struct brick_cursor saved = {.span = random64() % 16, .event = {random64() % 16, random64() % 16, 3}};
        brick_drain_resume(&d, &saved);
    }
    for (int pass = 0; whole && pass < 3; pass++) {
        d.salvage = random64() % 8 == 0;
        whole = brick_drain_pass(&d, &scratch);
        check_drain(&d);
        if (records && random64() % 2)
            brick_recorder_write(&recorder, &spool, brick_spool_ready(&spool));
        if (whole) {
            check_cursors(&d);
            check_tails(&d);
        }
        if (changes && image->size > 0)
            change(image);
    }
    brick_drain_free(&d);
    if (records) {
        brick_recorder_write(&recorder, &spool, brick_spool_ready(&spool));
        check_recording(&recorder);
        brick_spool_free(&spool);
    }
    return whole;
}

static void seal(struct image *image)
{
    if (image->size < sizeof(struct brick_header))
        return;
    struct brick_header *h = (struct brick_header *)(void *)image->bytes;
    h->header_crc = brick_header_crc(h);
}

static uint64_t strange(void)
{
    static const uint64_t values[] = {0, 1, 2, 63, 64, 65, 120, 121, 1024, 65472, 0xFFFE, 0xFFFF, UINT64_C(1) << 24,
                                      UINT64_C(1) << 31, UINT64_C(1) << 32, UINT64_C(1) << 62, (UINT64_C(1) << 62) + 1,
                                      UINT64_C(1) << 63, UINT64_MAX, UINT64_C(0x7FF0000000000000),
                                      UINT64_C(0x7FF8000000000000), UINT64_C(0xFFF0000000000000)};
    return random64() % 3 != 0 ? values[random64() % (sizeof values / sizeof *values)] : random64();
}

/* Most of a segment is zeros, so three of four changes are made at nonzero bytes. */
static uint64_t somewhere(const struct image *image)
{
    uint64_t at = random64() % image->size;
    for (int tries = 0; tries < 2000 && random64() % 4 != 0 && image->bytes[at] == 0; tries++)
        at = random64() % image->size;
    return at;
}

static void put(struct image *image, uint64_t at, uint64_t width, uint64_t value)
{
    at = at / width * width;
    if (at + width <= image->size)
        memcpy(image->bytes + at, &value, width);
}

static void change(struct image *image)
{
    uint64_t at = somewhere(image), value = strange(), lane = random64() % 2, events = random64() % 2;
    uint64_t area = golden_layout.first + lane * golden_layout.stride;
    switch (random64() % 10) {
    case 0: { /* copy one range over another */
        uint64_t from = somewhere(image), length = random64() % 256;
        uint64_t last = at > from ? at : from;
        length = length < image->size - last ? length : image->size - last;
        memmove(image->bytes + at, image->bytes + from, length);
        break;
    }
    case 1:
        image->bytes[at] ^= (uint8_t)(1u << random64() % 8);
        break;
    case 2:
    case 3: /* change a sum of one of the first paths; all of these are checked */
        put(image, area + golden_layout.summaries + random64() % 16 * sizeof(struct brick_summary) + random64() % 9 * 8,
            8, value);
        break;
    case 4: /* change the head of a ring */
        put(image,
            golden_layout.lanes + lane * sizeof(struct brick_lane)
                + (events ? offsetof(struct brick_lane, event_head) : offsetof(struct brick_lane, span_head)),
            8, random64() % 24);
        break;
    case 5: /* change a record */
        put(image, area + (events ? golden_layout.event_ring : golden_layout.span_ring) + random64() % 128 * 4, 4,
            value);
        break;
    default:
        put(image, at, UINT64_C(1) << random64() % 4, value);
    }
    if (random64() % 4 == 0) { /* change the counts in the header */
        uint64_t field = offsetof(struct brick_header, minor) + random64() % 12 * 4;
        put(image, field, random64() % 2 ? 4 : 2, value);
    }
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    FILE *file = fopen(argv[1], "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0)
        return 2;
    struct image golden = {.size = (uint64_t)ftell(file)};
    golden.bytes = memory(golden.size);
    rewind(file);
    if (fread(golden.bytes, 1, golden.size, file) != golden.size || fclose(file) != 0)
        return 2;
    state = strtoull(argv[2], NULL, 10);
    double start = seconds_now(), end = start + atof(argv[3]), flips_end = start + 0.8 * atof(argv[3]);
    if (!judge(&golden))
        wrong("the unchanged segment was refused");
    brick_layout_compute((const struct brick_header *)(const void *)golden.bytes, &golden_layout);

    uint64_t flipped = 0, refused = 0, changed = 0, believed = 0;
    for (uint64_t i = 0; i < golden.size && seconds_now() < flips_end; i++) {
        /* The stride is coprime to the size. So at any time, the bytes that were tried are spread over the whole
         * file. */
        uint64_t at = i < sizeof(struct brick_header) ? i : i * 7919 % golden.size;
        golden.bytes[at] ^= 0xFF;
        refused += !judge(&golden) || !drained(&golden, 0);
        golden.bytes[at] ^= 0xFF;
        flipped++;
    }
    while (seconds_now() < end) {
        struct image image = {.size = golden.size};
        if (random64() % 16 == 0)
            image.size = random64() % (golden.size + 1);
        image.bytes = memory(image.size);
        memcpy(image.bytes, golden.bytes, image.size);
        for (uint64_t n = image.size > 0 ? 1 + random64() % 8 : 0; n > 0; n--)
            change(&image);
        if (random64() % 2)
            seal(&image);
        believed += (uint64_t)(judge(&image) & drained(&image, 1));
        changed++;
        free(image.bytes);
    }
    printf("%llu of %llu bytes inverted (%llu refused), %llu segments changed (%llu accepted)\n",
           (unsigned long long)flipped, (unsigned long long)golden.size, (unsigned long long)refused,
           (unsigned long long)changed, (unsigned long long)believed);
    free(golden.bytes);
    return 0;
}
