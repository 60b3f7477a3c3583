/* python/checked_request.h - the arguments that checksums and rows of histories share. */
#ifndef BRICK_CHECKED_REQUEST_H
#define BRICK_CHECKED_REQUEST_H

#include "core.h"

/* The kernel and the place of a call. `at` points into the request. */
typedef struct {
    Brick *kernel;
    const void *key;
    uint32_t layer;
    uint64_t step, position;
    struct brick_at at;
    PyObject *valid;
} CoreRequest;

/* Each of these takes an argument, or does nothing if it is not given. Returns 0, or -1 with an exception set. */
int core_request_kernel(CoreRequest *p, PyObject *kernel);
int core_request_layer(CoreRequest *p, PyObject *value);
int core_request_step(CoreRequest *p, PyObject *value);
int core_request_backend(CoreRequest *p, PyObject *value);
/* A value that is not JSON gets the digest of its type's name: it counts as equal to values of the same type only. */
int core_request_params(CoreRequest *p, PyObject *value);

/* Returns the id of the name; 0 without a name. */
uint32_t core_number_of_name(PyObject *name);
/* Returns -1 if the current exception must be raised: in strict mode, any exception; otherwise only an interrupt. */
int core_must_raise(void);

#endif
