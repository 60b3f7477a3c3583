/* writer/segment_file.c - the segment as a file: creates it, allocates its memory, locks it.
 *
 * Knows nothing of lanes or names. Uses no heap and no lock of the C library, because it also runs in a child of
 * clone(): there, threads of the parent may hold these locks forever.
 */
#include "clock.h"
#include "memory_limit.h"
#include "segment_file.h"

#include "brick_hash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Checks the descriptor: the host may have closed it, and its number may now belong to another file. */
static int is_ours(const struct brick_segment *s, struct stat *status)
{
    return s->fd >= 0 && fstat(s->fd, status) == 0 && status->st_dev == s->device && status->st_ino == s->inode;
}

int brick_segment_ours(const struct brick_segment *s)
{
    struct stat status;
    return is_ours(s, &status);
}

/* ---- memory ------------------------------------------------------------ */

/* Maps the pages into the process; fallocate has already created them. */
static void populate(uint8_t *start, uint64_t length)
{
    if (madvise(start, length, MADV_POPULATE_WRITE) == 0)
        return;
    for (uint64_t at = 0; at < length; at += BRICK_PAGE) /* before Linux 5.14: add 0 to one byte of each page */
        __atomic_fetch_add(start + at, 0, __ATOMIC_RELAXED);
}

int brick_segment_commit(const struct brick_segment *s, uint64_t offset, uint64_t length)
{
    if (!brick_memory_allows(length))
        return 0;
    if (!brick_segment_ours(s)) /* fallocate would enlarge another file; from Linux 5.14 on, madvise can do it */
        return madvise(s->base + offset, length, MADV_POPULATE_WRITE) == 0;
    int tries = 0;
    while (fallocate(s->fd, 0, (off_t)offset, (off_t)length) != 0)
        if (errno != EINTR || ++tries == 100) /* a profiling timer of the host may interrupt fallocate */
            return 0;
    populate(s->base + offset, length);
    return 1;
}

/* Maps a sparse file. If the host locks its memory (mlockall), an ordinary new mapping would allocate every page of the
 * file. So the mapping begins with PROT_NONE, and each page is locked when it is allocated (before Linux 4.4:
 * never). */
static void *map_sparse(int fd, uint64_t size)
{
    void *base = mmap(NULL, size, PROT_NONE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return base;
    const int locked = msync(base, BRICK_PAGE, MS_ASYNC | MS_INVALIDATE) != 0 && errno == EBUSY;
    if (locked && syscall(SYS_mlock2, base, size, MLOCK_ONFAULT) != 0)
        munlock(base, size);
    if (mprotect(base, size, PROT_READ | PROT_WRITE) == 0)
        return base;
    munmap(base, size);
    return MAP_FAILED;
}

/* ---- life -------------------------------------------------------------- */

static int lock_byte(int fd, off_t byte)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    return fcntl(fd, F_SETLK, &lock);
}

int brick_locked_byte(int fd, off_t byte)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    return fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

static void fill_random(uint8_t *bytes, size_t length)
{
    if (getrandom(bytes, length, GRND_NONBLOCK) == (ssize_t)length)
        return;
    const uint64_t state = brick_clock_ns(CLOCK_MONOTONIC) ^ (uint64_t)getpid() << 32;
    for (size_t i = 0; i < length; i++) /* need not be unique: O_EXCL detects a name that exists already */
        bytes[i] = (uint8_t)brick_splitmix64(state + i);
}

static void read_boot_id(uint8_t *id)
{
    char text[64];
    if (brick_read_file("/proc/sys/kernel/random/boot_id", text, sizeof text) <= 0)
        return;
    size_t n = 0;
    for (const char *c = text; *c != 0 && n < 32; c++) {
        int digit = *c >= '0' && *c <= '9' ? *c - '0' : *c >= 'a' && *c <= 'f' ? *c - 'a' + 10 : -1;
        if (digit < 0)
            continue;
        id[n / 2] = (uint8_t)(id[n / 2] << 4 | digit);
        n++;
    }
}

static uint64_t read_process_start(void)
{
    char text[1024];
    if (brick_read_file("/proc/self/stat", text, sizeof text) <= 0)
        return 0;
    const char *at = strrchr(text, ')'); /* the process name before the bracket may contain any text */
    for (int field = 2; at != NULL && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at != NULL ? strtoull(at + 1, NULL, 10) : 0;
}

/* Never returns the number of a standard stream: if the host has closed its streams, it would print into the segment.
 * The mode is always 0600: with read access, another user could take the locks; with write access, another user could
 * truncate the file. */
static int open_above_standard(const char *name)
{
    int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    int above = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), error = errno;
    if (above < 0)
        shm_unlink(name);
    close(fd);
    errno = error;
    return above;
}

