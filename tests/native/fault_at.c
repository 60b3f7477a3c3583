/* Preloaded into a program, which then dies or gets a disk error at one of its effects on files.
 *
 * BRICKD_TEST_FAULT=ACTION:N selects what happens at the N-th effect (1 is the first):
 *   kill-before, kill-after   SIGKILL before or after the effect
 *   kill-half                 SIGKILL after half of a write; before any other effect
 *   short                     half of a write is done and returned; any other effect succeeds
 *   enospc, eio               the effect fails with this error
 *   enospc-on, eio-on         this effect and all later ones fail with this error
 * A lock never fails, and unlink succeeds even with enospc.
 * BRICKD_TEST_FAULT_UNDER=PATH:PATH...  only effects on files below these paths; otherwise on all regular files
 * BRICKD_TEST_FAULT_OF=NAME   only effects with this name count for N; all effects are logged
 * BRICKD_TEST_FAULT_LOG=FD    this descriptor gets a line when an effect begins: its number, its name, the path
 *
 * Each process counts separately; a forked child continues the count of its parent. Reading the metadata of files,
 * mapping files and creating directories do not count as effects. Calls inside glibc (shm_open, stdio) are not seen.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum act { NOTHING, KILL_BEFORE, KILL_AFTER, KILL_HALF, SHORT, FAIL };

static struct {
    enum act act;
    int error;
    int onward;
    unsigned long at;
} plan;
static const char *under, *of;
static int log_fd = -1;
static unsigned long effects, counted;

/* ---- the plan ---------------------------------------------------------- */

static const struct {
    const char *name;
    enum act act;
    int error;
    int onward;
} actions[] = {
    {"kill-before", KILL_BEFORE, 0, 0}, {"kill-after", KILL_AFTER, 0, 0}, {"kill-half", KILL_HALF, 0, 0},
    {"short", SHORT, 0, 0},             {"enospc", FAIL, ENOSPC, 0},      {"enospc-on", FAIL, ENOSPC, 1},
    {"eio", FAIL, EIO, 0},              {"eio-on", FAIL, EIO, 1},
};

static void refuse(const char *variable, const char *value)
{
    fprintf(stderr, "%s=%s: see fault_at.c\n", variable, value);
    exit(2);
}

static unsigned long number(const char *variable, const char *value, const char *digits)
{
    char *end;
    unsigned long result = strtoul(digits, &end, 10);
    if (*digits < '0' || *digits > '9' || *end != 0)
        refuse(variable, value);
    return result;
}

__attribute__((constructor)) static void read_the_environment(void)
{
    const char *text = getenv("BRICKD_TEST_FAULT"), *log = getenv("BRICKD_TEST_FAULT_LOG");
    under = getenv("BRICKD_TEST_FAULT_UNDER");
    of = getenv("BRICKD_TEST_FAULT_OF");
    if (log != NULL)
        log_fd = (int)number("BRICKD_TEST_FAULT_LOG", log, log);
    if (text == NULL)
        return;
    size_t length = strcspn(text, ":");
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++) {
        if (strlen(actions[i].name) == length && memcmp(actions[i].name, text, length) == 0) {
            plan.act = actions[i].act;
            plan.error = actions[i].error;
            plan.onward = actions[i].onward;
        }
    }
    if (plan.act != NOTHING && text[length] == ':')
        plan.at = number("BRICKD_TEST_FAULT", text, text + length + 1);
    if (plan.at == 0)
        refuse("BRICKD_TEST_FAULT", text);
}

/* ---- one effect -------------------------------------------------------- */

/* Effects are identified by the number of their system call, because glibc has several functions for most of them. */
struct effect {
    const char *name;
    long call;
    long a, b, c, d, e;
};

static long perform(struct effect it) { return syscall(it.call, it.a, it.b, it.c, it.d, it.e); }

static void die(void)
{
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;)
        pause();
}

static int is_write(struct effect it) { return it.call == SYS_write || it.call == SYS_pwrite64; }

static int may_fail(struct effect it)
{
    return it.call != SYS_fcntl && !(it.call == SYS_unlinkat && plan.error == ENOSPC);
}

static int concerns(const char *path)
{
    const char *end;
    for (const char *each = under; each != NULL; each = *end == ':' ? end + 1 : NULL) {
        end = each + strcspn(each, ":");
        if (strncmp(path, each, (size_t)(end - each)) == 0)
            return 1;
    }
    return under == NULL;
}

