/* python/opening.h - opens the segment: at init(), or at the first use of a handle. */
#ifndef BRICK_OPENING_H
#define BRICK_OPENING_H

#include "core.h"

/* Stores the program's name, for a caller that opens the segment later and cannot call Python. */
void core_note_program(void);
/* Opens the segment. Returns 0; in strict mode, -1 with an exception set if this fails. */
int core_open(struct brick_config *config);
/* Opens the segment without a configuration, unless it is already open. Returns as core_open. */
int core_open_once(void);
/* Refuses a later init with other settings: for each setting that differs, counts the call and writes one line. None or
 * 0 means that a setting is not given. Returns 0; in strict mode, -1 with an exception set if a setting differs. */
int core_check_init(PyObject *service, PyObject *worker, const struct brick_config *given);
/* Opens the segment if needed, and gives the handle its id. Returns as core_open. */
int core_resolve(Brick *b);
/* The same two functions for callers without the interpreter lock: they raise nothing. */
void core_open_unlocked(void);
void core_resolve_unlocked(Brick *b);

#endif
