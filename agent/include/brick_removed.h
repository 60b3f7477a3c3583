/* brick_removed.h - the records of removed segments, format 1.
 *
 * This file defines the format for the worker, `brickd prune` and the daemon. Prose comes first, then the struct and
 * the functions.
 *
 * 1. THE FILE
 *
 * /dev/shm/PREFIXremoved-UID has one record of 256 bytes per removed segment. The file is not a segment. Each user has
 * one such file, with mode 0600; the first process that needs it creates it. A record has the worker's identity, and
 * the sums of the worker's counters over all lanes (the ledger of brick_shm.h), but no totals of bricks.
 *
 *   append     a process that removes a segment whose totals are in no checkpoint first appends a record: it takes the
 *              shared lock, checks the file, and writes the record with one write (O_APPEND). Then it unlinks the
 *              segment
 *   truncate   the daemon (without one, `brickd prune`) saves the records in its checkpoint, takes the exclusive lock,
 *              and truncates the file if it holds only saved records
 *   read       any process of the user reads without a lock
 *
 * The locks are open file description locks on the whole file. No process waits for a lock: an append that cannot get
 * the lock fails, and a segment without a record is not removed. A page is a multiple of 256 bytes, so if
 * /dev/shm is full, a write writes the whole record or nothing. A reader detects an incomplete record by its CRC.
 *
 * 2. COUNTING
 *
 * A reader counts each uuid once, and leaves out the spans that the checkpoint already counts:
 *
 *   removed = begun in the record - begun in the checkpoint's totals of the same uuid
 *
 * A reader ignores a record in three cases: the reader also reads the segment itself; another segment or record has
 * taken over the totals of this uuid (`took` names this uuid); or the checkpoint lists the uuid as part of an
 * aggregate.
 *
 * A reader reads the checkpoint first, then the segments, then this file, because a record is appended before its
 * segment is unlinked. If the checkpoint was replaced in the meantime, the reader starts again. In the daemon, a reader
 * holds a lock while it reads, and the daemon truncates the file only under the same lock.
 *
 * 3. THE LIFE OF A DEAD SEGMENT
 *
 *   step                     a kill after this step leaves                 a reader counts (removed: see section 2)
 *   dead                     the segment                                   its totals
 *   record appended          the segment and a record                      its totals; the record adds nothing
 *   unlinked                 a record                                      removed
 *   record in a checkpoint   a record, and its uuid in the checkpoint      removed, once
 *   file truncated           its uuid in the checkpoint                    removed
 *
 *   or with a daemon:
 *   totals in a checkpoint   the segment, and its uuid in the checkpoint   its totals, once
 *   unlinked                 its uuid in the checkpoint                    its totals
 *
 * Two workers may remove the same segment at the same time, and a worker may remove a segment while a daemon attaches
 * to it. The result is two records of one uuid, or a record of a uuid whose totals are in a checkpoint. Under the rules
 * of section 2, both cases are counted once.
 */
#ifndef BRICK_REMOVED_H
#define BRICK_REMOVED_H

#include "brick_shm.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define BRICK_REMOVED_MAGIC UINT64_C(0x564D52444B435242) /* "BRCKDRMV" */
#define BRICK_REMOVED_FORMAT 1u
#define BRICK_REMOVED_NAME "removed-"

/* The largest number of records in the file: 1 MiB. Processes that append at the same time may each find room for the
 * last record, so a reader accepts twice as many. */
#define BRICK_REMOVED_MAX 4096u
#define BRICK_REMOVED_READ_MAX (2u * BRICK_REMOVED_MAX)

enum brick_removed_reason {
    BRICK_REMOVED_ROOM = 1,   /* a new worker needed the memory of a dead worker's segment */
    BRICK_REMOVED_ENDED = 2,  /* the worker ended cleanly, and no daemon ever attached */
    BRICK_REMOVED_PRUNED = 3, /* `brickd prune` removed it */
};

