/* python/context_key.h - contexts as the keys of spans. */
#ifndef BRICK_CONTEXT_KEY_H
#define BRICK_CONTEXT_KEY_H

#include "core.h"

/* Returns the context of the running task, greenlet or thread. If there is none, creates one, so that a greenlet
 * started
   later gets a different context. */
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

/* Call this before the thread's first record, so that its references are dropped when the thread's state ends. */
void core_watch(void);
/* Call core_begun after a begin and core_ended after an end. They take and drop the references to keys, and prepare for
 * the end of the thread. */
void core_begun(unsigned outcome, const void *key);
PyObject *core_ended(unsigned outcome, const void *key); /* in strict mode, NULL if no span had begun */

#endif
