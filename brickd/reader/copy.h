/* copy.h - takes private copies of what a segment says, and judges the copies.
 *
 * No Python here, so that sanitizers and other tests can build it alone. Nothing
 * read is trusted: every count is bounded before it is used, and whatever does
 * not add up is refused with a text that says what was seen and what was wanted.
 */
#ifndef BRICKD_COPY_H
#define BRICKD_COPY_H

#include "brick_shm.h"

#include <stdint.h>

/* Where the bytes come from: 1 when all of them came. The daemon's is pread. */
struct brick_source {
    int (*read)(const struct brick_source *source, uint64_t offset, void *to, uint64_t length);
    int fd;
    const void *base;
};

int brick_read_fd(const struct brick_source *source, uint64_t offset, void *to, uint64_t length);

struct brick_reader {
    struct brick_source source;
    struct brick_header header;
    struct brick_layout layout;
    char reason[200]; /* of the last refusal */
};

/* Each returns 1, or 0 with `reason` set. */
int brick_reader_open(struct brick_reader *r, uint64_t file_size);
int brick_reader_process(struct brick_reader *r, struct brick_process *to);
/* All lane lines and all consumer lines, in one read each. */
int brick_reader_lanes(struct brick_reader *r, struct brick_lane *lanes, struct brick_consumer *consumers);
int brick_reader_names(struct brick_reader *r, struct brick_name *to, uint32_t count);
int brick_reader_paths(struct brick_reader *r, uint64_t *to, uint32_t count, uint32_t names);

/* How sure a copy is. */
struct brick_doubt {
    uint64_t odd;    /* entries whose writer was inside, and stayed there */
    uint64_t moving; /* entries that changed during every try: each field is right, all together may be some spans apart */
};

/* Adds the summaries of one lane, paths 0 to count, to `into`. */
int brick_reader_summaries(struct brick_reader *r, uint32_t lane, uint32_t count, struct brick_summary *into,
                           struct brick_doubt *doubt);

/* The slots of a ring that hold records not yet consumed; returns how many, or -1. *first: the first one's number. */
int64_t brick_reader_ring(struct brick_reader *r, uint32_t lane, int events, struct brick_record *to, uint64_t *first);

#endif
