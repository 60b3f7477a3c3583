/* segment_file.h - the segment as a file, and its regions. */
#ifndef BRICK_SEGMENT_FILE_H
#define BRICK_SEGMENT_FILE_H

#include "common.h"

#include <sys/mman.h>
#include <sys/types.h>

struct brick_segment {
    int fd;
    dev_t device;
    ino_t inode;
    char name[96];
    uint8_t *base;
    struct brick_header *header;
    struct brick_layout layout;
    uint64_t name_blocks[16]; /* blocks of names that have memory, a bit each */
};

/* What a segment is made from, decided before anything is opened. */
struct brick_plan {
    char prefix[40];
    uint32_t rate; /* of which steps checksums are recorded; 0: not configured */
    struct brick_header header;
};

/* NULL: the segment is locked, has its first memory, and may be published. Else a text of what failed, with errno. */
BRICK_HIDDEN const char *brick_segment_create(struct brick_segment *s, const struct brick_plan *plan);
BRICK_HIDDEN void brick_segment_publish(struct brick_segment *s);

/* Memory for a range of the file, ready to be written without a fault: 1, or 0. */
BRICK_HIDDEN int brick_segment_commit(const struct brick_segment *s, uint64_t offset, uint64_t length);

BRICK_HIDDEN int brick_segment_ours(const struct brick_segment *s);     /* its descriptor still leads to it */
BRICK_HIDDEN int brick_segment_gone(const struct brick_segment *s);     /* unlinked by somebody */
BRICK_HIDDEN int brick_segment_consumed(const struct brick_segment *s); /* a consumer is attached, or was */
BRICK_HIDDEN void brick_segment_remove(struct brick_segment *s);        /* unlink, if it is still the one */
BRICK_HIDDEN void brick_segment_close(struct brick_segment *s);         /* give up descriptor and lock */
BRICK_HIDDEN int brick_locked_byte(int fd, off_t byte);                 /* another process holds this lock */
/* At a clean end: a record of it is appended, and it may be removed. 0: it must stay. */
BRICK_HIDDEN int brick_segment_account(const struct brick_segment *s, const char *prefix);
BRICK_HIDDEN void brick_segment_reap(const char *prefix);               /* dead ones beyond BRICK_DEAD_SHARE */

/* Zeros that no other process sees, ready to be written without a fault; NULL with errno set. */
static inline void *brick_private_memory(uint64_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    return p != MAP_FAILED ? p : NULL;
}

/* Regions of the segment. */
static inline struct brick_control *brick_control_of(const struct brick_segment *s)
{
    return (struct brick_control *)(void *)(s->base + s->layout.control);
}
static inline struct brick_consumer *brick_consumer_of(const struct brick_segment *s, uint32_t lane)
{
    return (struct brick_consumer *)(void *)(s->base + s->layout.consumers) + lane;
}
static inline struct brick_process *brick_process_of(const struct brick_segment *s)
{
    return (struct brick_process *)(void *)(s->base + s->layout.process);
}
static inline struct brick_lane *brick_lane_of(const struct brick_segment *s, uint32_t lane)
{
    return (struct brick_lane *)(void *)(s->base + s->layout.lanes) + lane;
}
static inline struct brick_name *brick_names_of(const struct brick_segment *s)
{
    return (struct brick_name *)(void *)(s->base + s->layout.names);
}
static inline uint64_t *brick_paths_of(const struct brick_segment *s)
{
    return (uint64_t *)(void *)(s->base + s->layout.paths);
}
static inline uint64_t *brick_sites_of(const struct brick_segment *s)
{
    return (uint64_t *)(void *)(s->base + s->layout.sites);
}
static inline uint8_t *brick_area_of(const struct brick_segment *s, uint32_t lane)
{
    return s->base + s->layout.first + lane * s->layout.stride;
}

#endif
