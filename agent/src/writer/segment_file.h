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
    uint64_t name_blocks[16]; /* one bit for each block of names that has memory */
};

/* The settings of a segment, decided before it is opened. */
struct brick_plan {
    char prefix[40];
    uint32_t rate; /* the configured rate of steps with checksums; 0: not configured */
    struct brick_header header;
};

/* Creates, sizes and locks the segment and allocates its first memory. Returns NULL if it may now be published; else an
 * error text, with errno. */
BRICK_HIDDEN const char *brick_segment_create(struct brick_segment *s, const struct brick_plan *plan);
BRICK_HIDDEN void brick_segment_publish(struct brick_segment *s);

/* Allocates memory for a range of the file, so that it can be written without a fault. Returns 0 if there is no
 * memory. */
BRICK_HIDDEN int brick_segment_commit(const struct brick_segment *s, uint64_t offset, uint64_t length);

/* Returns whether the descriptor still refers to the segment. */
BRICK_HIDDEN int brick_segment_ours(const struct brick_segment *s);
BRICK_HIDDEN int brick_segment_gone(const struct brick_segment *s);     /* whether the file was unlinked */
BRICK_HIDDEN int brick_segment_consumed(const struct brick_segment *s); /* whether a consumer is or was attached */
/* Unlinks the file, if the name still belongs to this process's segment. */
BRICK_HIDDEN void brick_segment_remove(struct brick_segment *s);
BRICK_HIDDEN void brick_segment_close(struct brick_segment *s);         /* closes the descriptor, which drops the lock */
/* Returns whether another process holds the lock on this byte. */
BRICK_HIDDEN int brick_locked_byte(int fd, off_t byte);
/* At a clean end: appends a record of the segment. Returns 1 if the segment may be removed, 0 if it must stay. */
BRICK_HIDDEN int brick_segment_account(const struct brick_segment *s, const char *prefix);
BRICK_HIDDEN void brick_segment_reap(const char *prefix);               /* removes dead segments above their share */

/* Returns zeroed private memory that can be written without a page fault; NULL with errno. */
static inline void *brick_private_memory(uint64_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    return p != MAP_FAILED ? p : NULL;
}

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
