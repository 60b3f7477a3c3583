/* brick_graph.h - what a program launches, moves and needs: the graph of its work.
 *
 *   const struct brick_launch how = {.grid = {16, 1, 1}, .block = {256, 1, 1}, .shared_bytes = 1024};
 *   brick_begin(rms_norm, NULL, NULL);
 *   brick_launched(rms_norm_kernel, NULL, &how, NULL, NULL);
 *   ...
 *   brick_end(rms_norm, NULL, elements, bytes);
 *
 * `brickd tree` then shows the kernel under the brick that launched it. Each call is a mark, counted in its place in
 * the tree as spans are: a million launches of one shape in one place take one path. Marks are no events: none is lost
 * without a daemon. They may take half of a segment's paths and names; what finds no room is counted.
 *
 * All of brick_agent.h holds here too: keys, threads, forks, signals. Only the first call of a thread, or for a new
 * place, shape or pair of ends, allocates or makes a system call.
 */
#ifndef BRICK_GRAPH_H
#define BRICK_GRAPH_H

#include "brick_agent.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How a kernel was launched. A grid and a block of zeros are not known. */
struct brick_launch {
    uint32_t grid[3], block[3]; /* blocks; threads of a block */
    uint32_t shared_bytes;      /* of memory that a block shares */
    uint32_t reserved;
    uint64_t source; /* the hash of what it was compiled from; 0: not known */
};

/* A kernel is launched below what is open for the key. elapsed_ns: the device's measurement; NULL if there is none, or it
 * comes later (brick_defer). how, did: may be NULL. A shape with a 0 among its numbers is counted as a bad amount, and the
 * launch without it. */
unsigned brick_launched(uint32_t kernel, const void *key, const struct brick_launch *how, const uint64_t *elapsed_ns,
                        const struct brick_amounts *did);

/* The same below a brick that brick_record recorded when it was over: a child of what is open for the key. */
unsigned brick_launched_by(uint32_t brick, uint32_t kernel, const void *key, const struct brick_launch *how);

enum brick_direction { BRICK_TO_DEVICE = 0, BRICK_TO_HOST = 1, BRICK_ON_DEVICE = 2 };

/* Bytes were moved between two ends, which are numbers of names: of buffers, of devices. A transfer that moves as many bytes
 * back is counted as returned, if the other one is among the last 16 of this thread that were not. */
unsigned brick_moved(enum brick_direction direction, uint32_t from, uint32_t to, const void *key, uint64_t bytes,
                     const uint64_t *elapsed_ns);

/* A brick needs the result of another one: it cannot begin before that has ended. `brick` is a child of what is open for the
 * key; BRICK_UNNAMED: it is what is open. */
unsigned brick_needs(uint32_t brick, uint32_t needed, const void *key);

/* A brick, as it would be recorded now, is a function that this line of the file defines. */
unsigned brick_defined(uint32_t brick, uint32_t file, uint32_t line, const void *key);

/* The span of this brick that was just recorded was the last one of a task: the others ended as it waited. */
unsigned brick_task_ended(uint32_t brick, const void *key);

/* ---- nodes ---------------------------------------------------------------- */

/* A node of a graph that the host draws itself, below what is open for the key. elapsed_ns: the time that the host states
 * for it, 0: none. The time is shown in the tree, and is in no total: of a brick that was also timed, nothing counts twice.
 * Beside a launch or a transfer of its name, the time is that one's. did: may be NULL. */
unsigned brick_node(uint32_t brick, const void *key, uint64_t elapsed_ns, const struct brick_amounts *did);

/* A node is open: what is recorded now is below it. No clock is read and nothing is counted. */
unsigned brick_node_begin(uint32_t brick, const void *key);
unsigned brick_node_end(uint32_t brick, const void *key);

/* The open node is a function, which this line of the file defines; or a task. */
unsigned brick_node_defined(uint32_t file, uint32_t line, const void *key);
unsigned brick_node_task(uint64_t polls, uint64_t yields, const void *key);

/* ---- sources ------------------------------------------------------------ */

/* What a kernel is compiled from. Name and path may be NULL. The texts stay the host's. */
struct brick_text {
    const char *text;
    size_t length;
    const char *name, *path;
};

/* The hash by which a source is known: FNV-1a of 64 bits over its bytes. */
uint64_t brick_source_hash(const char *text, size_t length);

/* Writes the source into the event ring, piece by piece, from piece *piece on, which is 0 at first; as many as there is room
 * for. BRICK_REFUSED: some pieces are left for a later call; without it none is. A text of more than a mebibyte is counted
 * as dropped. */
unsigned brick_source_tell(const struct brick_text *source, uint64_t hash, const void *key, uint64_t *piece);

#ifdef __cplusplus
}
#endif

#endif
