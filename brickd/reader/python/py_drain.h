/* python/py_drain.h - a Drain as the files of brickd.shm._reader see it. */
#ifndef BRICKD_PY_DRAIN_H
#define BRICKD_PY_DRAIN_H

#include "../core/drain.h"
#include "py_types.h"

/* The attributes. */
struct drain_numbers {
    unsigned long long activity, spans, rejected, skipped, gaps, checked, resident;
    double fill, held;
    unsigned int breaks;
    char complete, ended;
};

typedef struct {
    PyObject_HEAD
    struct brick_drain drain;   /* behind the lock */
    pthread_mutex_t mutex;
    int opened;                 /* the lock exists */
    PyObject *spool;            /* of the drain's track; NULL: none */
    struct drain_numbers seen;  /* after the last pass */
    unsigned long long read;    /* bytes, by all passes */
} Drain;

/* Appends (fd, offset, bytes) of the tails to a list, or clears it with an exception. */
void drain_tails(Drain *d, int events, PyObject **writes);

#endif
