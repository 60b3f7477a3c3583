/* python/context_key.h - the context of a span, which is its key. */
#ifndef BRICK_CONTEXT_KEY_H
#define BRICK_CONTEXT_KEY_H

#include "core.h"

/* Returns the context of the running task, greenlet or thread. Creates one if there is none, so that a later greenlet
   has another one. */
static inline const void *core_key(void)
{
    PyObject *context = PyThreadState_Get()->context;
    if (__builtin_expect(context == NULL, 0)) {
        PyObject *copy = PyContext_CopyCurrent();
        if (copy == NULL)
            PyErr_Clear();
        Py_XDECREF(copy);
        context = PyThreadState_Get()->context;
    }
    return context;
}

/* Call before this thread records: its references are dropped when its state ends. */
void core_watch(void);
/* Call after a begin and after an end: for references to keys, and for the end of the thread. */
void core_begun(unsigned outcome, const void *key);
PyObject *core_ended(unsigned outcome, const void *key); /* returns None; NULL in strict mode, for an end without a begin */

#endif
