/* core/recording_format.h - the file format of recordings, version 1.3.
 *
 * This file defines the format, first in prose and then as structs. The writer and the reader of recordings share
 * nothing else.
 *
 * 1. OVERVIEW
 *
 * A recording is one file or a series of files. Each file can be read alone. A file has two equal titles, then chunks.
 * All integers are little-endian, everything begins at a multiple of 64 bytes, and padding is zeros.
 *
 *   +----------------+ 0
 *   | title          |   identifies the format and the recording
 *   +----------------+ 64
 *   | title          |   a copy, so that one damaged byte makes at most one chunk unreadable
 *   +----------------+ 128
 *   | chunk          |   head: kind, length, number, time, checksums
 *   |   body ...     |   depends on the kind
 *   |   zeros        |   up to the next 64
 *   +----------------+
 *   | chunk ...      |   numbered from 0
 *   +----------------+
 *   | chunk of kind  |   the writer has closed the file; no chunk follows
 *   | END            |
 *   +----------------+
 *
 *   head          | magic:64 | kind:32 | 0:32 | length:64 | number:64 | at_ns:64 | 0:64 | body_sum:64 | head_sum:64 |
 *
 * While the writer is writing, a file is longer than its contents: the writer allocates room ahead, which reads as
 * zeros. The writer frees this room when it closes the file.
 *
 * 2. EVERY LEGAL TRANSITION
 *
 *   file    empty    -> titled    the writer
 *           titled   -> ended     the writer: END, then the file cut to its true length
 *           titled   -> cut       the kernel: it killed the writer, or the disk was removed; END is missing
 *   chunk   zeros    -> body      the writer: body and padding; the head stays zeros
 *           body     -> whole     the writer: the head, in one write
 *
 *   A chunk exists when its head exists. At any time, even after the writer was killed, a reader has all chunks up to a
 *   head of zeros.
 *
 * 3. WHAT A READER ACCEPTS
 *
 *   A reader accepts the first title with a correct checksum. A reader accepts a head with a correct checksum if the
 *   head's body has a correct checksum and the head's number is above that of the previous chunk. All other data is
 *   damage: it ends at the next valid head or at the end of the file, and reading continues there.
 *
 *   The key of the checksums comes from the title, which recorded workers never see. Bodies contain a worker's bytes
 *   unchanged. A reader that searches for the next head after damage does not take these bytes for a chunk, because a
 *   worker cannot compute the checksums without the key.
 *
 * 4. CHECKSUM
 *
 *   Eight lanes of 64 bits, one for each word of 64 bytes:
 *
 *     lane = rotate left by 29 (lane + word) * an odd number      modulo 2^64
 *
 *   Each step is invertible in the word and in the lane: if one word changes, the lane differs in all later steps. At
 *   the end, one step for each lane mixes the lane into the number of blocks. These steps are invertible, too, so every
 *   change of a single word changes the checksum. A change of two words stays unnoticed with a probability of 2^-64.
 *   The checksum is computed as fast as memory can be read.
 *
 * 5. VERSIONS
 *
 *   A major version freezes the structs and the checksum. A minor version may add kinds of chunks, which an older
 *   reader skips and counts, and names for reserved fields. Magic, major and minor have the same offsets in every major
 *   version.
 */
#ifndef BRICKD_RECORDING_FORMAT_H
#define BRICKD_RECORDING_FORMAT_H

#include "brick_atomic.h"

#include <stddef.h>
#include <stdint.h>

#define BRICK_RECORDING_MAJOR 1
#define BRICK_RECORDING_MINOR 3

#define BRICK_TITLE_MAGIC UINT64_C(0x6365726b63697262) /* "brickrec" */
#define BRICK_CHUNK_MAGIC UINT64_C(0x6b6e68636b697262) /* "brikchnk" */

#define BRICK_BLOCK 64u

/* The largest body, which limits the memory of a reader. */
#define BRICK_BODY_MAX (UINT64_C(64) << 20)

/* Kinds of chunks. A body without a struct here is JSON, defined by brickd/recording. */
enum {
    BRICK_CHUNK_END = 1,      /* struct brick_end */
    BRICK_CHUNK_RECORDS = 2,  /* struct brick_records, then slots of a ring */
    BRICK_CHUNK_WORKERS = 3,  /* the workers and their numbers */
    BRICK_CHUNK_SNAPSHOT = 4, /* the totals of all workers at one moment */
    BRICK_CHUNK_EVENTS = 5,   /* reports of the daemon */
    BRICK_CHUNK_BEGINNING = 6, /* the recorded workers, and the writer */
    BRICK_CHUNK_TABLES = 7,   /* names and paths of the snapshots that follow */
    BRICK_CHUNK_ENDING = 8,   /* the reason for the end, and the totals */
    BRICK_CHUNK_WEIGHTS = 9,  /* since 1.2: the state of workers' weights when the file began */
    BRICK_CHUNK_SOURCE = 10,  /* since 1.3: a line of JSON about a source, then its text */
    BRICK_CHUNK_KINDS         /* the number after the last known kind */
};

