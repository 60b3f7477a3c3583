/* writer/removed_record.c - removes segments, and appends a record of each (brick_removed.h).
 *
 * At a clean end, the worker removes its own segment. At the start of a worker, it removes the oldest segments of dead
 * workers while these take too much of /dev/shm. May run in a child of clone(): uses no heap and no locks of the C
 * library.
 */
#include "clock.h"
#include "memory_limit.h"
#include "segment_file.h"

#include "brick_removed.h"

#include <errno.h>
#include <signal.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

static int append(const char *prefix, struct brick_removed *record)
{
    return brick_memory_allows(sizeof *record) && brick_removed_append(prefix, record);
}

int brick_segment_account(const struct brick_segment *s, const char *prefix)
{
    struct brick_removed record;
    struct stat status;
    if (!brick_segment_ours(s) || fstat(s->fd, &status) != 0 || status.st_uid != geteuid())
        return 0;
    brick_removed_begin(&record, s->header, brick_process_of(s), BRICK_REMOVED_ENDED, brick_clock_ns(CLOCK_REALTIME));
    for (uint32_t n = 0; n < s->header->lanes; n++)
        brick_removed_add(&record, brick_lane_of(s, n));
    if (!append(prefix, &record))
        return 0;
    BRICK_POINT("recorded");
    return 1;
}

/* ---- dead segments ----------------------------------------------------- */

/* The largest number of segments that a new worker removes. */
#define REMOVED_AT_ONCE 32u

/* Returns whether the worker of this file is another process, which has ended: no process holds a lock and the pid does
 * not exist. A wrong "no" is harmless: `brickd prune` removes the segment later. A wrong "yes" would remove a live
 * worker's segment. */
static int is_dead(int fd)
{
    struct brick_header h;
    return !brick_locked_byte(fd, BRICK_LOCK_WORKER) && !brick_locked_byte(fd, BRICK_LOCK_CONSUMER)
           && pread(fd, &h, sizeof h, 0) == (ssize_t)sizeof h && h.magic == BRICK_MAGIC && h.pid != 0
           && (pid_t)h.pid != getpid() && kill((pid_t)h.pid, 0) != 0 && errno == ESRCH;
}

/* Returns 0 if the file is not a valid segment. */
static int take_account(int fd, uint64_t size, struct brick_removed *record)
{
    struct brick_header h;
    struct brick_layout layout;
    struct brick_process process;
    struct brick_lane lane;
    if (pread(fd, &h, sizeof h, 0) != (ssize_t)sizeof h || h.magic != BRICK_MAGIC || h.major != BRICK_MAJOR
        || h.layout_crc != brick_layout_crc() || h.header_crc != brick_header_crc(&h) || !brick_layout_compute(&h, &layout)
        || layout.size != size || pread(fd, &process, sizeof process, (off_t)layout.process) != (ssize_t)sizeof process)
        return 0;
    brick_removed_begin(record, &h, &process, BRICK_REMOVED_ROOM, brick_clock_ns(CLOCK_REALTIME));
    for (uint32_t n = 0; n < h.lanes; n++) {
        if (pread(fd, &lane, sizeof lane, (off_t)(layout.lanes + n * sizeof lane)) != (ssize_t)sizeof lane)
            return 0;
        brick_removed_add(record, &lane);
    }
    return 1;
}

struct candidate {
    int64_t born;
    uint64_t bytes;
    ino_t inode;
    char name[96];
};

/* Records a dead segment and removes it. Returns 0 if the segment must stay. */
static int remove_dead(int folder, const char *prefix, const struct candidate *c)
{
    struct brick_removed record;
    struct stat status;
    int fd = openat(folder, c->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), removed = 0;
    if (fd < 0)
        return 0;
    if (fstat(fd, &status) == 0 && status.st_ino == c->inode && status.st_nlink == 1 && is_dead(fd)
        && take_account(fd, (uint64_t)status.st_size, &record) && append(prefix, &record)) {
        BRICK_POINT("recorded");
        removed = fstatat(folder, c->name, &status, AT_SYMLINK_NOFOLLOW) == 0 && status.st_ino == c->inode
                  && unlinkat(folder, c->name, 0) == 0;
    }
    close(fd);
    return removed;
}

/* The largest number of files in /dev/shm that a new worker looks at, which takes 20 ms. There is a limit because
 * another user may create any number of files there. */
#ifndef BRICK_LOOKED_AT
#define BRICK_LOOKED_AT 16384u
#endif

struct listing {
    char bytes[4096] __attribute__((aligned(8)));
    long length, at;
};

/* Calls getdents64, because readdir would allocate from the heap. */
static const char *next_name(int folder, struct listing *l)
{
    if (l->at >= l->length) {
        l->length = syscall(SYS_getdents64, folder, l->bytes, sizeof l->bytes);
        l->at = 0;
        if (l->length <= 0)
            return NULL;
    }
    struct entry {
        uint64_t inode;
        int64_t offset;
        uint16_t length;
        uint8_t type;
        char name[];
    };
    const struct entry *e = (const struct entry *)(const void *)(l->bytes + l->at);
    l->at += e->length;
    return e->name;
}

