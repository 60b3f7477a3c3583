/* writer/memory_limit.c - checks whether this process's control groups have enough memory left; without enough, the
 * kernel would kill the process. May run in a child of clone(): uses no heap and no locks. */
#include "memory_limit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

ssize_t brick_read_file(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t length = read(fd, text, size - 1);
    close(fd);
    text[length > 0 ? length : 0] = 0;
    return length;
}

/* Returns the number after `word`, which must begin a line; `missing` if no line begins with it. */
static uint64_t number_after(const char *text, const char *word, uint64_t missing)
{
    size_t length = strlen(word);
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, word, length) == 0)
            return strtoull(line + length, NULL, 10);
    }
    return missing;
}

/* Returns the remaining memory of one control group. Cached file pages count as free, because the kernel drops them
 * before it kills a process. */
static uint64_t group_room(const char *folder, const char *limit_file, const char *usage_file, const char *cache)
{
    char path[400], text[4096];
    snprintf(path, sizeof path, "%s/%s", folder, limit_file);
    if (brick_read_file(path, text, sizeof text) <= 0 || text[0] == 'm') /* "max" */
        return UINT64_MAX;
    uint64_t limit = strtoull(text, NULL, 10);
    snprintf(path, sizeof path, "%s/%s", folder, usage_file);
    if (brick_read_file(path, text, sizeof text) <= 0)
        return UINT64_MAX;
    uint64_t usage = strtoull(text, NULL, 10);
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    uint64_t dropped = brick_read_file(path, text, sizeof text) > 0 ? number_after(text, cache, 0) : 0;
    usage -= dropped < usage ? dropped : usage;
    return limit > usage ? limit - usage : 0;
}

/* Reads the group and all its ancestors, because a group's limit applies to all groups below it. In a container, the
 * path that the kernel reports may be outside of the mount; then the root of the mount is the container's group. */
static uint64_t hierarchy_room(const char *mount, const char *inner, const char *limit_file, const char *usage_file,
                               const char *cache)
{
    char folder[300];
    int length = snprintf(folder, sizeof folder, "%s%s", mount, inner);
    if (length < 0 || (size_t)length >= sizeof folder)
        return UINT64_MAX;
    uint64_t least = UINT64_MAX;
    for (;;) {
        uint64_t room = group_room(folder, limit_file, usage_file, cache);
        least = room < least ? room : least;
        char *slash = strrchr(folder, '/');
        if (slash == NULL || (size_t)(slash - folder) < strlen(mount))
            return least;
        *slash = 0;
    }
}

/* Allocating shared memory above the limit of a memory cgroup gives no error: the kernel kills the process. */
int brick_memory_allows(uint64_t bytes)
{
    static const uint64_t margin = UINT64_C(1) << 20;
    char text[4096];
    if (brick_read_file("/proc/self/cgroup", text, sizeof text) <= 0)
        return 1;
    for (char *line = text, *next; line != NULL; line = next) {
        next = strchr(line, '\n');
        if (next != NULL)
            *next++ = 0;
        char *inner = strstr(line, ":/");
        if (inner == NULL)
            continue;
        inner++;
        uint64_t room = UINT64_MAX;
        if (strncmp(line, "0::", 3) == 0)
            room = hierarchy_room("/sys/fs/cgroup", inner, "memory.max", "memory.current", "inactive_file ");
        else if (strstr(line, ":memory:") != NULL)
            room = hierarchy_room("/sys/fs/cgroup/memory", inner, "memory.limit_in_bytes", "memory.usage_in_bytes",
                                  "total_inactive_file ");
        if (room < bytes + margin)
            return 0;
    }
    return 1;
}