struct brick_title {
    uint64_t magic;
    uint16_t major, minor;
    uint32_t number;  /* the number of the file within its series */
    uint64_t made_ns; /* creation time, in ns since 1970 */
    uint8_t id[16];   /* random; the same for all files of a series */
    uint64_t reserved[2];
    uint64_t sum; /* checksum of the fields above, with a key of zeros */
};
BRICK_ASSERT(sizeof(struct brick_title) == BRICK_BLOCK, "a title is one block");
BRICK_ASSERT(offsetof(struct brick_title, major) == 8, "at the same offset in all major versions");
BRICK_ASSERT(offsetof(struct brick_title, id) == 24, "frozen");
BRICK_ASSERT(offsetof(struct brick_title, sum) == 56, "frozen");

struct brick_chunk {
    uint64_t magic;
    uint32_t kind;
    uint32_t reserved0;
    uint64_t length; /* bytes of the body, without padding */
    uint64_t number; /* the number of the chunk, from 0 in each file */
    uint64_t at_ns;  /* in ns since 1970 */
    uint64_t reserved1;
    uint64_t body_sum; /* the checksum of the body, with padding */
    uint64_t head_sum; /* the checksum of the fields above */
};
BRICK_ASSERT(sizeof(struct brick_chunk) == BRICK_BLOCK, "a head is one block");
BRICK_ASSERT(offsetof(struct brick_chunk, length) == 16, "frozen");
BRICK_ASSERT(offsetof(struct brick_chunk, at_ns) == 32, "frozen");
BRICK_ASSERT(offsetof(struct brick_chunk, head_sum) == 56, "frozen");

enum { BRICK_RING_SPANS, BRICK_RING_EVENTS };

/* The start of the body of RECORDS. The slots may have any value: they are recorded without a check. */
struct brick_records {
    uint32_t worker; /* the worker's number in WORKERS */
    uint32_t lane;
    uint32_t ring;   /* BRICK_RING_SPANS or BRICK_RING_EVENTS */
    uint32_t inside; /* since 1.1: how many slots at the start belong to an earlier record or to no record */
    uint64_t first; /* position of the first slot in its ring */
    uint64_t reserved[5];
};
BRICK_ASSERT(sizeof(struct brick_records) == BRICK_BLOCK, "slots are aligned");
BRICK_ASSERT(offsetof(struct brick_records, first) == 16, "frozen");

/* The body of END: counts of data that had no room in the file. */
struct brick_end {
    uint64_t chunks; /* the number of chunks before this one */
    uint64_t refused_chunks, refused_bytes;
    uint64_t refused_slots; /* slots of rings that had no room */
    uint64_t reserved[4];
};
BRICK_ASSERT(sizeof(struct brick_end) == BRICK_BLOCK, "frozen");

#define BRICK_RECORDING_FIRST (2 * (uint64_t)sizeof(struct brick_title)) /* where the first chunk begins */
#define BRICK_END_BYTES ((uint64_t)(sizeof(struct brick_chunk) + sizeof(struct brick_end)))

static inline uint64_t brick_blocks_of(uint64_t bytes) { return (bytes + BRICK_BLOCK - 1) & ~(uint64_t)(BRICK_BLOCK - 1); }

uint64_t brick_now_ns(void);

struct brick_key {
    uint64_t words[2];
};

struct brick_sum {
    uint64_t lanes[8];
    uint64_t blocks;
};

void brick_sum_begin(struct brick_sum *s, const struct brick_key *key);
void brick_sum_add(struct brick_sum *s, const void *blocks, uint64_t count);
uint64_t brick_sum_end(const struct brick_sum *s);

void brick_title_seal(struct brick_title *title);
struct brick_key brick_title_key(const struct brick_title *title);
/* Validates the first BRICK_RECORDING_FIRST bytes of a file, or the whole file if it is shorter. Returns 1 and sets
 * `title`, or returns 0 and sets `reason`. */
int brick_title_judge(const void *bytes, uint64_t length, struct brick_title *title, char *reason, size_t room);

void brick_chunk_seal(struct brick_chunk *head, const struct brick_key *key);
/* Returns whether this is a valid head of a chunk in this file. */
int brick_chunk_whole(const struct brick_chunk *head, const struct brick_key *key);

#endif
