/* python/core.h - types and state shared by the files of brick_agent._core, the binding of the writer to CPython.
 *
 * Each file of this folder includes the headers of the files that it calls. The files form rows: a file calls only
 * files to its right in its own row, and files in the rows below.
 *
 *   functions.c  types.c                              the module and its types (methods.h declares their functions)
 *   trace.c  module_forward.c                         callables that wrap a function or a module's forward
 *   rows.c                                            rows of a module's call
 *   timing.c                                          starts and stops under the old profiler's names
 *   marks.c  deferred.c  checksum.c  history.c  capsule.c   records other than spans; the calls for other extensions
 *   step_parts.c                                      the part of a step that each sequence has
 *   checked_request.c                                 the arguments that records of tensors share
 *   brick.c                                           handles by name
 *   span.c                                            the record path, and the amounts of a span
 *   weights.c  module.c                               a model's parameters, and their places in a torch module
 *   fingerprint.c  buffer.c  dlpack.c  torch.c  tensor.c   a Python object's memory as a tensor
 *   opening.c  context_key.c  own_totals.c            opens the segment; contexts as keys; totals of this process
 *   arguments.c                                       arguments of callers
 *
 * Only own_totals.c reads the segment. The record path calls no Python code, allocates nothing and raises nothing. The
 * module is built for each Python version, because the limited API has neither the thread state's context nor
 * vectorcall.
 *
 * A `with` statement looks up __enter__ and __exit__ and calls the results. If they were methods, each look-up would
 * bind a method, which would allocate twice per span. So both names are descriptors that return the context manager
 * itself. The manager is callable: a call without arguments enters, and a call with the three arguments of an exception
 * leaves.
 */
#ifndef BRICK_CORE_H
#define BRICK_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "brick_agent.h"

#include <stdbool.h>
#include <stdint.h>

#define SPARE_SPANS 64 /* freed spans kept for the next `b(elements=n)`, which then allocates nothing */
#define SPARE_TIMERS 64 /* timers kept for start_brick */

typedef struct Span Span;
typedef struct BrickTimer BrickTimer;
typedef struct CoreWeights CoreWeights;

/* A handle: a name with its id. Handles are interned and never freed; the room for names limits how many there
 * are. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    uint32_t number; /* BRICK_UNNAMED until the first use, which may open the segment */
    PyObject *name;
    PyObject *category; /* the category's name, or None */
    Span *plain;        /* the span that `with b:` uses */
} Brick;

/* One `with` block: a brick with its amounts. */
struct Span {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Brick *brick; /* without a reference, because a handle is never freed */
    struct brick_amounts did; /* if the span is a step of an engine: its rows and valid rows */
    uint64_t step;
    bool has_step;
};

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    uint32_t layer;
} Layer;

/* The state of this module. A process has one, as it has one segment. */
typedef struct {
    PyTypeObject *brick_type, *span_type, *layer_type, *manager_type, *traced_type, *traced_object_type, *watched_type,
        *fingerprint_type, *taken_type, *timer_type, *timing_type, *history_type, *step_rows_type;
    PyObject *handles; /* dict: name -> Brick */
    PyObject *brick_function; /* brick_agent.brick, for pickled handles */
    PyObject *step;           /* "step": the default kind of a step, and the category of all steps */
    Brick *other;      /* the handle for all names above the limit */
    Span *spare[SPARE_SPANS];
    int spares;
    PyObject *known; /* tuple: the bricks of the old profiler's ids */
    PyObject *named; /* dict: name or alias -> Brick, for the same bricks */
    BrickTimer *idle; /* the timer returned for all bricks that are not timed */
    BrickTimer *spare_timer[SPARE_TIMERS];
    int timers;
    CoreWeights *weights; /* the watched weights, or NULL */
    unsigned swept;
    unsigned refused; /* names refused before the segment was open, which the segment does not yet count */
    unsigned process; /* 1, and one more in each forked child, so that a child reports definitions again */
    char program[128];
} CoreState;

extern CoreState core_state;

/* Frees an object that refers to nothing except its type. */
static inline void core_plain_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* ---- exceptions --------------------------------------------------------- */

/* An exception that is set aside while other code runs. */
typedef struct {
    PyObject *type, *value, *traceback;
} CoreRaised;

static inline CoreRaised core_put_aside(void)
{
    CoreRaised raised;
    PyErr_Fetch(&raised.type, &raised.value, &raised.traceback);
    return raised;
}

/* Restores the exception that was set aside, and drops any other. If none was set aside, clears the current
 * exception. */
static inline void core_put_back(CoreRaised raised) { PyErr_Restore(raised.type, raised.value, raised.traceback); }

/* Drops a reference; does nothing for NULL. The drop may run code of the host, which must not find an exception of this
 * module. So the exception is set aside meanwhile. */
static inline void core_let_go(PyObject *object)
{
    const CoreRaised raised = core_put_aside();
    Py_XDECREF(object);
    core_put_back(raised);
}

static inline void core_forget(CoreRaised raised)
{
    core_let_go(raised.type);
    core_let_go(raised.value);
    core_let_go(raised.traceback);
}

/* Sets aside the exception of a traced callable while its span ends, because this exception has priority over ours. */
static inline CoreRaised core_raised_by_call(PyObject *result)
{
    return result == NULL ? core_put_aside() : (CoreRaised){NULL, NULL, NULL};
}

/* Returns the call's result, or NULL with the call's exception. If the end of the span `failed`, returns NULL with our
 * exception. */
static inline PyObject *core_call_over(PyObject *result, CoreRaised raised, bool failed)
{
    if (raised.type != NULL)
        core_put_back(raised);
    else if (failed)
        Py_CLEAR(result);
    return result;
}

#endif
