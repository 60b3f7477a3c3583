/* brick_secret.c - the key of the service's checksums: read once, or made by whoever needs it first.
 *
 * A file of 32 hexadecimal digits that its user alone may read. The first 16 are
 * the key, which goes nowhere; the others are its name, which stands in the
 * segment: chosen as the key was, it says nothing of it. Knows nothing of
 * tensors. As in brick_segment.c nothing is allocated and no lock is taken.
 */
#include "brick_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIGITS 32
#define TEMPORARY ".0123456789abcdef" /* what the name of the file that is written first has more */

struct place {
    char path[4096 - sizeof TEMPORARY];
    int is_given; /* its directory is the host's affair */
};

static int place_find(struct place *p)
{
    const char *file = getenv("BRICKD_KEY_FILE"), *state = getenv("BRICKD_STATE_DIR");
    const char *common = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int length = -1;
    p->is_given = file != NULL && *file != 0;
    if (p->is_given)
        length = snprintf(p->path, sizeof p->path, "%s", file);
    else if (state != NULL && *state != 0)
        length = snprintf(p->path, sizeof p->path, "%s/key", state);
    else if (common != NULL && *common == '/')
        length = snprintf(p->path, sizeof p->path, "%s/brickd/key", common);
    else if (home != NULL && *home == '/' && home[1] != 0)
        length = snprintf(p->path, sizeof p->path, "%s/.local/state/brickd/key", home);
    return length > 0 && (size_t)length < sizeof p->path;
}

static uint64_t number_of(const char *digits)
{
    uint64_t number = 0;
    for (int n = 0; n < 16; n++)
        number = number << 4 | (uint64_t)(digits[n] <= '9' ? digits[n] - '0' : digits[n] - 'a' + 10);
    return number;
}

/* NULL, or what is wrong with it, with errno where the system says more. */
static const char *secret_read(const char *path, struct brick_secret *secret)
{
    char text[DIGITS + 1] = {0};
    struct stat status;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return "cannot be opened";
    const char *wrong = NULL;
    errno = 0;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        wrong = "is no file";
    else if (status.st_uid != geteuid())
        wrong = "is another user's";
    else if ((status.st_mode & 077) != 0)
        wrong = "may be read or changed by others: chmod 600";
    else if (read(fd, text, DIGITS) != DIGITS || strspn(text, "0123456789abcdef") != DIGITS)
        wrong = "holds no 32 hexadecimal digits";
    close(fd);
    if (wrong != NULL)
        return wrong;
    secret->key = number_of(text);
    secret->name = number_of(text + 16);
    return secret->key == 0 || secret->name == 0 ? "holds a key that is none" : NULL;
}

static void directories_make(const char *path)
{
    char part[sizeof((struct place *)0)->path];
    for (const char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        memcpy(part, path, (size_t)(slash - path));
        part[slash - path] = 0;
        (void)mkdir(part, 0700);
    }
}

/* A whole file or none, and never in the place of another. */
static void secret_make(const struct place *p)
{
    static const char hex[] = "0123456789abcdef";
    char text[DIGITS + 2], temporary[4096];
    uint8_t random[DIGITS / 2 + 8];
    if (getrandom(random, sizeof random, GRND_NONBLOCK) != (ssize_t)sizeof random)
        return;
    for (int n = 0; n < DIGITS; n++)
        text[n] = hex[random[n / 2] >> (n % 2 ? 0 : 4) & 15];
    text[DIGITS] = '\n';
    size_t at = strlen(p->path);
    memcpy(temporary, p->path, at);
    temporary[at++] = '.';
    for (size_t n = DIGITS; n < 2 * sizeof random; n++)
        temporary[at++] = hex[random[n / 2] >> (n % 2 ? 0 : 4) & 15];
    temporary[at] = 0;
    if (!p->is_given)
        directories_make(p->path);
    const int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    const int whole = write(fd, text, DIGITS + 1) == DIGITS + 1 && fsync(fd) == 0;
    int error = errno;
    close(fd);
    if (whole && (link(temporary, p->path) == 0 || errno == EEXIST))
        error = 0;
    else if (whole)
        error = errno;
    unlink(temporary);
    errno = error;
}

static void complain(const char *path, const char *wrong)
{
    char line[4400];
    const int error = errno;
    const int length = snprintf(line, sizeof line,
                                "brickd: checksums are made without the service's key: %s %s%s%s (BRICKD_KEY_FILE)\n", path,
                                wrong, error != 0 ? ": " : "", error != 0 ? strerror(error) : "");
    if (length > 0 && write(STDERR_FILENO, line, (size_t)length) < 0)
        return;
}

static struct brick_secret secret_get(void)
{
    struct brick_secret secret = {0, 0};
    struct place place;
    if (!place_find(&place)) {
        errno = 0;
        complain("its file", "has no place: set BRICKD_STATE_DIR");
        return secret;
    }
    const char *wrong = secret_read(place.path, &secret);
    if (wrong != NULL && errno == ENOENT) {
        secret_make(&place);
        const int error = errno;
        wrong = secret_read(place.path, &secret);
        if (wrong != NULL && errno == ENOENT)
            errno = error; /* why it was not made */
    }
    if (wrong != NULL) {
        complain(place.path, wrong);
        secret = (struct brick_secret){0, 0};
    }
    return secret;
}

struct brick_secret brick_secret(void)
{
    static struct brick_secret settled;
    static uint32_t state; /* 1: one thread is about to settle it; 2: it has */
    if (BRICK_LIKELY(brick_load_acquire32(&state) == 2))
        return settled;
    const int error = errno; /* the host's own */
    const struct brick_secret found = secret_get();
    errno = error;
    if (brick_claim32(&state, 0, 1)) {
        settled = found;
        brick_store_release32(&state, 2);
    }
    return brick_load_acquire32(&state) == 2 ? settled : found; /* what it read itself: it is the same file */
}
