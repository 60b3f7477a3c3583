/* writer/run_mark.c - tells each `brickd run` above this process that something is recorded.
 *
 * The first Python process of a run creates a private file in memory, and puts PID:FD of this file into _BRICKD_RUN. If
 * a descendant of that process opens a segment, it writes one byte into the file. The file exists as long as the
 * process that created it, so nothing is left behind. This code uses no heap and no locks.
 */
#include "run_mark.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MARK_FILE "/memfd:brickd-run" /* brick_agent/_torch/unrecorded.py creates this file */

/* Returns whether a link of /proc leads to such a file. By now, the number of the descriptor may belong to another
 * file. */
static int is_mark(const char *link)
{
    char target[sizeof MARK_FILE - 1];
    return readlink(link, target, sizeof target) == (ssize_t)sizeof target && memcmp(target, MARK_FILE, sizeof target) == 0;
}

static void mark(unsigned long pid, unsigned long number)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/%lu/fd/%lu", pid, number);
    const int fd = is_mark(link) ? open(link, O_WRONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (is_mark(link))
        (void)!pwrite(fd, "1", 1, 0); /* fails if the memory group is full */
    close(fd);
}

void brick_run_mark(void)
{
    for (const char *at = getenv("_BRICKD_RUN"); at != NULL; at = strchr(at, ' ')) {
        at += *at == ' ';
        char *rest;
        const unsigned long pid = strtoul(at, &rest, 10);
        if (*rest == ':' && pid != (unsigned long)getpid())
            mark(pid, strtoul(rest + 1, NULL, 10));
    }
}
