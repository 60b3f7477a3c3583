/* python/rows.h - rows of a module's call: which sites have rows, and the call that records rows. */
#ifndef BRICK_ROWS_H
#define BRICK_ROWS_H

#include "brick.h"

/* A part of a model that may compute each row of its output from the same row of its input. */
typedef struct {
    /* A callable, a text, or NULL. A callable returns the backend's handle, or a text that says why this call has no
     * rows; its optional argument is a tensor that cannot be read. A text says why no call of this part has rows. NULL
     * means that rows of this part are not recorded. */
    PyObject *context;
    uint32_t turn, turns; /* as in brick_rows_turn; if `turns` is 0, it is always this part's turn */
} CoreRows;

/* The site and the layer of a call's rows. */
typedef struct {
    const CoreRows *rows;
    Brick *brick;
    const void *key;
    const uint32_t *layer; /* NULL: the layer of the open span */
    uint32_t rate;         /* as in brick_rows_wanted */
    bool has_module;       /* whether the first argument is the module */
} CoreRowsOf;

bool core_rows_wanted(const CoreRowsOf *of);
/* Calls the function, and records rows if it gets one tensor and returns a tensor with the same rows. Returns the
 * function's result; NULL with the function's exception or with an interrupt. */
PyObject *core_rows_call(const CoreRowsOf *of, PyObject *function, PyObject *const *args, size_t nargsf, PyObject *names);

#endif
