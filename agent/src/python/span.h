/* python/span.h - objects for spans, and the calls that begin and end spans. */
#ifndef BRICK_SPAN_H
#define BRICK_SPAN_H

#include "core.h"

Span *core_span_new(Brick *b);
void core_span_dealloc(PyObject *self);
/* Reads one keyword argument of a span. Returns 0, or -1 with an exception set. Only span() passes a `category`. */
int core_span_keyword(Span *s, PyObject *name, PyObject *value, PyObject **category);

/* Ends a span. Returns None, or in strict mode NULL with an exception set. */
PyObject *core_span_end(Brick *b, const struct brick_amounts *did);
PyObject *core_plain_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names);
PyObject *core_step_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names);
PyObject *core_layer_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names);
PyObject *core_brick_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names);
PyObject *core_brick_start(PyObject *self, PyObject *unused);
PyObject *core_brick_stop(PyObject *self, PyObject *const *args, Py_ssize_t given, PyObject *names);
PyObject *core_brick_record(PyObject *self, PyObject *const *args, Py_ssize_t given, PyObject *names);

#endif
