/* run_mark.h - tells each `brickd run` above this process that something is recorded. */
#ifndef BRICK_RUN_MARK_H
#define BRICK_RUN_MARK_H

#include "common.h"

/* Writes a mark for each program in _BRICKD_RUN except this process. Does nothing if the variable is not set. */
BRICK_HIDDEN void brick_run_mark(void);

#endif
