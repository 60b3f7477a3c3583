/* golden.c - makes a golden segment: golden OUTPUT.
 *
 * Run it once for each minor version of the format. The output has every field of that version. Tests only decode the
 * output. Time advances only by `at`, so every duration is known. The copy is made while a summary changes. So one
 * sequence number is odd, and one span is counted as begun but nowhere else. Bytes that depend on this machine, process
 * or time are overwritten.
 *
 *   gcc -std=c11 -D_GNU_SOURCE -DBRICK_TEST_POINTS -pthread -I agent/include -I agent/src
 *       tests/native/golden.c agent/src/writer/[a-z]*.c agent/src/fingerprint/[a-z]*.c -o golden && ./golden segment.bin
 */
#include "writer/canary.h"
#include "writer/lifecycle.h"

#include "brick_graph.h"
#include "brick_history.h"
#include "brick_weights.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t now = UINT64_C(1000000000);

int clock_gettime(clockid_t clock, struct timespec *t)
{
    const int real = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    t->tv_sec = real ? 1700000000 : (time_t)(now / 1000000000u);
    t->tv_nsec = real ? 123456789 : (long)(now % 1000000000u);
    return 0;
}

static void at(uint64_t ticks) { now = UINT64_C(1000000000) + ticks; }

/* Writes settings and tails as a consumer does, by pwrite. */
static void put(uint64_t offset, const void *value, size_t length)
{
    if (pwrite(brick_segment_fd(), value, length, (off_t)offset) != (ssize_t)length)
        abort();
}

static void ask(uint32_t flags) { put(brick_agent.segment->layout.control, &flags, sizeof flags); }

/* Since 1.7, sets the flag that a consumer has attached. Since 1.8, also writes an epoch. */
static void attach(void)
{
    const uint64_t reserved = brick_agent.segment->layout.control + offsetof(struct brick_control, reserved);
    const uint64_t attached = 1, epoch = UINT64_C(1700000020) << 32 | 1700000000 / 5;
    put(reserved + 8 * BRICK_CONTROL_ATTACHED, &attached, sizeof attached);
    put(reserved + 8 * BRICK_CONTROL_EPOCH, &epoch, sizeof epoch);
}

static void consume(uint32_t lane, size_t ring, uint64_t position)
{
    const struct brick_tail tail = {position, ~position};
    put(brick_agent.segment->layout.consumers + lane * sizeof(struct brick_consumer) + ring, &tail, sizeof tail);
}

#define SPANS offsetof(struct brick_consumer, span)
#define EVENTS offsetof(struct brick_consumer, event)

static const char *output;

static char *anonymous(char *bytes)
{
    struct brick_header *h = (struct brick_header *)(void *)bytes;
    struct brick_lane *lanes = (struct brick_lane *)(void *)(bytes + brick_agent.segment->layout.lanes);
    for (uint8_t i = 0; i < 16; i++) {
        h->uuid[i] = i;
        h->boot_id[i] = 0xF0 | i;
    }
    h->pid = 4242;
    h->process_start = 123456;
    h->uid = 0;
    lanes[0].thread = 4242;
    h->header_crc = brick_header_crc(h);
    return bytes;
}