/* Returns whether this is a regular file of this user with this prefix, so that it may be a segment. */
static int is_ours(int folder, const char *name, const char *prefix, struct stat *status)
{
    return strncmp(name, prefix, strlen(prefix)) == 0 && strlen(name) < sizeof((struct candidate *)0)->name
           && !brick_removed_is_name(name) && fstatat(folder, name, status, AT_SYMLINK_NOFOLLOW) == 0
           && S_ISREG(status->st_mode) && status->st_uid == geteuid() && status->st_nlink == 1;
}

/* Files of this folder that the process has open, perhaps through another copy of this code. If this code opened and
 * closed such a file again, the process would lose its locks on the file. */
struct open_files {
    ino_t inodes[64];
    uint32_t count;
};

static int list_open(struct open_files *files, int folder)
{
    struct listing list = {.length = 0, .at = 0};
    struct stat home, status;
    files->count = 0;
    int descriptors = fstat(folder, &home) == 0 ? open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (descriptors < 0)
        return 0;
    for (const char *name; (name = next_name(descriptors, &list)) != NULL;) {
        if (fstatat(descriptors, name, &status, 0) != 0 || !S_ISREG(status.st_mode) || status.st_dev != home.st_dev)
            continue;
        if (files->count < sizeof files->inodes / sizeof files->inodes[0])
            files->inodes[files->count] = status.st_ino;
        files->count++;
    }
    close(descriptors);
    return files->count <= sizeof files->inodes / sizeof files->inodes[0];
}

static int is_open(const struct open_files *files, ino_t inode)
{
    uint32_t i = 0;
    while (i < files->count && files->inodes[i] != inode)
        i++;
    return i < files->count;
}

/* Returns how many bytes a user's dead segments may take. If /dev/shm has no limit, the machine's memory is the
 * limit. */
static uint64_t share_of_dead(int folder)
{
    struct statvfs room;
    if (fstatvfs(folder, &room) != 0)
        return UINT64_MAX;
    uint64_t free = room.f_blocks != 0 ? room.f_bavail * (uint64_t)room.f_frsize
                                       : (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    return free / BRICK_DEAD_SHARE;
}

static uint64_t bytes_of(const struct stat *status) { return (uint64_t)status->st_blocks * 512u; }

/* The oldest dead segments, unordered, and the bytes of all dead segments. */
struct dead {
    struct candidate oldest[REMOVED_AT_ONCE];
    uint32_t count;
    uint64_t bytes;
};

static void note_dead(struct dead *dead, const char *name, const struct stat *status)
{
    const int64_t born = (int64_t)status->st_mtim.tv_sec * 1000000000 + status->st_mtim.tv_nsec;
    dead->bytes += bytes_of(status);
    struct candidate *c = &dead->oldest[dead->count];
    if (dead->count < REMOVED_AT_ONCE) {
        dead->count++;
    } else {
        c = &dead->oldest[0];
        for (uint32_t i = 1; i < REMOVED_AT_ONCE; i++)
            c = dead->oldest[i].born > c->born ? &dead->oldest[i] : c;
        if (born >= c->born)
            return;
    }
    *c = (struct candidate){.born = born, .bytes = bytes_of(status), .inode = status->st_ino};
    strcpy(c->name, name);
}

static void remove_oldest(int folder, const char *prefix, struct dead *dead, uint64_t share)
{
    while (dead->bytes > share && dead->count > 0) {
        struct candidate *oldest = &dead->oldest[0];
        for (uint32_t i = 1; i < dead->count; i++)
            oldest = dead->oldest[i].born < oldest->born ? &dead->oldest[i] : oldest;
        if (remove_dead(folder, prefix, oldest))
            dead->bytes -= oldest->bytes;
        *oldest = dead->oldest[--dead->count];
    }
}

void brick_segment_reap(const char *prefix)
{
    struct listing list = {.length = 0, .at = 0};
    struct open_files files;
    struct stat status;
    uint64_t taken = 0;
    uint32_t looks = 0;
    int folder = open(BRICK_DIRECTORY, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return;
    const uint64_t share = share_of_dead(folder);
    for (const char *name; looks < BRICK_LOOKED_AT && (name = next_name(folder, &list)) != NULL; looks++)
        taken += is_ours(folder, name, prefix, &status) ? bytes_of(&status) : 0;
    if (taken > share && lseek(folder, 0, SEEK_SET) == 0 && list_open(&files, folder)) {
        struct dead dead = {.count = 0, .bytes = 0};
        list.length = list.at = 0;
        BRICK_POINT("counted");
        /* Counts anew: files created since then may be listed first, so the first count may not reach the old files. */
        looks = 0;
        for (const char *name; looks < BRICK_LOOKED_AT && (name = next_name(folder, &list)) != NULL; looks++) {
            if (!is_ours(folder, name, prefix, &status) || is_open(&files, status.st_ino))
                continue;
            int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
            if (fd >= 0 && is_dead(fd))
                note_dead(&dead, name, &status);
            if (fd >= 0)
                close(fd);
        }
        remove_oldest(folder, prefix, &dead, share);
    }
    close(folder);
}
