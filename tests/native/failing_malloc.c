/* Preloaded into a program. Makes one library run out of memory, and counts its blocks. A write beyond the end of a
 * block ends the program.
 *
 * allocations_watch(FROM, TO)  counts calls of malloc, calloc and realloc by code at these addresses
 * allocations_fail(N)          makes the N-th such call from now on fail (1 is the next); 0: no call fails
 * allocations_failed()         returns whether that call has failed
 * allocations_held()           returns the number of blocks that are not freed
 *
 * Only one thread at a time may allocate between these calls.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define HELD_MAX 65536u
#define BEHIND "behind!" /* written behind each block, to detect writes beyond its end */

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);
extern void __libc_free(void *block);

static uintptr_t watched_from, watched_to;
static unsigned long until_failure;
static int failed;
static struct {
    uintptr_t block;
    size_t size;
} held[HELD_MAX];
static size_t held_count;

void allocations_watch(uintptr_t from, uintptr_t to)
{
    watched_from = from;
    watched_to = to;
}

void allocations_fail(unsigned long at)
{
    until_failure = at;
    failed = 0;
}

int allocations_failed(void) { return failed; }
size_t allocations_held(void) { return held_count; }

static int is_watched(const void *caller) { return (uintptr_t)caller >= watched_from && (uintptr_t)caller < watched_to; }

static int fails(void)
{
    if (until_failure == 0 || --until_failure > 0)
        return 0;
    failed = 1;
    errno = ENOMEM;
    return 1;
}

static void *made(void *block, size_t size)
{
    if (block != NULL) {
        if (held_count == HELD_MAX)
            abort();
        memcpy((char *)block + size, BEHIND, sizeof BEHIND);
        held[held_count].block = (uintptr_t)block;
        held[held_count++].size = size;
    }
    return block;
}

static void gone(const void *block)
{
    for (size_t n = held_count; n-- > 0;)
        if (held[n].block == (uintptr_t)block) {
            if (memcmp((const char *)block + held[n].size, BEHIND, sizeof BEHIND) != 0)
                abort();
            held[n] = held[--held_count];
            return;
        }
}

void *malloc(size_t size)
{
    if (!is_watched(__builtin_return_address(0)))
        return __libc_malloc(size);
    return fails() ? NULL : made(__libc_malloc(size + sizeof BEHIND), size);
}

void *calloc(size_t count, size_t size)
{
    if (!is_watched(__builtin_return_address(0)))
        return __libc_calloc(count, size);
    return fails() ? NULL : made(__libc_calloc(1, count * size + sizeof BEHIND), count * size);
}

void *realloc(void *block, size_t size)
{
    if (!is_watched(__builtin_return_address(0)))
        return __libc_realloc(block, size);
    if (fails())
        return NULL;
    gone(block);
    return made(__libc_realloc(block, size + sizeof BEHIND), size);
}

void free(void *block)
{
    if (held_count > 0 && block != NULL)
        gone(block);
    __libc_free(block);
}
