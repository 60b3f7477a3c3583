/* brick_graph.h - what a program launches, moves and needs: the graph of its work.
 *
 *   const struct brick_launch how = {.grid = {16, 1, 1}, .block = {256, 1, 1}, .shared_bytes = 1024};
 *   brick_begin(rms_norm, NULL, NULL);
 *   brick_launched(rms_norm_kernel, NULL, &how, NULL, NULL);
 *   ...
 *   brick_end(rms_norm, NULL, elements, bytes);
 *
 * `brickd tree` then shows the kernel under the brick that launched it. Each call is a mark: the segment counts marks
 * by their place in the tree, as it counts spans. So a million equal launches at one place need no more room than one
 * launch, and without a daemon no mark is lost. Marks may use half of a segment's paths (places in the tree) and half
 * of its names. A mark for which there is no room is only counted.
 *
 * The rules of brick_agent.h apply here: keys, threads, forks, signals. Only the first call of a thread, and the first
 * call for a new place, shape or pair of ends, allocates or makes a system call.
 */
#ifndef BRICK_GRAPH_H
#define BRICK_GRAPH_H

#include "brick_agent.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How a kernel was launched. All zeros in grid and block mean unknown. */
struct brick_launch {
    uint32_t grid[3], block[3]; /* blocks; threads of a block */
    uint32_t shared_bytes;      /* bytes of shared memory per block */
    uint32_t reserved;
    uint64_t source; /* the hash of the kernel's source; 0: unknown */
};

/* Records the launch of a kernel below the key's open span. elapsed_ns: the device's measurement; NULL if there is
 * none, or if it comes later (brick_defer). how, did: may be NULL. If a number in the shape is 0, the shape is counted
 * as an invalid amount, and the launch is recorded without it. */
unsigned brick_launched(uint32_t kernel, const void *key, const struct brick_launch *how, const uint64_t *elapsed_ns,
                        const struct brick_amounts *did);

/* Records a launch below a brick that brick_record has just recorded as a child of the key's open span. */
unsigned brick_launched_by(uint32_t brick, uint32_t kernel, const void *key, const struct brick_launch *how);

enum brick_direction { BRICK_TO_DEVICE = 0, BRICK_TO_HOST = 1, BRICK_ON_DEVICE = 2 };

/* Records that bytes were moved between two ends. An end is the id of the name of a buffer or device. A transfer counts
 * as the return of an earlier one if the earlier one moved the same number of bytes in the opposite direction. Only
 * this thread's last 16 transfers that have no return yet are considered. */
unsigned brick_moved(enum brick_direction direction, uint32_t from, uint32_t to, const void *key, uint64_t bytes,
                     const uint64_t *elapsed_ns);

/* Records that `brick` needs the result of `needed`, so that `brick` cannot begin before `needed` has ended. `brick`
 * is a child of the key's open span; BRICK_UNNAMED stands for the open span itself. */
unsigned brick_needs(uint32_t brick, uint32_t needed, const void *key);

/* Records that a brick is a function, defined at this line of this file. The brick is a child of the key's open
 * span. */
unsigned brick_defined(uint32_t brick, uint32_t file, uint32_t line, const void *key);

/* Records that the last span of this brick ended a task. If this call does not follow a span, the span ended because
 * its task began to wait. */
unsigned brick_task_ended(uint32_t brick, const void *key);

/* ---- nodes ---------------------------------------------------------------- */

/* Records a node of a graph that the host draws, below the key's open span. elapsed_ns: the time that the host gives;
 * 0: none. The tree shows this time, but no total includes it, so if the brick is timed too, its time does not count
 * twice. If there is a launch or a transfer of the same name at this place, the time belongs to that launch or
 * transfer. did: may be NULL. */
unsigned brick_node(uint32_t brick, const void *key, uint64_t elapsed_ns, const struct brick_amounts *did);

/* Open and close a node: records in between become its children. Neither call reads the clock or counts anything. */
unsigned brick_node_begin(uint32_t brick, const void *key);
unsigned brick_node_end(uint32_t brick, const void *key);

/* brick_node_defined records that the open node is a function, which is defined at this line of this file
 * (BRICK_UNNAMED: unknown). brick_node_task records that the open node is a task. */
unsigned brick_node_defined(uint32_t file, uint32_t line, const void *key);
unsigned brick_node_task(uint64_t polls, uint64_t yields, const void *key);

/* ---- sources ------------------------------------------------------------ */

/* The source of a kernel. `name` and `path` may be NULL. The host must keep the texts until they are written. */
struct brick_text {
    const char *text;
    size_t length;
    const char *name, *path;
};

/* The hash that identifies a source: FNV-1a of 64 bits over its bytes. */
uint64_t brick_source_hash(const char *text, size_t length);

/* Writes pieces of the source into the event ring, as long as there is room. *piece is the number of the next piece:
 * set it to 0 before the first call. Returns BRICK_REFUSED if pieces remain for a later call; otherwise all are
 * written. A text of more than 1 MiB is counted as dropped. */
unsigned brick_source_tell(const struct brick_text *source, uint64_t hash, const void *key, uint64_t *piece);

#ifdef __cplusplus
}
#endif

#endif
