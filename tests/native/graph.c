/* graph ROUNDS: three threads record launches, transfers, dependencies, definitions and nodes, in shared paths and in
 * paths of their own, until no room is left. The threads also send the same sources. Meanwhile, a fourth thread reads
 * names and paths. Then a forked child does the same. The counts must equal the calls.
 *
 * Prints how many marks were requested, and how many of these had no room. */
#include "writer/lifecycle.h"

#include "brick_graph.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WRITERS = 3, NAMES = 6, LANES = 4, PATHS = 512 };

static uint32_t names[NAMES], stop;
static uint64_t rounds, wanted, refused;

static void wrong(const char *what)
{
    fprintf(stderr, "race: totals: %s\n", what);
    _exit(1);
}

static uint32_t turn(uint64_t *state, uint32_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33) % below;
}

/* Makes one random call. Adds to *asked how many marks the call requests. */
static void one(uint64_t *state, uint64_t *asked)
{
    static const char text[] = ".visible .entry kernel() { ret; }";
    const struct brick_launch how = {.grid = {1 + turn(state, 200), 1 + turn(state, 2), 1}, .block = {32, 1, 1}};
    const uint32_t name = names[turn(state, NAMES)], other = names[turn(state, NAMES)];
    const uint64_t ns = 7;
    switch (turn(state, 10)) {
    case 0:
    case 1:
    case 2:
        brick_launched(name, NULL, &how, turn(state, 2) ? &ns : NULL, NULL);
        *asked += 2;
        break;
    case 3:
        brick_launched(name, NULL, NULL, NULL, NULL);
        *asked += 1;
        break;
    case 4:
        brick_moved((enum brick_direction)turn(state, 3), name, other, NULL, 0, NULL);
        *asked += 1;
        break;
    case 5:
        brick_needs(name, other, NULL);
        *asked += 1;
        break;
    case 6:
        brick_defined(name, other, turn(state, 50), NULL);
        *asked += 1;
        break;
    case 7:
        brick_node(name, NULL, turn(state, 3), NULL);
        *asked += 1;
        break;
    case 8:
        brick_node_begin(name, NULL);
        brick_node_defined(turn(state, 2) ? other : BRICK_UNNAMED, turn(state, 50), NULL);
        brick_node_task(turn(state, 3), 1, NULL);
        if (turn(state, 8) != 0)
            brick_node_end(name, NULL); /* if this call is skipped, the end of the surrounding span ends the node */
        *asked += 2;
        break;
    default: {
        const struct brick_text source = {text, 1 + turn(state, sizeof text - 1), "name", NULL};
        uint64_t piece = 0;
        brick_source_tell(&source, brick_source_hash(source.text, source.length), NULL, &piece);
    }
    }
}

static void *writer(void *number)
{
    uint64_t state = (uint64_t)(uintptr_t)number, asked = 0;
    for (uint64_t n = 0; n < rounds; n++) {
        const uint32_t brick = names[turn(&state, NAMES)];
        brick_layer_begin(turn(&state, 2), NULL);
        brick_begin(brick, NULL, NULL);
        for (int i = 0; i < 8; i++)
            one(&state, &asked);
        brick_end(brick, NULL, 0, 0);
        brick_layer_end(0, NULL);
        brick_layer_end(1, NULL); /* one of these two calls has no open span to end */
        if (n % 64 == 0)
            brick_thread_exit(); /* the next round may get a lane that another thread has used */
    }
    brick_fetch_add(&wanted, asked);
    return NULL;
}

/* Reads names and paths while writers add them. Checks that everything that is published is complete. */
static void *reader(void *unused)
{
    const struct brick_segment *s = brick_agent.segment;
    while (brick_load_acquire32(&stop) == 0)
        for (uint32_t path = 0; path < PATHS; path++) {
            const uint64_t key = brick_load_acquire(&brick_paths_of(s)[path]);
            if ((key & BRICK_KEY_READY) == 0)
                continue;
            const uint32_t name = brick_key_name(key);
            if (name >= s->header->names || (brick_load_acquire32(&brick_names_of(s)[name].word) & BRICK_NAME_READY) == 0)
                wrong("a path has a name that is not published");
            if (brick_key_parent(key) != BRICK_ROOT && brick_key_parent(key) >= path)
                wrong("a path comes before its parent");
        }
    return unused;
}

static uint64_t marked(void)
{
    const struct brick_segment *s = brick_agent.segment;
    uint64_t all = 0;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        const uint8_t *area = brick_area_of(s, lane);
        const uint64_t *sequences = (const uint64_t *)(const void *)(area + s->layout.sequences);
        const struct brick_summary *rows = (const struct brick_summary *)(const void *)(area + s->layout.summaries);
        const struct brick_lane *line = brick_lane_of(s, lane);
        uint64_t here = 0;
        for (uint32_t path = 0; path < PATHS && line->opened != 0; path++)
            if (brick_is_mark(brick_key_unit(brick_paths_of(s)[path])) && sequences[path] != 0)
                here += rows[path].count;
        if (line->reserved2[BRICK_LANE_MARKS] != here + line->reserved2[BRICK_LANE_MARKS_REFUSED])
            wrong("the marks of a lane and its refused marks are not all that were requested");
        refused += line->reserved2[BRICK_LANE_MARKS_REFUSED];
        all += line->reserved2[BRICK_LANE_MARKS];
    }
    return all;
}

/* A child process begins without the marks of its parent. */
static void in_a_child(void)
{
    uint64_t state = 99, asked = 0;
    const pid_t child = fork();
    if (child == 0) {
        for (int n = 0; n < 100; n++)
            one(&state, &asked);
        if (marked() != asked)
            wrong("the child process has other marks than it recorded");
        brick_shutdown();
        _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        wrong("the child process failed");
}

int main(int count, char **arguments)
{
    static const char *const texts[NAMES] = {
        "norm", "gemm", "softmax", "tokens", "gpu0",
        "the longest name that the agent accepts: the text of a transfer must have room "
        "for two names that are this long.",
    };
    const struct brick_config config = {.service = "graph", .lanes = LANES, .paths = PATHS, .names = 128, .sites = 64,
                                        .event_slots = 64};
    if (count != 2 || brick_init(&config) != BRICK_ON)
        return 2;
    rounds = strtoull(arguments[1], NULL, 10);
    for (int i = 0; i < NAMES; i++)
        names[i] = brick_name(texts[i], strlen(texts[i]), NULL);
    pthread_t threads[WRITERS + 1];
    for (uintptr_t i = 0; i < WRITERS; i++)
        if (pthread_create(&threads[i], NULL, writer, (void *)(i + 1)) != 0)
            return 2;
    if (pthread_create(&threads[WRITERS], NULL, reader, NULL) != 0)
        return 2;
    for (int i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    brick_store_release32(&stop, 1);
    pthread_join(threads[WRITERS], NULL);
    if (marked() != wanted)
        wrong("the number of requested marks and the number of counted marks differ");
    in_a_child();
    printf("%llu marks, %llu without room\n", (unsigned long long)wanted, (unsigned long long)refused);
    return refused == 0 || refused >= wanted;
}