struct brick_removed {
    uint64_t magic;
    uint16_t format;
    uint16_t reason;         /* enum brick_removed_reason */
    uint32_t crc;            /* CRC of this record, computed with 0 in this field */
    uint8_t uuid[16];        /* the fields from uuid to started_ns are as in the segment's header */
    uint8_t service[64];
    uint8_t coordinates[16]; /* the first 16 bytes of the coordinates */
    int32_t index;
    uint32_t reserved;
    uint64_t started_ns;
    uint64_t removed_ns;     /* CLOCK_REALTIME */
    uint64_t took;           /* as in struct brick_process */
    /* The sums over all lanes. no_lane is counted for the whole process. */
    uint64_t begun;
    uint64_t summarized;
    uint64_t rejected[BRICK_REJECTED_REASONS];
    uint64_t open;
    uint64_t abandoned;
    uint64_t nested;
    uint64_t no_lane;
    uint64_t span_attempts;
    uint64_t span_dropped;   /* dropped span records, for any reason */
    uint64_t event_attempts;
    uint64_t event_dropped;  /* dropped events, of any kind */
    uint64_t marks;
    uint64_t marks_refused;
};
BRICK_ASSERT(sizeof(struct brick_removed) == 256, "a page is a multiple of a record");

#define BRICK_REMOVED_LAYOUT(F) \
    F(removed, magic, 'Q') F(removed, format, 'H') F(removed, reason, 'H') F(removed, crc, 'I') F(removed, uuid, 'B') \
    F(removed, service, 'B') F(removed, coordinates, 'B') F(removed, index, 'i') F(removed, reserved, 'I') \
    F(removed, started_ns, 'Q') F(removed, removed_ns, 'Q') F(removed, took, 'Q') F(removed, begun, 'Q') \
    F(removed, summarized, 'Q') F(removed, rejected, 'Q') F(removed, open, 'Q') F(removed, abandoned, 'Q') \
    F(removed, nested, 'Q') F(removed, no_lane, 'Q') F(removed, span_attempts, 'Q') F(removed, span_dropped, 'Q') \
    F(removed, event_attempts, 'Q') F(removed, event_dropped, 'Q') F(removed, marks, 'Q') F(removed, marks_refused, 'Q')