static void copy_out(const char *step)
{
    if (output == NULL || strcmp(step, "summary_half") != 0)
        return;
    uint64_t size = brick_agent.segment->layout.size;
    char *bytes = malloc(size);
    int fd = open(output, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (bytes == NULL || fd < 0 || pread(brick_segment_fd(), bytes, size, 0) != (ssize_t)size
        || write(fd, anonymous(bytes), size) != (ssize_t)size || close(fd) != 0)
        abort();
    free(bytes);
}

static uint32_t name(const char *text, const char *category) { return brick_name(text, strlen(text), category); }

static void *second_thread(void *unused)
{
    uint32_t block = name("block", NULL), strange = name("\x1b[31m\xe6\xa8\xa1", NULL);
    at(20000);
    brick_begin(strange, NULL, NULL);
    at(20040);
    brick_end(strange, NULL, 0, 0);
    brick_end(strange, NULL, 0, 0); /* unmatched */
    brick_begin(block, NULL, NULL); /* this span is abandoned when its thread ends */
    at(20050);
    brick_defer(strange, NULL, 5, NULL, 0, 0, NULL);
    return unused;
}

/* Since 1.2: deferred starts in two streams, one of them measured, all finalized; then more starts than the ring holds.
 * */
static void defer(uint32_t brick, uint64_t time)
{
    const uint64_t stream = 5, step = 9;
    uint64_t first, second, read = 2;
    at(time);
    brick_layer_begin(2, NULL);
    brick_defer(brick, NULL, stream, &step, 64, 4096, &first);
    at(time + 10);
    brick_defer(brick, NULL, stream, NULL, 64, 4096, &second);
    at(time + 20);
    brick_defer(brick, NULL, UINT64_C(0x7F00DEAD0040), NULL, 0, BRICK_BAD_AMOUNT, NULL);
    brick_layer_end(2, NULL);
    brick_measured(second, 17);
    brick_measured(second + 2, 17); /* unmatched */
    at(time + 50);
    brick_finalize(&stream);
    consume(0, EVENTS, read);
    put(brick_agent.segment->layout.consumers + offsetof(struct brick_consumer, events_read), &read, sizeof read);
    for (int n = 0; n < 12; n++) { /* one more start than fits: 2 of the 16 slots are reserved for finalizes */
        at(time + 60);
        brick_defer(brick, NULL, 0, NULL, 0, 0, NULL);
    }
    at(time + 70);
    brick_finalize(NULL);
}

/* Since 1.3: a checksum with all its metadata, at a site of the open layer, and a checksum of a site that is off. Since
 * 1.4: checksums of only some steps, and none of a site that the consumer excludes. */
static void check(uint32_t kernel, uint64_t time)
{
    const uint32_t every = BRICK_RATE_ALL, own = UINT32_C(1) << 26;
    const uint64_t third = 4;
    static const float numbers[2][3] = {{1, -2, 3}, {0, 0.5f, 1e30f}};
    static const int64_t shape[] = {2, 3};
    const struct brick_tensor tensor = {
        .data = numbers, .dtype = BRICK_FLOAT32, .dims = 2, .shape = shape, .valid = 1};
    const uint64_t position = 17;
    const struct brick_at place = {.position = &position, .params = 99, .backend = name("CPU", NULL),
                                .relation = BRICK_AGREES_REPLICATED, .of = name("tp", NULL)};
    const uint32_t kernels[] = {kernel, name("token_ids", NULL), name("left_out", NULL)};
    struct brick_taken taken;
    at(time);
    brick_layer_begin(2, NULL);
    put(brick_agent.segment->layout.control + offsetof(struct brick_control, sites), &third, sizeof third);
    if (brick_wants_of(kernel, NULL, &place, own)) /* a rate of 1/4 does not sample step 7 */
        abort();
    put(brick_agent.segment->layout.control + offsetof(struct brick_control, fingerprint_rate), &every, sizeof every);
    for (int n = 0; n < 3; n++) {
        if (brick_take(kernels[n], NULL, &place, &tensor, &taken) != NULL)
            abort();
        brick_checksum(kernels[n], NULL, &place, &taken, NULL, 0);
    }
    brick_layer_end(2, NULL);
}

/* Since 1.11: rows of a call that has two equal rows; the consumer has read all earlier records. */
static void rows(uint32_t kernel, uint64_t time)
{
    static const float numbers[2][3] = {{1, -2, 3}, {1, -2, 3}}, results[2][2] = {{2, 6}, {2, 6}};
    static const int64_t shape[] = {2, 3}, narrower[] = {2, 2};
    const struct brick_tensor input = {
        .data = numbers, .dtype = BRICK_FLOAT32, .dims = 2, .shape = shape, .valid = BRICK_ALL_ROWS};
    struct brick_tensor output = input;
    const uint32_t layer = 2;
    const struct brick_at place = {.layer = &layer, .backend = name("CPU", NULL)};
    struct brick_rows chosen;
    output.data = results;
    output.shape = narrower;
    at(time);
    consume(0, EVENTS, brick_load_relaxed(&brick_lane_of(brick_agent.segment, 0)->event_head));
    if (!brick_rows_wanted(kernel, NULL, &place, BRICK_ROWS_RATE))
        abort();
    brick_rows_choose(NULL, &input, &chosen);
    brick_rows_record(kernel, NULL, &place, &output, &chosen); /* a ring of 16 slots has room for one pair, not for two */
}

/* Since 1.13: the text of a step follows the first checksum of the step; the consumer has read all earlier records. */
static void tell(uint32_t kernel, uint64_t time)
{
    static const float numbers[] = {1, -2, 3};
    static const int64_t shape[] = {3};
    const struct brick_tensor tensor = {
        .data = numbers, .dtype = BRICK_FLOAT32, .dims = 1, .shape = shape, .valid = BRICK_ALL_ROWS};
    const uint64_t step = brick_step_named("request ä", strlen("request ä"));
    const uint32_t layer = 2;
    const struct brick_at place = {.layer = &layer, .step = &step};
    struct brick_taken taken;
    at(time);
    consume(0, EVENTS, brick_load_relaxed(&brick_lane_of(brick_agent.segment, 0)->event_head));
    if (brick_take(kernel, NULL, &place, &tensor, &taken) != NULL)
        abort();
    brick_checksum(kernel, NULL, &place, &taken, NULL, 0);
}

/* Since 1.14: a row with a history; the consumer has read all earlier records. */
static void remember(uint32_t kernel, uint64_t time)
{
    static const float numbers[3][2] = {{1, -2}, {3, 4}, {5, 6}};
    static const int32_t tokens[] = {11, -12, 13};
    static const int64_t shape[] = {3, 2};
    const struct brick_tensor tensor = {
        .data = numbers, .dtype = BRICK_FLOAT32, .dims = 2, .shape = shape, .valid = BRICK_ALL_ROWS};
    const uint32_t layer = 2;
    const struct brick_at place = {.layer = &layer, .backend = name("CPU", NULL)};
    struct brick_history history = {.content = 5};
    struct brick_history_rows chosen;
    at(time);
    consume(0, EVENTS, brick_load_relaxed(&brick_lane_of(brick_agent.segment, 0)->event_head));
    brick_history_begin(NULL, 3, 3, BRICK_HISTORY_RATE, &chosen);
    brick_history_extend(&chosen, &history, tokens, BRICK_INT32, 3, 0);
    brick_history_end(&chosen);
    if (chosen.count == 0)
        abort();
    chosen.count = 1; /* the ring has room for one row */
    brick_history_record(kernel, NULL, &place, &tensor, &tensor, &chosen);
}

/* Since 1.15: an order for a canary, and the first pieces of its result; the consumer has read all earlier records. */
static void answer(uint64_t time)
{
    static const char text[] = "{\"order\":1,\"name\":\"greeting\",\"end\":\"running\"}";
    const uint64_t reserved = brick_agent.segment->layout.control + offsetof(struct brick_control, reserved);
    const uint64_t order = UINT64_C(0xFD931F2700000001);
    uint64_t piece = 0;
    at(time);
    put(reserved + 8 * BRICK_CONTROL_CANARY, &order, sizeof order);
    consume(0, EVENTS, brick_load_relaxed(&brick_lane_of(brick_agent.segment, 0)->event_head));
    if (brick_canary_order() != order || brick_canary_tell(text, sizeof text - 1, NULL, &piece) != BRICK_DONE)
        abort();
}

/* Since 1.12: the results of calls at a site that records rows, the reason why a site is never examined, and how many
 * turns the sites have. */
static void note(uint32_t kernel)
{
    const uint32_t layer = 2, decode = name("decode", NULL), quantized = name("quantized", NULL);
    const struct brick_at place = {.layer = &layer};
    brick_rows_note(kernel, NULL, &place, decode, 1);
    brick_rows_note(kernel, NULL, &place, decode, 1);
    brick_rows_note(kernel, NULL, &place, quantized, 0);
    brick_rows_presume(name("presumed", NULL), layer);
    brick_rows_turns(3);
    brick_rows_turns(2); /* the larger number of turns counts */
}

/* Since 1.9: nested nodes of the execution graph, with and without a time, around a span, a kernel and a dependency. */
static void draw(uint32_t brick, uint64_t time)
{
    const uint32_t decode = name("decode_drawn", NULL), request = name("request", NULL);
    at(time);
    brick_node_begin(decode, NULL);
    brick_node_defined(name("server.py", NULL), 42, NULL);
    brick_node(brick, NULL, 50000, &(struct brick_amounts){4096, 0, 0});
    brick_node(brick, NULL, BRICK_BAD_AMOUNT, NULL);
    brick_node_begin(request, NULL);
    brick_node_task(7, 3, NULL);
    brick_begin(brick, NULL, NULL);
    at(time + 30);
    brick_end(brick, NULL, 0, 0);
    brick_node_end(request, NULL);
    brick_node(request, NULL, 5000, NULL);
    brick_node_end(decode, NULL);
    brick_node_task(1, 1, NULL); /* this call is refused, because no node is open */
    brick_node_end(decode, NULL); /* unmatched */
}

/* Since 1.6: a kernel that is launched in a valid and in an impossible shape, bytes that are sent and returned, a
 * dependency, a function, a task, a source, and more marks than half of the 64 paths may hold. */
static void graph(uint32_t brick, uint64_t time)
{
    const uint64_t elapsed = 1500;
    const struct brick_launch how = {.grid = {16, 1, 1}, .block = {256, 1, 1}, .shared_bytes = 1024},
                              other = {.grid = {16, 4, 1}, .block = {32, 8, 2}, .source = 0xFD931F27C2D26FA5},
                              none = {.grid = {0, 1, 1}, .block = {1, 1, 1}};
    const struct brick_text source = {.text = "ret;", .length = 4, .name = "norm", .path = "norm.ptx"};
    const uint32_t kernel = name("norm_kernel", "kernel"), host = name("host", NULL), device = name("gpu0", NULL);
    uint64_t piece = 0;
    at(time);
    brick_layer_begin(1, NULL);
    brick_begin(brick, NULL, NULL);
    brick_launched(kernel, NULL, &how, NULL, NULL);
    brick_launched(kernel, NULL, &how, NULL, &(struct brick_amounts){0, 64, 128});
    brick_launched(kernel, NULL, &other, &elapsed, NULL);
    brick_launched(kernel, NULL, &none, NULL, NULL);
    brick_moved(BRICK_TO_DEVICE, host, device, NULL, 4096, NULL);
    brick_moved(BRICK_TO_HOST, device, host, NULL, 4096, &elapsed);
    brick_moved(BRICK_ON_DEVICE, device, device, NULL, 8192, NULL);
    brick_needs(BRICK_UNNAMED, kernel, NULL);
    brick_needs(name("down", NULL), name("up", NULL), NULL);
    at(time + 40);
    brick_end(brick, NULL, 0, 0);
    brick_layer_end(1, NULL);
    brick_defined(brick, name("norm.py", NULL), 42, NULL);
    brick_task_ended(brick, NULL);
    for (uint64_t n = 0; n < 10; n++) {
        char text[] = {(char)('A' + n / 26), (char)('a' + n % 26), 0};
        brick_launched(name(text, NULL), NULL, NULL, NULL, NULL);
    }
    brick_source_tell(&source, brick_source_hash(source.text, source.length), NULL, &piece);
}

static enum brick_held unreadable(void *host, uint64_t number, struct brick_tensor *tensor)
{
    return BRICK_UNREADABLE;
}

/* Since 1.10: two weights. One is read again every hour, the other is read only at load. */
static void watch(uint64_t time)
{
    static struct brick_weight each[2];
    static struct brick_weights weights = {
        .each = each, .count = 2, .hold = unreadable, .rescan_ns = UINT64_C(3600000000000)};
    at(time);
    brick_weight_named(&each[0], "layers.0.up", 11);
    brick_weight_named(&each[1], "layers.0.down", 13);
    each[1].seldom = 1;
    brick_weights_load(&weights);
}

/* A fixed key for checksums. */
static void key_file(char *path, size_t size)
{
    static const char text[] = "0123456789abcdef" "8796a5b4c3d2e1f0" "fedcba9876543210";
    snprintf(path, size, "/tmp/golden-key-%d", (int)getpid());
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || write(fd, text, sizeof text - 1) != (ssize_t)sizeof text - 1 || close(fd) != 0
        || setenv("BRICKD_KEY_FILE", path, 1) != 0)
        abort();
}

