/* python/py_drain.h - the struct of a Drain, for the files of brickd.shm._reader. */
#ifndef BRICKD_PY_DRAIN_H
#define BRICKD_PY_DRAIN_H

#include "../core/drain.h"
#include "py_types.h"

/* The attributes that a Drain has in Python. */
struct drain_numbers {
    unsigned long long activity, spans, rejected, skipped, gaps, checked, resident;
    double fill, held;
    unsigned int breaks;
    char complete, ended;
};

typedef struct {
    PyObject_HEAD
    struct brick_drain drain;   /* guarded by the lock */
    pthread_mutex_t mutex;
    int opened;                 /* whether the lock exists */
    PyObject *spool;            /* the spool to which slots are copied, or NULL */
    struct drain_numbers seen;  /* their values after the last pass */
    unsigned long long read;    /* how many bytes all passes have read */
} Drain;

/* Appends the writes that move the tails to a list, as (fd, offset, bytes). On failure, clears the list and sets an
 * exception. */
void drain_tails(Drain *d, int events, PyObject **writes);

#endif
