/* run_mark.h - tells each `brickd run` above this process that something is recorded. */
#ifndef BRICK_RUN_MARK_H
#define BRICK_RUN_MARK_H

#include "common.h"

/* Marks the programs in _BRICKD_RUN, unless they are this process. Does nothing without this variable. */
BRICK_HIDDEN void brick_run_mark(void);

#endif
