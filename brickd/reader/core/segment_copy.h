/* core/segment_copy.h - copies a segment's contents and validates the copies.
 *
 * This code does not use Python, so it can be built alone, with sanitizers. It does not trust the data: it limits every
 * count before it uses the count. When it finds an inconsistency, it refuses the segment, and gives as reason the value
 * seen and the value expected.
 */
#ifndef BRICKD_SEGMENT_COPY_H
#define BRICKD_SEGMENT_COPY_H

#include "brick_shm.h"

#include <stdint.h>

/* The source of the segment's bytes. In the daemon, this is a file. */
struct brick_source {
    /* Like pread. Returns 1 if all bytes were read. */
    int (*read)(const struct brick_source *source, uint64_t offset, void *to, uint64_t length);
    /* Like SEEK_DATA: returns the first offset, from this offset on, that is not in a hole, or UINT64_MAX. If this is
     * NULL, the source has no holes. */
    uint64_t (*data)(const struct brick_source *source, uint64_t offset);
    int fd;
    const void *base;
};

/* Returns the source that reads an open file. */
struct brick_source brick_source_of(int fd);

struct brick_reader {
    struct brick_source source;
    struct brick_header header;
    struct brick_layout layout;
    uint64_t fetched; /* the number of bytes read so far */
    char reason[200]; /* the reason of the last refusal */
};

/* Sets `reason` and returns 0. */
int brick_refuse(struct brick_reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The functions below return 1; on failure, they return 0 and set `reason`. */
int brick_fetch(struct brick_reader *r, uint64_t offset, void *to, uint64_t length);
int brick_reader_open(struct brick_reader *r, uint64_t file_size);
int brick_reader_process(struct brick_reader *r, struct brick_process *to);
/* Copies all lane lines and, unless it is NULL, all consumer lines, each in one read. */
int brick_reader_lanes(struct brick_reader *r, struct brick_lane *lanes, struct brick_consumer *consumers);

enum brick_table { BRICK_NAMES, BRICK_PATHS, BRICK_SITES, BRICK_TABLES };

/* Returns how many rows of a table to allocate and read. This is `claimed`, the number in the process line, or less if
 * the last rows are in a hole: an invalid segment may claim more rows than its worker has written. */
uint32_t brick_reader_rows(const struct brick_reader *r, enum brick_table table, uint64_t claimed);
/* Reads names into `to`, which must be zeros. A name in a hole stays zeros. */
int brick_reader_names(struct brick_reader *r, struct brick_name *to, uint32_t count);
/* Reads the keys of paths or sites. `names`: the number of names. */
int brick_reader_keys(struct brick_reader *r, enum brick_table table, uint64_t *to, uint32_t count, uint32_t names);

/* How many summaries of a copy are uncertain. */
struct brick_doubt {
    uint64_t odd;    /* a writer died while it changed the summary */
    uint64_t moving; /* the summary changed during each copy: it is valid, but some fields may be newer than others */
};

/* Checks that the file still has its full size: the missing end of a truncated file would look like a hole. */
int brick_reader_whole(struct brick_reader *r);
/* Returns how many blocks of a lane's summaries are not holes, among the paths 0 to count - 1. */
uint32_t brick_reader_blocks(const struct brick_reader *r, uint32_t lane, uint32_t count);
/* Adds a lane's summaries of the paths 0 to count - 1 to `into`. Does not read blocks that are holes. */
int brick_reader_summaries(struct brick_reader *r, uint32_t lane, uint32_t count, struct brick_summary *into,
                           struct brick_doubt *doubt);

/* Returns whether `position` is valid in a ring with this head: the slot there is not overwritten yet, or is the next
 * one to be written. */
static inline int brick_ring_holds(uint64_t head, uint64_t slots, uint64_t position)
{
    return position <= head && head - position <= slots;
}

/* Returns whether the writer accepts this tail: its two words match, and its position is valid. */
static inline int brick_tail_believed(const struct brick_tail *tail, uint64_t head, uint64_t slots)
{
    return tail->position == ~tail->complement && brick_ring_holds(head, slots, tail->position);
}

/* Returns whether no consumer has ever moved the tail and the ring still has all records. */
static inline int brick_tail_untouched(const struct brick_tail *tail, uint64_t head, uint64_t slots)
{
    return tail->position == 0 && tail->complement == 0 && head <= slots;
}

/* Returns whether the complement is valid, and not behind the position. A consumer writes the complement first. If it
 * is killed before it writes the position, only the complement has the new value. The writer does not accept such a
 * tail, so it overwrites no slot from that new value on. */
static inline int brick_tail_has_next(const struct brick_tail *tail, uint64_t head, uint64_t slots)
{
    return tail->position <= ~tail->complement && brick_ring_holds(head, slots, ~tail->complement);
}

/* Copies the slots of a ring that are not consumed yet. Returns their number, or -1 on failure. Sets *first to the
 * position of the first copied slot. */
int64_t brick_reader_ring(struct brick_reader *r, uint32_t lane, int events, struct brick_record *to, uint64_t *first);

#endif
