/* common.h - what every file of the writer uses: compiler hints, and named points for tests. Include it first.
 *
 * A process has one agent. Its state is private memory; the segment has the data for others. No file of the writer is
 * public. Calls go down these rows:
 *
 *   span.c  mark.c  deferred.c  rows.c  weights.c  kernel_source.c         what a host records
 *   checksum.c                                                             the same; and what records of tensors share
 *   record_path.c                                                          how a call enters a record
 *   thread.c  lane.c                                                       a thread's lane
 *   lifecycle.c                                                            opened, forked, lost, closed
 *   config.c  pending.c                                                    what a segment is made from; deferred work
 *   intern.c  sensitive.c  weight_name.c  key_file.c                       numbers of names; the key of checksums
 *   removed_record.c                                                       dead segments
 *   segment_file.c  memory_limit.c  clock.c                                the file
 */
#ifndef BRICK_COMMON_H
#define BRICK_COMMON_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* an engine's build may leave it undefined */
#endif

#include "brick_agent.h"
#include "brick_shm.h"

#define BRICK_LIKELY(x) __builtin_expect(!!(x), 1)
#define BRICK_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define BRICK_HIDDEN __attribute__((visibility("hidden")))
#define BRICK_ALWAYS static inline __attribute__((always_inline)) /* inline on the record path, even with several callers */

/* Named steps of each write. A test build kills the process at such a step. */
#ifdef BRICK_TEST_POINTS
extern void (*brick_test_point)(const char *name);
#define BRICK_POINT(name) (brick_test_point ? brick_test_point(name) : (void)0)
#else
#define BRICK_POINT(name) ((void)0)
#endif

/* A failed attempt is repeated at the first, second, fourth, eighth ... request. */
static inline int brick_seldom(uint64_t time) { return (time & (time - 1)) == 0; }

/* Returns the largest length up to `end` that splits no UTF-8 character. */
static inline size_t brick_whole_characters(const char *text, size_t end)
{
    while (end > 0 && ((uint8_t)text[end] & 0xC0) == 0x80)
        end--;
    return end;
}

#endif
