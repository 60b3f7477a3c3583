/* writer/key_file.c - the key of the service's checksums, read once or created by the first process that needs it.
 *
 * The file has 48 hexadecimal digits, and only its user may read it. The first 32 digits are the key, which is never
 * published. The other 16 are the key's name, which is also random; the segment shows the name. This file knows nothing
 * of tensors, allocates nothing and takes no lock. The result is final for the process, except after a temporary error.
 */
#include "key_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY_DIGITS 32
#define DIGITS (KEY_DIGITS + 16)
#define SHORT_DIGITS 32 /* the length of the key file of older brick-agents, whose keys had 64 bits */
#define TEMPORARY ".0123456789abcdef" /* the suffix of the temporary file */

struct key_path {
    char path[4096 - sizeof TEMPORARY];
    int is_given; /* BRICKD_KEY_FILE names the file; its directory must exist */
};

static int key_path_find(struct key_path *p)
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

#define REASON_BYTES 80

/* Parses a key. Returns NULL, or an error text, which may be in `reason`. */
static const char *secret_of(const char *text, struct brick_secret *secret, char *reason)
{
    const size_t digits = strspn(text, "0123456789abcdef");
    const int alone = text[digits] == 0 || strcmp(text + digits, "\n") == 0;
    if (alone && digits == SHORT_DIGITS)
        return "has 32 hexadecimal digits, expected 48: remove it, and a worker creates a new one";
    if (!alone || digits != DIGITS) {
        if (digits > DIGITS)
            return "has more than 48 hexadecimal digits, expected 48";
        snprintf(reason, REASON_BYTES, "has %zu hexadecimal digits%s, expected 48", digits, alone ? "" : " and other content");
        return reason;
    }
    secret->key.words[1] = number_of(text);
    secret->key.words[0] = number_of(text + 16);
    secret->name = number_of(text + KEY_DIGITS);
    return (secret->key.words[0] | secret->key.words[1]) == 0 || secret->name == 0 ? "has a key of zeros, expected 48 random hexadecimal digits" : NULL;
}

/* Reads a key file. Returns NULL, or an error text, which may be in `reason`; sets errno if the system reported the
 * error. */
static const char *secret_read(const char *path, struct brick_secret *secret, char *reason)
{
    char text[DIGITS + 3] = {0}; /* 48 digits, a newline, one more byte to detect a longer file, the final zero */
    struct stat status;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return "cannot be opened";
    const char *wrong = NULL;
    errno = 0;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        wrong = "is not a regular file";
    } else if (status.st_uid != geteuid()) {
        snprintf(reason, REASON_BYTES, "belongs to user %u, expected user %u", status.st_uid, geteuid());
        wrong = reason;
    } else if ((status.st_mode & 077) != 0) {
        snprintf(reason, REASON_BYTES, "has mode %04o, expected 0600: chmod 600", status.st_mode & 07777u);
        wrong = reason;
    } else if (read(fd, text, sizeof text - 1) < 0) {
        wrong = "cannot be read";
    }
    close(fd);
    return wrong != NULL ? wrong : secret_of(text, secret, reason);
}

static void directories_make(const char *path)
{
    char part[sizeof((struct key_path *)0)->path];
    for (const char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        memcpy(part, path, (size_t)(slash - path));
        part[slash - path] = 0;
        (void)mkdir(part, 0700);
    }
}

/* Creates the file atomically; never replaces an existing file. */
static void secret_make(const struct key_path *p)
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

/* Returns whether an error may be temporary: caused by the state of the process or the machine, not by the file. */
static int passes(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOMEM || error == EINTR || error == EAGAIN || error == ENOSPC
           || error == EDQUOT;
}

static void complain(const char *effect, const char *path, const char *wrong)
{
    char line[4400];
    const int error = errno;
    const int length = snprintf(line, sizeof line, "brickd: %s: the key file %s %s%s%s (BRICKD_KEY_FILE)\n", effect, path,
                                wrong, error != 0 ? ": " : "", error != 0 ? strerror(error) : "");
    if (length > 0 && write(STDERR_FILENO, line, (size_t)length) < 0)
        return;
}

#define WITHOUT "checksums are made without the service's key"

/* Returns 1 if the result is final, even if there is no key. */
static int secret_get(struct brick_secret *secret, int warns)
{
    struct key_path place;
    char reason[REASON_BYTES];
    *secret = (struct brick_secret){.name = 0};
    if (!key_path_find(&place)) {
        errno = 0;
        complain(WITHOUT, "of this user", "has no directory: set BRICKD_STATE_DIR");
        return 1;
    }
    const char *wrong = secret_read(place.path, secret, reason);
    if (wrong != NULL && errno == ENOENT) {
        secret_make(&place);
        const int error = errno;
        wrong = secret_read(place.path, secret, reason);
        if (wrong != NULL && errno == ENOENT)
            errno = error; /* report why the file could not be created */
    }
    if (wrong == NULL)
        return 1;
    *secret = (struct brick_secret){.name = 0};
    if (!passes(errno)) {
        complain(WITHOUT, place.path, wrong);
        return 1;
    }
    if (warns)
        complain("no checksums are made until the service's key can be read", place.path, wrong);
    return 0;
}

int brick_secret(struct brick_secret *secret)
{
    static struct brick_secret result;
    static uint32_t state;   /* 1: a thread is storing the result; 2: the result is stored */
    static uint32_t failed;  /* 1: the last attempt failed */
    static uint64_t requests; /* requests since the last attempt */
    if (BRICK_LIKELY(brick_load_acquire32(&state) == 2)) {
        *secret = result;
        return 1;
    }
    if (brick_load_relaxed32(&failed) && !brick_seldom(brick_fetch_add(&requests, 1) + 1))
        return 0;
    const int error = errno; /* preserve the host's errno */
    const int found = secret_get(secret, !brick_load_relaxed32(&failed));
    errno = error;
    if (!found) {
        brick_store_relaxed32(&failed, 1);
        return 0;
    }
    if (brick_claim32(&state, 0, 1)) {
        result = *secret;
        brick_store_release32(&state, 2);
    } else if (brick_load_acquire32(&state) == 2) {
        *secret = result;
    } /* otherwise use this thread's result, which comes from the same file */
    return 1;
}
