/* python/py_fingerprints.h - a Fingerprints as the files of brickd.shm._reader see it. */
#ifndef BRICKD_PY_FINGERPRINTS_H
#define BRICKD_PY_FINGERPRINTS_H

#include "../core/service_windows.h"
#include "py_types.h"

typedef struct {
    PyObject_HEAD
    struct brick_windows all; /* behind the lock */
    pthread_mutex_t mutex;
    int opened; /* the lock is there */
} Fingerprints;

/* The one window of all services, as copies have it; NULL with an exception. */
struct brick_fingerprints *window_of_all(Fingerprints *p);

/* Numbers out of a sequence, each below a bound; NULL with an exception. */
uint64_t *numbers_in(PyObject *sequence, uint64_t below, size_t *count);
uint32_t *workers_in(PyObject *sequence, size_t *count);

/* Methods of Fingerprints: python/py_match.c. */
PyObject *fingerprints_match(PyObject *self, PyObject *args, PyObject *keywords);
PyObject *fingerprints_rounded(PyObject *self, PyObject *args);
PyObject *fingerprints_contents(PyObject *self, PyObject *args);

#endif
