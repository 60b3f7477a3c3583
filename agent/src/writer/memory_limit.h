/* memory_limit.h - reads small files of the kernel, and the memory limits in them. */
#ifndef BRICK_MEMORY_LIMIT_H
#define BRICK_MEMORY_LIMIT_H

#include "common.h"

#include <sys/types.h>

BRICK_HIDDEN ssize_t brick_read_file(const char *path, char *text, size_t size); /* zero-terminated; -1 on failure */
/* 0: a memory cgroup would kill the process */
BRICK_HIDDEN int brick_memory_allows(uint64_t bytes);

#endif