/* The reader decodes a record with this table. */
__attribute__((unused)) static const struct brick_field brick_removed_fields[] = {
#define BRICK_REMOVED_FIELD(record, field, code)                                                                        \
    {#record, #field, (uint32_t)offsetof(struct brick_##record, field),                                                 \
     (uint32_t)sizeof(((struct brick_##record *)0)->field), code},
    BRICK_REMOVED_LAYOUT(BRICK_REMOVED_FIELD)
#undef BRICK_REMOVED_FIELD
};
#define BRICK_REMOVED_FIELD_COUNT (sizeof(brick_removed_fields) / sizeof(brick_removed_fields[0]))

/* ---- a record ---------------------------------------------------------- */

static inline void brick_removed_begin(struct brick_removed *r, const struct brick_header *h, const struct brick_process *p,
                                       enum brick_removed_reason reason, uint64_t now_ns)
{
    memset(r, 0, sizeof *r);
    r->magic = BRICK_REMOVED_MAGIC;
    r->format = BRICK_REMOVED_FORMAT;
    r->reason = (uint16_t)reason;
    memcpy(r->uuid, h->uuid, sizeof r->uuid);
    memcpy(r->service, h->service, sizeof r->service);
    memcpy(r->coordinates, h->coordinates, sizeof r->coordinates);
    r->index = h->index;
    r->started_ns = h->started_ns;
    r->removed_ns = now_ns;
    r->took = brick_load_relaxed(&p->reserved[BRICK_PROCESS_TOOK]);
    r->no_lane = brick_load_relaxed(&p->no_lane);
}

static inline void brick_removed_add(struct brick_removed *r, const struct brick_lane *lane)
{
    r->begun += brick_load_relaxed(&lane->begun);
    r->summarized += brick_load_relaxed(&lane->summarized);
    for (uint32_t i = 0; i < BRICK_REJECTED_REASONS; i++)
        r->rejected[i] += brick_load_relaxed(&lane->rejected[i]);
    r->open += brick_load_relaxed(&lane->open);
    r->abandoned += brick_load_relaxed(&lane->abandoned);
    r->nested += brick_load_relaxed(&lane->nested);
    r->span_attempts += brick_load_relaxed(&lane->span_attempts);
    for (uint32_t i = 0; i < BRICK_DROPPED_REASONS; i++)
        r->span_dropped += brick_load_relaxed(&lane->span_dropped[i]);
    r->event_attempts += brick_load_relaxed(&lane->event_attempts);
    for (uint32_t i = 0; i < BRICK_KINDS; i++)
        r->event_dropped += brick_load_relaxed(&lane->event_dropped[i]);
    r->marks += brick_load_relaxed(&lane->reserved2[BRICK_LANE_MARKS]);
    r->marks_refused += brick_load_relaxed(&lane->reserved2[BRICK_LANE_MARKS_REFUSED]);
}

/* Returns whether the worker recorded nothing. */
static inline int brick_removed_is_empty(const struct brick_removed *r)
{
    return (r->begun | r->nested | r->no_lane | r->event_attempts | r->marks) == 0;
}

static inline uint32_t brick_removed_crc(const struct brick_removed *r)
{
    struct brick_removed copy = *r;
    copy.crc = 0;
    return brick_crc32(0, &copy, sizeof copy);
}

static inline int brick_removed_is_whole(const struct brick_removed *r)
{
    return r->magic == BRICK_REMOVED_MAGIC && r->format == BRICK_REMOVED_FORMAT && r->crc == brick_removed_crc(r);
}

/* ---- the file ---------------------------------------------------------- */

/* Returns whether this is the name of a file of records, of any prefix and user: "...removed-1000". */
static inline int brick_removed_is_name(const char *name)
{
    const size_t word = sizeof BRICK_REMOVED_NAME - 1;
    size_t length = strlen(name), digits = 0;
    while (digits < length && name[length - 1 - digits] >= '0' && name[length - 1 - digits] <= '9')
        digits++;
    return digits > 0 && digits <= 10 && length >= digits + word
           && memcmp(name + length - digits - word, BRICK_REMOVED_NAME, word) == 0;
}

#define BRICK_REMOVED_PATH_MAX 96

/* Writes the path of this user's file. Returns 0 if the prefix is too long. */
static inline int brick_removed_path(char path[BRICK_REMOVED_PATH_MAX], const char *prefix)
{
    const int length = snprintf(path, BRICK_REMOVED_PATH_MAX, BRICK_DIRECTORY "/%s" BRICK_REMOVED_NAME "%u", prefix,
                                (unsigned)geteuid());
    return length > 0 && length < BRICK_REMOVED_PATH_MAX;
}

static inline int brick_removed_lock(int fd, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0};
    return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

/* Returns whether a record may be appended to this file: the file belongs to this user alone, has only complete
 * records, and has room for one more. */
static inline int brick_removed_has_room(int fd, struct stat *status)
{
    return fstat(fd, status) == 0 && S_ISREG(status->st_mode) && status->st_nlink == 1 && status->st_uid == geteuid()
           && (status->st_mode & 077) == 0 && status->st_size % (off_t)sizeof(struct brick_removed) == 0
           && status->st_size < (off_t)(BRICK_REMOVED_MAX * sizeof(struct brick_removed));
}

/* Appends a record. Returns 1 if the record is in the file or if there is nothing to count: then the segment may be
 * removed. Never waits. */
static inline int brick_removed_append(const char *prefix, struct brick_removed *r)
{
    char path[BRICK_REMOVED_PATH_MAX];
    struct rlimit limit;
    struct stat status;
    int fd = -1, done = 0;
    if (brick_removed_is_empty(r))
        return 1;
    /* A write beyond RLIMIT_FSIZE raises a signal that kills the process. */
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur < BRICK_REMOVED_READ_MAX * sizeof *r)
        return 0;
    if (brick_removed_path(path, prefix))
        fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0)
        return 0;
    if (brick_removed_lock(fd, F_RDLCK)) {
        r->crc = brick_removed_crc(r);
        if (brick_removed_has_room(fd, &status))
            done = write(fd, r, sizeof *r) == (ssize_t)sizeof *r && fstat(fd, &status) == 0 && status.st_nlink == 1;
        /* Allocate memory for the next record now: if /dev/shm were full later, no record could be appended, and so no
         * segment could be removed. */
        if (done)
            (void)fallocate(fd, FALLOC_FL_KEEP_SIZE, status.st_size, (off_t)sizeof *r);
        brick_removed_lock(fd, F_UNLCK); /* unlocks now, even if a forked child holds the descriptor */
    }
    close(fd);
    return done;
}

#endif