int main(int argc, char **argv)
{
    char key[64];
    if (argc != 2)
        return 2;
    key_file(key, sizeof key);
    const struct brick_config config = {.service = "golden", .worker = "0.tp3.pp1", .prefix = "brickd-golden-",
                                        .clock = "monotonic", .lanes = 2, .paths = 64, .names = 64, .sites = 64,
                                        .span_slots = 8, .event_slots = 16};
    if (setenv("BRICKD_FINGERPRINTS", "1/4", 1) != 0 || brick_init(&config) != BRICK_ON)
        return 1;
    uint32_t block = name("block", "block"), attention = name("attention", "attention"), ffn = name("ffn", "ffn");
    uint64_t step = 7, time = 0;
    attach();
    ask(BRICK_CONTROL_SPANS);
    for (uint32_t layer = 0; layer < 3; layer++) { /* nine records are written into eight slots */
        brick_layer_begin(layer, NULL);
        at(time += 10);
        brick_begin(block, NULL, &step);
        at(time += 100);
        brick_begin(attention, NULL, NULL);
        at(time += 1000 * (layer + 1));
        /* since 1.5: floating-point operations */
        brick_end_of(attention, NULL, &(struct brick_amounts){64, 4096, layer == 2 ? -1 : 1e15});
        brick_begin(ffn, NULL, NULL);
        at(time += 31 + layer); /* durations around the upper boundary of the first bucket */
        brick_end(ffn, NULL, 128, layer == 2 ? BRICK_BAD_AMOUNT : 8192);
        at(time += 1);
        brick_end(block, NULL, 0, 0);
        brick_layer_end(layer, NULL);
    }
    consume(0, SPANS, 3);
    at(time += 50);
    brick_begin(ffn, NULL, NULL);
    at(time += 9);
    brick_begin(ffn, NULL, NULL); /* the brick calls itself */
    at(time += 5);
    brick_end(ffn, NULL, 0, 0);
    at(time += 7);
    brick_end(ffn, NULL, 0, 0);
    uint32_t decode = name("decode", "step"); /* since 1.1: a step, and a time that the host gives */
    consume(0, SPANS, 5);
    at(time += 3);
    brick_begin(decode, NULL, &step);
    brick_record(attention, NULL, 17, 2, 3);
    at(time += 20);
    brick_step_end(decode, NULL, 32, 30);
    pthread_t thread;
    if (pthread_create(&thread, NULL, second_thread, NULL) != 0 || pthread_join(thread, NULL) != 0)
        return 1;
    brick_begin(decode, NULL, &step);
    defer(attention, 25000);
    consume(0, EVENTS, 16);
    check(attention, 26000);
    rows(ffn, 26200);
    note(ffn);
    tell(ffn, 26300);
    remember(ffn, 26400);
    answer(26450);
    brick_end(decode, NULL, 0, 0);
    draw(ffn, 26500);
    graph(ffn, 27000);
    ask(0);
    watch(29000);
    at(30000);
    brick_begin(block, NULL, NULL); /* this span stays open */
    at(30500);
    brick_begin(attention, NULL, NULL);
    at(31000);
    output = argv[1];
    brick_test_point = copy_out;
    brick_end(attention, NULL, 1, 1);
    unlink(key);
    shm_unlink(brick_segment_name()); /* a consumer has attached, so the writer leaves the segment in place */
    return 0;
}
