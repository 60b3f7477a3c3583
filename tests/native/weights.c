/* weights.c - an engine that scans a few tensors; built with a short BRICK_LOOK_TICKS.
 *
 * The program reads commands of one letter from stdin, and answers each with a number when it is done. After an arrow,
 * the table says what the number is.
 *   l  loads all weights -> how many are read
 *   L  the same as l, while another thread is in a slice
 *   w  runs slices until a whole scan is recorded -> how often the largest tensor, which is the last, was requested
 *   n  runs slices until the segment has another name than at the last l, and a scan is recorded there
 *   r  makes the next scan begin as soon as a scan ends, from now on
 *   m  makes the last tensor move at each read, from now on
 *   a  uses the default period between scans, from now on
 *   o  makes the last tensor move once, during the next scan
 *   t  two threads run slices until ten scans are recorded -> 1 if there were ten
 *   i  makes the first tensor unreadable, from now on
 *   k  does nothing -> the number of tensors that were borrowed and not released
 *   s  marks the first tensor as read only at load
 *   f  a child, forked during a slice, records all tensors completely and ends -> its exit status
 */
#include "writer/common.h"

#include "brick_weights.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT 5
#ifndef LARGE
#define LARGE (UINT64_C(1) << 23) /* the size of the last tensor in bytes: no machine reads all of it in one slice */
#endif

static uint8_t *large;
static uint32_t name;
static int moving, forking, impossible, to_move, moved;
static uint64_t held, kept, given;
static char before[96];

static struct brick_weight each[COUNT];
static struct brick_weights weights;

static uint64_t until_scanned(uint64_t scans);

/* Returns whether the recorded fingerprint covers the whole tensor. */
static int is_whole(const struct brick_weight *one)
{
    return one->taken.dtype == BRICK_UINT8 && one->taken.fingerprint.elements == LARGE;
}

static enum brick_held hold(void *host, uint64_t number, struct brick_tensor *tensor)
{
    static const int64_t few[] = {3}, many[] = {LARGE};
    (void)host;
    if (forking && number == COUNT - 1) {
        forking = 0;
        *(pid_t *)host = fork();
        if (*(pid_t *)host == 0) /* this slice belongs to the parent, and never ends here */
            _exit(until_scanned(1) == 1 && is_whole(&each[COUNT - 1]) ? 0 : 1);
    }
    *tensor = (struct brick_tensor){.dtype = BRICK_UINT8, .dims = 1, .valid = BRICK_ALL_ROWS};
    tensor->shape = number == COUNT - 1 ? many : few;
    moved |= to_move && number == COUNT - 1 && held > 0;
    tensor->data = large + (moving ? ++held % 2 : (uint64_t)moved);
    held += number == COUNT - 1 && !moving;
    if (number == 0 && impossible)
        tensor->dims = BRICK_DIMS_MAX + 1;
    if (number == 1 || number == 2)
        return number == 1 ? BRICK_GONE : BRICK_UNREADABLE;
    kept++;
    given = number;
    return BRICK_HELD;
}

static void release(void *host, uint64_t number)
{
    (void)host;
    kept -= number == given;
}

/* Returns the number of scans as a reader sees it. */
static uint64_t scans(void)
{
    struct brick_header header;
    struct brick_layout layout;
    struct brick_process process;
    const int fd = brick_segment_fd();
    if (pread(fd, &header, sizeof header, 0) != sizeof header || !brick_layout_compute(&header, &layout)
        || pread(fd, &process, sizeof process, (off_t)layout.process) != sizeof process)
        exit(3);
    return process.reserved[BRICK_PROCESS_SCANS];
}

static void step(void)
{
    brick_begin(name, NULL, NULL);
    brick_step_end(name, NULL, 0, 0);
    brick_weights_turn(&weights);
}

static uint64_t until_scanned(uint64_t more)
{
    step(); /* the step opens the child's own segment */
    for (const uint64_t begun = scans(); scans() < begun + more;)
        step();
    return more;
}

static void *other(void *unused)
{
    (void)unused;
    until_scanned(10);
    return NULL;
}

static uint64_t obey(char letter)
{
    static pid_t child;
    pthread_t thread;
    int status = 0;
    switch (letter) {
    case 'L':
        brick_store_relaxed32(&weights.busy, (uint32_t)getpid());
        /* fall through */
    case 'l':
        strcpy(before, brick_segment_name());
        brick_weights_load(&weights);
        strcpy(before, brick_segment_name());
        if (letter == 'L')
            brick_store_relaxed32(&weights.busy, 0);
        return weights.read;
    case 'w':
        held = 0;
        until_scanned(1);
        return held;
    case 'n':
        while (strcmp(before, brick_segment_name()) == 0)
            step();
        while (scans() == 0)
            step();
        return 0;
    case 'r':
        weights.rescan_ns = 1;
        return 0;
    case 'a':
        weights.rescan_ns = BRICK_RESCAN_AUTO;
        return 0;
    case 's':
        each[0].seldom = 1;
        return 0;
    case 'm':
        moving = 1;
        return 0;
    case 'o':
        to_move = 1;
        return 0;
    case 'i':
        impossible = 1;
        return 0;
    case 'k':
        return kept;
    case 't':
        if (pthread_create(&thread, NULL, other, NULL) != 0)
            exit(3);
        until_scanned(10);
        pthread_join(thread, NULL);
        return scans() >= 10;
    default:
        weights.host = &child;
        forking = 1;
        until_scanned(1);
        return waitpid(child, &status, 0) == child ? (uint64_t)status : 1;
    }
}

int main(void)
{
    static const char *const names[COUNT] = {"layers.0.w", "gone", "unreadable", "experts.3.w", "large"};
    const struct brick_config config = {.event_slots = 1 << 14};
    large = calloc(LARGE + 1, 1);
    if (large == NULL || brick_init(&config) != BRICK_ON)
        return 3;
    name = brick_name("step", 4, NULL);
    weights = (struct brick_weights){.each = each, .count = COUNT, .hold = hold, .release = release, .share_ppm = 1000000};
    for (uint64_t n = 0; n < COUNT; n++)
        brick_weight_named(&each[n], names[n], strlen(names[n]));
    for (char letter; read(STDIN_FILENO, &letter, 1) == 1;) {
        printf("%llu\n", (unsigned long long)obey(letter));
        fflush(stdout);
    }
    return 0;
}
