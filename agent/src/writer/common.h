/* common.h - compiler hints and named points for tests, for every file of the writer. Include it first.
 *
 * A process has one agent. The agent's own state is in private memory; data for other processes is in the segment. No
 * header of the writer is public. Comments such as O3 name a row of the table in section 4 of brick_shm.h, which gives
 * the reason for the memory order. A file calls only files in its own row or in the rows below it:
 *
 *   span.c  mark.c  deferred.c  rows.c  weights.c  kernel_source.c         what a host records
 *   checksum.c                                                             checksums, and what all records of tensors share
 *   record_path.c                                                          how a call enters a record
 *   thread.c  lane.c                                                       a thread's lane
 *   lifecycle.c                                                            opens, replaces and closes the segment; forks
 *   config.c  pending.c                                                    the settings of a segment; counts of deferred work
 *   intern.c  sensitive.c  weight_name.c  key_file.c                       numbers of names; the key of checksums
 *   removed_record.c  run_mark.c                                           dead segments; reports to `brickd run`
 *   segment_file.c  memory_limit.c  clock.c                                the file
 */
#ifndef BRICK_COMMON_H
#define BRICK_COMMON_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* the build of an engine may not define _GNU_SOURCE */
#endif

#include "brick_agent.h"
#include "brick_shm.h"

#define BRICK_LIKELY(x) __builtin_expect(!!(x), 1)
#define BRICK_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define BRICK_HIDDEN __attribute__((visibility("hidden")))
/* For functions of the record path with several callers: inlined into each of them. */
#define BRICK_ALWAYS static inline __attribute__((always_inline))

/* A named point between the stores of a record. A test build kills the process there. */
#ifdef BRICK_TEST_POINTS
extern void (*brick_test_point)(const char *name);
#define BRICK_POINT(name) (brick_test_point ? brick_test_point(name) : (void)0)
#else
#define BRICK_POINT(name) ((void)0)
#endif

/* For an attempt that may fail often: returns whether to repeat it at request number `time`, which is so at the first,
 * second, fourth, eighth request, and so on. */
static inline int brick_seldom(uint64_t time) { return (time & (time - 1)) == 0; }

/* Returns the largest length up to `end` that splits no UTF-8 character. */
static inline size_t brick_whole_characters(const char *text, size_t end)
{
    while (end > 0 && ((uint8_t)text[end] & 0xC0) == 0x80)
        end--;
    return end;
}

#endif
