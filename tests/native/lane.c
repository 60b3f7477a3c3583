/* lane.c - a worker that executes commands, one per line.
 *
 *   lane PREFIX LANES PATHS SPAN_SLOTS EVENT_SLOTS     prints the name of the segment
 *
 *   name TEXT            -> the number of the name
 *   begin BRICK KEY STEP TIME             STEP -1: no step is given
 *   end BRICK KEY ELEMENTS BYTES TIME
 *   stepend BRICK KEY ROWS VALID TIME
 *   record BRICK KEY NS ELEMENTS BYTES TIME
 *   defer BRICK KEY STREAM STEP ELEMENTS BYTES TIME     -> the id of the deferred work
 *   measured ID NS TIME
 *   finalize STREAM TIME                  STREAM -1: every stream
 *   pending              -> the number of pending deferred starts
 *   borrow KEY
 *   layer LAYER KEY
 *   unlayer LAYER KEY
 *   enable 0|1
 *   exit                 the thread gives its lane back, but stays
 *   thread               the thread ends; another thread executes the following commands
 *
 * The answer to each command has the bits of enum brick_outcome, the id of the thread, and the number after the arrow
 * or 0. TIME is the value of the clock during the command, so no command waits. The test reads the segment from its own
 * process, because the owner of a segment must not open and close it.
 */
#include "brick_agent.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static uint64_t now = UINT64_C(1000000000);

int clock_gettime(clockid_t clock, struct timespec *t)
{
    (void)clock;
    t->tv_sec = (time_t)(now / 1000000000u);
    t->tv_nsec = (long)(now % 1000000000u);
    return 0;
}

static const void *key_of(unsigned key) { return (const void *)(uintptr_t)key; }

/* Executes commands; returns 0 if another thread must execute the rest, or 1 at the end of the input. */
static void *obey(void *unused)
{
    char line[300], text[200];
    unsigned brick, key, layer;
    int64_t wanted, stream;
    uint64_t elements, bytes, ns, id;
    (void)unused;
    while (fgets(line, sizeof line, stdin) != NULL) {
        unsigned outcome = 0;
        uint64_t number = 0;
        if (sscanf(line, "begin %u %u %" SCNd64 " %" SCNu64, &brick, &key, &wanted, &now) == 4) {
            uint64_t step = (uint64_t)wanted;
            outcome = brick_begin(brick, key_of(key), wanted < 0 ? NULL : &step);
        } else if (sscanf(line, "end %u %u %" SCNu64 " %" SCNu64 " %" SCNu64, &brick, &key, &elements, &bytes, &now) == 5) {
            outcome = brick_end(brick, key_of(key), elements, bytes);
        } else if (sscanf(line, "stepend %u %u %" SCNu64 " %" SCNu64 " %" SCNu64, &brick, &key, &elements, &bytes, &now) == 5) {
            outcome = brick_step_end(brick, key_of(key), elements, bytes);
        } else if (sscanf(line, "record %u %u %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &brick, &key, &ns, &elements,
                          &bytes, &now) == 6) {
            outcome = brick_record(brick, key_of(key), ns, elements, bytes);
        } else if (sscanf(line, "defer %u %u %" SCNd64 " %" SCNd64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &brick, &key, &stream,
                          &wanted, &elements, &bytes, &now) == 7) {
            uint64_t step = (uint64_t)wanted;
            outcome = brick_defer(brick, key_of(key), (uint64_t)stream, wanted < 0 ? NULL : &step, elements, bytes, &number);
        } else if (sscanf(line, "measured %" SCNu64 " %" SCNu64 " %" SCNu64, &id, &ns, &now) == 3) {
            outcome = brick_measured(id, ns);
        } else if (sscanf(line, "finalize %" SCNd64 " %" SCNu64, &stream, &now) == 2) {
            uint64_t only = (uint64_t)stream;
            outcome = brick_finalize(stream < 0 ? NULL : &only);
        } else if (strcmp(line, "pending\n") == 0) {
            number = brick_pending();
        } else if (sscanf(line, "borrow %u", &key) == 1) {
            brick_borrow(key_of(key));
        } else if (sscanf(line, "layer %u %u", &layer, &key) == 2) {
            outcome = brick_layer_begin(layer, key_of(key));
        } else if (sscanf(line, "unlayer %u %u", &layer, &key) == 2) {
            outcome = brick_layer_end(layer, key_of(key));
        } else if (sscanf(line, "enable %u", &layer) == 1) {
            brick_enable((int)layer);
        } else if (sscanf(line, "name %199s", text) == 1) {
            outcome = brick_name(text, strlen(text), NULL);
        } else if (strcmp(line, "exit\n") == 0) {
            brick_thread_exit();
        } else if (strcmp(line, "thread\n") == 0) {
            return NULL;
        } else {
            exit(3);
        }
        printf("%u %ld %" PRIu64 "\n", outcome, (long)syscall(SYS_gettid), number);
        fflush(stdout);
    }
    return &now;
}

int main(int argc, char **argv)
{
    if (argc != 6)
        return 2;
    const struct brick_config config = {.prefix = argv[1], .service = "lane", .clock = "monotonic",
                                        .lanes = (uint32_t)atoi(argv[2]), .paths = (uint32_t)atoi(argv[3]), .names = 64,
                                        .sites = 64, .span_slots = (uint32_t)atoi(argv[4]),
                                        .event_slots = (uint32_t)atoi(argv[5])};
    if (brick_init(&config) != BRICK_ON)
        return 1;
    printf("%s\n", brick_segment_name());
    fflush(stdout);
    for (void *ended = NULL; ended == NULL;) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, obey, NULL) != 0 || pthread_join(thread, &ended) != 0)
            return 1;
        if (ended == NULL) {
            printf("0 0 0\n");
            fflush(stdout);
        }
    }
    return 0;
}
