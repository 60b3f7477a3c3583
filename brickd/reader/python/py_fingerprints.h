/* python/py_fingerprints.h - the struct of a Fingerprints, for the files of brickd.shm._reader. */
#ifndef BRICKD_PY_FINGERPRINTS_H
#define BRICKD_PY_FINGERPRINTS_H

#include "../core/service_windows.h"
#include "py_types.h"

#define WORKERS_MAX (1 << 24) /* the numbers of workers are below this */

typedef struct {
    PyObject_HEAD
    struct brick_windows all; /* guarded by the lock */
    pthread_mutex_t mutex;
    int opened; /* whether the lock exists */
    uint64_t left_out[BRICK_TIERS]; /* for each tier, how many fingerprints were only counted, not added */
} Fingerprints;

/* Returns the window, if there is only one, as in a copy. If services have separate windows, returns NULL with an
 * exception. */
struct brick_fingerprints *window_of_all(Fingerprints *p);

/* Returns the numbers of a sequence, which must all be less than `below`, and sets *count. Returns NULL with an
 * exception on failure. */
uint64_t *numbers_in(PyObject *sequence, uint64_t below, size_t *count);
uint32_t *workers_in(PyObject *sequence, size_t *count);

/* Returns whether this is a number of enum brick_tier; if not, sets an exception. */
int is_tier(int tier);

/* Methods of Fingerprints in python/py_match.c. */
PyObject *fingerprints_match(PyObject *self, PyObject *args, PyObject *keywords);
PyObject *fingerprints_rounded(PyObject *self, PyObject *args);
PyObject *fingerprints_contents(PyObject *self, PyObject *args);
PyObject *fingerprints_row_pairs(PyObject *self, PyObject *args);
PyObject *fingerprints_rows_apart(PyObject *self, PyObject *args);
PyObject *fingerprints_rows_repeated(PyObject *self, PyObject *args);

#endif
