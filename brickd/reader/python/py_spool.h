/* python/py_spool.h - a Spool as the files of brickd.shm._reader see it. */
#ifndef BRICKD_PY_SPOOL_H
#define BRICKD_PY_SPOOL_H

#include "../core/record_queue.h"
#include "py_types.h"

/* The spool of a Spool of the module that has the type `sibling`; NULL, with an exception that names what was wanted. */
struct brick_spool *spool_of(PyObject *spool, PyTypeObject *sibling, const char *wanted);

/* Becomes its only consumer; 0, with an exception. */
int spool_enter(struct brick_spool *spool);
void spool_leave(struct brick_spool *spool);

#endif
