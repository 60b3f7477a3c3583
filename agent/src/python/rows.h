/* python/rows.h - rows of a module's call: which sites have them, the call that records them. */
#ifndef BRICK_ROWS_H
#define BRICK_ROWS_H

#include "brick.h"

/* A part of a model that computes each row of its output from the same row of its input. */
typedef struct {
    PyObject *context;  /* gives the backend's handle, or None if the call must not be recorded; NULL: not such a part */
    uint32_t turn, turns; /* as in brick_rows_turn; no turns: always */
} CoreRows;

/* What a call's rows belong to. */
typedef struct {
    const CoreRows *rows;
    Brick *brick;
    const void *key;
    const uint32_t *layer; /* NULL: that of the open span */
    uint32_t rate;         /* as in brick_rows_wanted */
    bool has_module;       /* the first argument is the module */
} CoreRowsOf;

bool core_rows_wanted(const CoreRowsOf *of);
/* Calls the function and records rows, if it gets one tensor and returns one with the same rows. Returns its result; NULL
 * with its exception, or with an interrupt. */
PyObject *core_rows_call(const CoreRowsOf *of, PyObject *function, PyObject *const *args, size_t nargsf, PyObject *names);

#endif
