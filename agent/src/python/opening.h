/* python/opening.h - the segment opens: at init(), or at the first use of a handle. */
#ifndef BRICK_OPENING_H
#define BRICK_OPENING_H

#include "core.h"

/* Stores the program's name until the segment is opened, for callers that cannot call Python. */
void core_note_program(void);
/* The only function that opens the segment. Returns 0; in strict mode -1 with an exception set if it failed. */
int core_open(struct brick_config *config);
/* The same without a configuration, unless the segment was opened before. */
int core_open_once(void);
/* Refuses a later init with other settings: counts it, and complains once about each. None, 0: not given. Returns 0; in
 * strict mode -1 with an exception set. */
int core_check_init(PyObject *service, PyObject *worker, const struct brick_config *given);
/* Opens the segment if needed, and gives the handle its number. */
int core_resolve(Brick *b);
/* The same without the interpreter lock; they raise nothing. */
void core_open_unlocked(void);
void core_resolve_unlocked(Brick *b);

#endif
