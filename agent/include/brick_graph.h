/* brick_graph.h - what a program launches, moves and needs: the graph beside its times.
 *
 *   const struct brick_launch how = {.grid = {16, 1, 1}, .block = {256, 1, 1}, .shared_bytes = 1024};
 *   brick_begin(rms_norm, NULL, NULL);
 *   brick_launched(rms_norm_kernel, NULL, &how, NULL, NULL);
 *   ...
 *   brick_end(rms_norm, NULL, elements, bytes);
 *
 * `brickd tree` then shows the kernel under the brick that launched it. Each
 * call counts what it tells in the place where it stands, as spans are counted:
 * a million launches of one shape in one place take one place. Nothing here is
 * an event, none is lost without a daemon, and what finds no room (marks may
 * take the half of a segment's paths and names) is counted.
 *
 * All of brick_agent.h holds here too: keys, threads, forks, signals; no call
 * allocates or makes a system call but at its thread's first and where a place,
 * a shape or a couple of ends is met for the first time.
 */
#ifndef BRICK_GRAPH_H
#define BRICK_GRAPH_H

#include "brick_agent.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How a kernel was launched. A grid and a block of zeros: these are not said. */
struct brick_launch {
    uint32_t grid[3], block[3]; /* blocks; threads of a block */
    uint32_t shared_bytes;      /* of memory that a block shares */
    uint32_t reserved;
    uint64_t source; /* the hash of what it was compiled from; 0: not said */
};

/* A kernel is launched below what is open for the key. elapsed_ns: what the device says that it took; NULL where that is
 * not known, or comes to be known later (brick_defer). how, did: NULL where nothing is said. A shape that cannot be, one of
 * whose numbers is 0, is counted as an amount, and the launch without it. */
unsigned brick_launched(uint32_t kernel, const void *key, const struct brick_launch *how, const uint64_t *elapsed_ns,
                        const struct brick_amounts *did);

/* The same of a brick that was told when it was over, by brick_record: it stands beside what is recorded now. */
unsigned brick_launched_by(uint32_t brick, uint32_t kernel, const void *key, const struct brick_launch *how);

enum brick_direction { BRICK_TO_DEVICE = 0, BRICK_TO_HOST = 1, BRICK_ON_DEVICE = 2 };

/* Bytes were moved between two ends, which are numbers of names: of buffers, of devices. What moves as many bytes back
 * from where this thread had just brought them is counted as returned: of the last 16 transfers that were not. */
unsigned brick_moved(enum brick_direction direction, uint32_t from, uint32_t to, const void *key, uint64_t bytes,
                     const uint64_t *elapsed_ns);

/* A brick needs what another one makes: it cannot begin before that has ended. The first stands beside what is recorded
 * now, below what is open for the key; BRICK_UNNAMED: it is what is open. */
unsigned brick_needs(uint32_t brick, uint32_t needed, const void *key);

/* A brick that would be recorded now is a function, which the line of this file defines. */
unsigned brick_defined(uint32_t brick, uint32_t file, uint32_t line, const void *key);

/* A brick that was just recorded was the last stretch of a task: what of its spans were not waited and went on. */
unsigned brick_task_ended(uint32_t brick, const void *key);

/* ---- sources ------------------------------------------------------------ */

/* What kernels are compiled from. Name and path may be NULL. The texts stay the host's. */
struct brick_text {
    const char *text;
    size_t length;
    const char *name, *path;
};

/* The hash by which a source is known: FNV-1a of 64 bits over its bytes. */
uint64_t brick_source_hash(const char *text, size_t length);

/* Tells the source to whoever reads this worker's events, piece by piece, from *told on, which is 0 at first; as much of it
 * as there is room for. BRICK_REFUSED: some of it is left, to be told by a later call. A text of more than a mebibyte is
 * counted as dropped, and of all other calls nothing is left. */
unsigned brick_source_tell(const struct brick_text *source, uint64_t hash, const void *key, uint64_t *told);

#ifdef __cplusplus
}
#endif

#endif
