/* Selects the mutant that runs, by its number in MUTANT_CHOSEN; 0 selects none. MUTANTS_REACHED names a file with a
 * byte for each mutant. The code marks each mutant that it reaches in this file. */
#ifndef BRICK_MUTANT_H
#define BRICK_MUTANT_H

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wextra"
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#pragma GCC diagnostic ignored "-Wparentheses"
#pragma GCC diagnostic ignored "-Wtype-limits"
#pragma GCC diagnostic ignored "-Wunused-value"
#pragma GCC diagnostic ignored "-Wbool-operation"
#pragma GCC diagnostic ignored "-Wint-in-bool-context"
#pragma GCC diagnostic ignored "-Wlogical-op"
#pragma GCC diagnostic ignored "-Wsign-compare"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmisleading-indentation"
#pragma GCC diagnostic ignored "-Wtautological-compare"
#pragma GCC diagnostic ignored "-Wint-conversion"

#define BRICK_MUTANT(number) brick_mutant_is(number)

static int brick_mutant_chosen;
static unsigned char *brick_mutants_reached;
static int brick_mutants_count;

__attribute__((constructor, unused)) static void brick_mutants_begin(void)
{
    const char *chosen = getenv("MUTANT_CHOSEN"), *reached = getenv("MUTANTS_REACHED");
    struct stat status;
    brick_mutant_chosen = chosen != NULL ? atoi(chosen) : 0;
    const int fd = reached != NULL ? open(reached, O_RDWR) : -1;
    if (fd < 0)
        return;
    if (fstat(fd, &status) == 0 && status.st_size > 0) {
        void *found = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (found != MAP_FAILED) {
            brick_mutants_count = (int)status.st_size;
            brick_mutants_reached = (unsigned char *)found;
        }
    }
    close(fd);
}

__attribute__((unused)) static int brick_mutant_is(int number)
{
    if (number < brick_mutants_count)
        brick_mutants_reached[number] = 1;
    return number == brick_mutant_chosen;
}

#endif