/* Returns an error text, in a buffer of the only thread that opens the segment. */
__attribute__((format(printf, 1, 2))) static const char *refused(const char *format, ...)
{
    static char text[160];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    errno = 0; /* the text is complete */
    return text;
}

const char *brick_segment_create(struct brick_segment *s, const struct brick_plan *plan)
{
    static const char hex[] = "0123456789abcdef";
    memset(s, 0, sizeof *s);
    s->fd = -1;
    uint8_t uuid[16];
    struct brick_header counts = plan->header;
    if (counts.lanes > BRICK_LANES_MAX)
        return refused("BRICKD_LANES is %u, expected at most %u", counts.lanes, BRICK_LANES_MAX);
    if (!brick_layout_compute(&counts, &s->layout)) /* the other sizes were rounded */
        return refused("span_slots is %u, expected a power of two of at most %u", counts.span_slots, BRICK_SLOTS_MAX);
    struct rlimit limit;
    /* Enlarging a file above the limit would raise a signal that kills the process. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < s->layout.size)
        return refused("the limit of file sizes is %llu bytes, expected at least %llu: raise it (ulimit -f), or lower BRICKD_PATHS",
                       (unsigned long long)limit.rlim_cur, (unsigned long long)s->layout.size);
    fill_random(uuid, sizeof uuid);
    size_t at = strlen(plan->prefix);
    memcpy(s->name, plan->prefix, at);
    for (size_t i = 0; i < sizeof uuid; i++) {
        s->name[at++] = hex[uuid[i] >> 4];
        s->name[at++] = hex[uuid[i] & 15];
    }
    s->name[at] = 0;

    s->fd = open_above_standard(s->name);
    if (s->fd < 0)
        return "cannot create a file in /dev/shm";
    const char *wrong = NULL;
    struct stat status;
    if (lock_byte(s->fd, BRICK_LOCK_WORKER) != 0)
        wrong = "cannot lock the file in /dev/shm";
    else if (ftruncate(s->fd, (off_t)s->layout.size) != 0 || fstat(s->fd, &status) != 0)
        wrong = "cannot size the file in /dev/shm";
    else {
        void *base = map_sparse(s->fd, s->layout.size);
        if (base == MAP_FAILED) {
            wrong = "cannot map the segment";
        } else {
            s->base = (uint8_t *)base;
            s->device = status.st_dev;
            s->inode = status.st_ino;
            if (!brick_segment_commit(s, 0, s->layout.names + BRICK_BLOCK * sizeof(struct brick_name))) {
                errno = ENOSPC;
                wrong = "no memory for the segment: /dev/shm or the memory cgroup is full (brickd doctor)";
            }
        }
    }
    if (wrong != NULL) {
        int error = errno;
        shm_unlink(s->name);
        if (s->base != NULL)
            munmap(s->base, s->layout.size);
        close(s->fd);
        memset(s, 0, sizeof *s);
        s->fd = -1;
        errno = error;
        return wrong;
    }
    s->header = (struct brick_header *)(void *)s->base;
    struct brick_header h = counts;
    h.magic = 0;
    h.endian = BRICK_ENDIAN;
    h.major = BRICK_MAJOR;
    h.minor = BRICK_MINOR;
    h.layout_crc = brick_layout_crc();
    h.size = s->layout.size;
    h.started_ns = brick_clock_ns(CLOCK_REALTIME);
    h.process_start = read_process_start();
    h.pid = (uint32_t)getpid();
    h.uid = (uint32_t)geteuid();
    memcpy(h.uuid, uuid, sizeof uuid);
    read_boot_id(h.boot_id);
    brick_clock_pair(h.clock, &h.anchor_ticks, &h.anchor_ns);
    memcpy(h.reserved, &plan->rate, sizeof plan->rate);
    h.header_crc = brick_header_crc(&h);
    *s->header = h;
    s->name_blocks[0] = 1;
    BRICK_POINT("header");
    return NULL;
}

void brick_segment_publish(struct brick_segment *s)
{
    brick_store_release(&s->header->magic, BRICK_MAGIC); /* O1 */
    BRICK_POINT("published");
}

int brick_segment_gone(const struct brick_segment *s)
{
    struct stat status;
    return is_ours(s, &status) && status.st_nlink == 0;
}

int brick_segment_consumed(const struct brick_segment *s)
{
    return brick_load_relaxed(&brick_control_of(s)->reserved[BRICK_CONTROL_ATTACHED]) != 0
           || (brick_segment_ours(s) && brick_locked_byte(s->fd, BRICK_LOCK_CONSUMER));
}

void brick_segment_remove(struct brick_segment *s)
{
    if (brick_segment_ours(s))
        shm_unlink(s->name);
}

void brick_segment_close(struct brick_segment *s)
{
    if (brick_segment_ours(s))
        close(s->fd);
    s->fd = -1;
}
