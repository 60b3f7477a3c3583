/* python/opening.h - opens the segment: at init(), or at the first use of a handle. */
#ifndef BRICK_OPENING_H
#define BRICK_OPENING_H

#include "core.h"

/* Stores the program's name for a later opening of the segment by a caller that cannot call Python. */
void core_note_program(void);
/* Opens the segment; no other function does. Returns 0; if it failed, in strict mode -1 with an exception set. */
int core_open(struct brick_config *config);
/* core_open without a configuration, unless the segment is already open. */
int core_open_once(void);
/* Refuses a later init with other settings: counts the call, and writes one line about each setting. None or 0 means
 * that a setting is not given. Returns 0; in strict mode -1 with an exception set. */
int core_check_init(PyObject *service, PyObject *worker, const struct brick_config *given);
/* Opens the segment if needed, and gives the handle its id. */
int core_resolve(Brick *b);
/* These functions open the segment and give a handle its id without the interpreter lock, and raise nothing. */
void core_open_unlocked(void);
void core_resolve_unlocked(Brick *b);

#endif
