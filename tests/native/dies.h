/* dies.h - for programs that are killed at a named point of the writer: PROGRAM POINT PASS kills the program when it
 * reaches POINT for the PASS-th time. */
#include "writer/common.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

static const char *fatal;
static long passes;

static void die_here(const char *name)
{
    if (strcmp(name, fatal) == 0 && --passes == 0)
        raise(SIGKILL);
}

/* Returns 0 if the arguments POINT and PASS are missing. */
static int dies(int count, char **arguments)
{
    if (count != 3)
        return 0;
    fatal = arguments[1];
    passes = atol(arguments[2]);
    brick_test_point = die_here;
    return 1;
}
