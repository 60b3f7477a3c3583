/* recording_type.h - a Recording as the files of brickd._reader see it. */
#ifndef BRICKD_RECORDING_TYPE_H
#define BRICKD_RECORDING_TYPE_H

#include "recorder.h"
#include "types.h"

typedef struct {
    PyObject_HEAD
    struct brick_recorder recorder;
    int begun;
} Recording;

/* That of a Recording of the module that `sibling` is a type of; NULL, with an exception, where it is none. */
struct brick_recorder *recorder_of(PyObject *recording, PyTypeObject *sibling);

#endif