static long effect(struct effect it, const char *path)
{
    if (!concerns(path))
        return perform(it);
    unsigned long n = __atomic_add_fetch(&effects, 1, __ATOMIC_SEQ_CST);
    char line[PATH_MAX + 64];
    int length = snprintf(line, sizeof line, "%lu %s %s\n", n, it.name, path);
    if (log_fd >= 0)
        syscall(SYS_write, log_fd, line, length);
    if (of != NULL && strcmp(of, it.name) != 0)
        return perform(it);
    n = __atomic_add_fetch(&counted, 1, __ATOMIC_SEQ_CST);
    enum act act = (plan.onward ? n >= plan.at : n == plan.at) ? plan.act : NOTHING;

    if (act == KILL_BEFORE || (act == KILL_HALF && !is_write(it)))
        die();
    if (act == FAIL && may_fail(it)) {
        errno = plan.error;
        return -1;
    }
    if ((act == KILL_HALF || act == SHORT) && is_write(it))
        it.c /= 2;
    long result = perform(it);
    if (act == KILL_AFTER || act == KILL_HALF)
        die();
    return result;
}

/* ---- the file of an effect ----------------------------------------------------- */

static void path_of(const char *link, char *path)
{
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = 0;
}

static long on_file(int fd, struct effect it)
{
    char link[64], path[PATH_MAX];
    struct stat status;
    int error = errno;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        errno = error;
        return perform(it);
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    path_of(link, path);
    errno = error;
    return effect(it, path);
}

static long on_path(int directory, const char *name, struct effect it)
{
    char link[64] = "/proc/self/cwd", path[PATH_MAX], whole[2 * PATH_MAX];
    int error = errno;
    if (name[0] == '/')
        return effect(it, name);
    if (directory != AT_FDCWD)
        snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
    path_of(link, path);
    snprintf(whole, sizeof whole, "%s/%s", path, name);
    errno = error;
    return effect(it, whole);
}

/* ---- the replaced functions ------------------------------------------------ */

#define P(pointer) ((long)(intptr_t)(pointer))

ssize_t write(int fd, const void *bytes, size_t count)
{
    return on_file(fd, (struct effect){"write", SYS_write, fd, P(bytes), (long)count, 0, 0});
}
ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset)
{
    return on_file(fd, (struct effect){"pwrite", SYS_pwrite64, fd, P(bytes), (long)count, offset, 0});
}
ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset) { return pwrite(fd, bytes, count, offset); }

int fsync(int fd) { return (int)on_file(fd, (struct effect){"fsync", SYS_fsync, fd, 0, 0, 0, 0}); }
int fdatasync(int fd) { return (int)on_file(fd, (struct effect){"fdatasync", SYS_fdatasync, fd, 0, 0, 0, 0}); }
int ftruncate(int fd, off_t size)
{
    return (int)on_file(fd, (struct effect){"ftruncate", SYS_ftruncate, fd, size, 0, 0, 0});
}
int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }

int renameat2(int from, const char *old, int to, const char *new, unsigned flags)
{
    return (int)on_path(to, new, (struct effect){"rename", SYS_renameat2, from, P(old), to, P(new), (long)flags});
}
int renameat(int from, const char *old, int to, const char *new) { return renameat2(from, old, to, new, 0); }
int rename(const char *old, const char *new) { return renameat2(AT_FDCWD, old, AT_FDCWD, new, 0); }

int unlinkat(int directory, const char *name, int flags)
{
    return (int)on_path(directory, name, (struct effect){"unlink", SYS_unlinkat, directory, P(name), flags, 0, 0});
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }

/* Works like glibc's shm_unlink, with which a daemon removes segments. */
int shm_unlink(const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "/dev/shm/%s", name + strspn(name, "/"));
    const int failed = unlink(path);
    if (failed != 0 && errno == EPERM)
        errno = EACCES;
    return failed;
}

static int open_at(int directory, const char *name, int flags, mode_t mode)
{
    struct effect it = {"open", SYS_openat, directory, P(name), flags, (long)mode, 0};
    return (int)(flags & (O_CREAT | O_TRUNC) ? on_path(directory, name, it) : perform(it));
}

/* If the flags do not require a mode, the argument is undefined, and the kernel ignores it. */
#define OPEN(directory)                                                                                                 \
    va_list more;                                                                                                       \
    va_start(more, flags);                                                                                              \
    int fd = open_at(directory, name, flags, va_arg(more, mode_t));                                                     \
    va_end(more);                                                                                                       \
    return fd;

int open(const char *name, int flags, ...) { OPEN(AT_FDCWD) }
int open64(const char *name, int flags, ...) { OPEN(AT_FDCWD) }
int openat(int directory, const char *name, int flags, ...) { OPEN(directory) }
int openat64(int directory, const char *name, int flags, ...) { OPEN(directory) }

static int control(int fd, int command, long argument)
{
    struct effect it = {"lock", SYS_fcntl, fd, command, argument, 0, 0};
    int locks = command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK || command == F_OFD_SETLKW;
    return (int)(locks ? on_file(fd, it) : perform(it));
}

#define CONTROL                                                                                                         \
    va_list more;                                                                                                       \
    va_start(more, command);                                                                                            \
    int result = control(fd, command, va_arg(more, long));                                                              \
    va_end(more);                                                                                                       \
    return result;

int fcntl(int fd, int command, ...) { CONTROL }
int fcntl64(int fd, int command, ...) { CONTROL }
