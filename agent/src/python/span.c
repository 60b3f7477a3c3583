/* python/span.c - `with b:`, `with b(elements=n):`, b.start(), b.stop(), b.record(ns), `with step(key):`, `with
 * layer(n):`. */
#include "span.h"
#include "arguments.h"
#include "context_key.h"
#include "opening.h"
#include "weights.h"

#include "../writer/thread.h" /* the gate: while recording is off, a call returns immediately */

/* ---- record path ------------------------------------------------------- */

/* Returns `result`, or NULL in strict mode if the segment could not be opened. */
static inline PyObject *brick_enter(Brick *b, const uint64_t *step, PyObject *result)
{
    if (brick_off_here())
        return Py_NewRef(result);
    if (__builtin_expect(b->number == BRICK_UNNAMED, 0) && core_resolve(b) != 0)
        return NULL;
    const void *key = core_key();
    unsigned outcome = brick_begin(b->number, key, step);
    if (outcome)
        core_begun(outcome, key);
    return Py_NewRef(result);
}

static inline PyObject *brick_leave(Brick *b, const struct brick_amounts *did)
{
    if (brick_off_here())
        return Py_NewRef(Py_None);
    const void *key = core_key();
    unsigned outcome = brick_end_of(b->number, key, did);
    if (outcome)
        return core_ended(outcome, key);
    return Py_NewRef(Py_None);
}

static const struct brick_amounts nothing;

PyObject *core_span_end(Brick *b, const struct brick_amounts *did) { return brick_leave(b, did); }

PyObject *core_plain_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    Brick *b = ((Span *)self)->brick;
    if (PyVectorcall_NARGS(nargsf) != 0)
        return brick_leave(b, &nothing);
    return brick_enter(b, NULL, (PyObject *)b);
}

static PyObject *span_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    Span *s = (Span *)self;
    if (PyVectorcall_NARGS(nargsf) != 0)
        return brick_leave(s->brick, &s->did);
    return brick_enter(s->brick, s->has_step ? &s->step : NULL, (PyObject *)s->brick);
}

PyObject *core_step_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    Span *s = (Span *)self;
    if (PyVectorcall_NARGS(nargsf) == 0)
        return brick_enter(s->brick, s->has_step ? &s->step : NULL, (PyObject *)s->brick);
    if (brick_off_here())
        Py_RETURN_NONE;
    const void *key = core_key();
    PyObject *ended = core_ended(brick_step_end(s->brick->number, key, s->did.elements, s->did.bytes), key);
    if (__builtin_expect(core_state.weights != NULL, 0) && ended != NULL && core_weights_turn() != 0)
        Py_CLEAR(ended);
    return ended;
}

PyObject *core_layer_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    const void *key = core_key();
    if (PyVectorcall_NARGS(nargsf) != 0)
        return core_ended(brick_layer_end(((Layer *)self)->layer, key), key);
    if (brick_state() == BRICK_NEW && core_open_once() != 0)
        return NULL;
    core_begun(brick_layer_begin(((Layer *)self)->layer, key), key);
    return Py_NewRef(self);
}

/* ---- objects and their amounts ------------------------------------------ */

Span *core_span_new(Brick *b)
{
    Span *s;
    if (core_state.spares > 0) {
        s = core_state.spare[--core_state.spares];
        _Py_NewReference((PyObject *)s);
    } else {
        s = PyObject_New(Span, core_state.span_type);
        if (s == NULL)
            return NULL;
    }
    s->vectorcall = span_call;
    s->brick = b;
    s->did = nothing;
    s->step = 0;
    s->has_step = false;
    return s;
}

void core_span_dealloc(PyObject *self)
{
    if (core_state.spares < SPARE_SPANS) {
        core_state.spare[core_state.spares++] = (Span *)self;
        return;
    }
    core_plain_dealloc(self);
}

int core_span_keyword(Span *s, PyObject *name, PyObject *value, PyObject **category)
{
    if (PyUnicode_CompareWithASCIIString(name, "elements") == 0)
        return core_amount(value, &s->did.elements);
    if (PyUnicode_CompareWithASCIIString(name, "bytes") == 0)
        return core_amount(value, &s->did.bytes);
    if (PyUnicode_CompareWithASCIIString(name, "flops") == 0)
        return core_flops(value, &s->did.flops);
    if (PyUnicode_CompareWithASCIIString(name, "step") == 0)
        return core_step_key(value, &s->step, &s->has_step);
    if (category != NULL && PyUnicode_CompareWithASCIIString(name, "category") == 0) {
        *category = value;
        return 0;
    }
    PyErr_Format(PyExc_TypeError, "brick_agent: unexpected keyword argument '%U'", name);
    return -1;
}

PyObject *core_brick_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    Py_ssize_t given = PyVectorcall_NARGS(nargsf);
    if (given != 0) {
        PyErr_SetString(PyExc_TypeError, "brick_agent: a brick takes keywords only: elements, bytes, flops, step");
        return NULL;
    }
    Span *s = core_span_new((Brick *)self);
    if (s == NULL)
        return NULL;
    for (Py_ssize_t i = 0; names != NULL && i < PyTuple_GET_SIZE(names); i++)
        if (core_span_keyword(s, PyTuple_GET_ITEM(names, i), args[i], NULL) != 0) {
            Py_DECREF(s);
            return NULL;
        }
    return (PyObject *)s;
}

PyObject *core_brick_start(PyObject *self, PyObject *unused)
{
    return brick_enter((Brick *)self, NULL, Py_None);
}

static int take_one(Py_ssize_t which, PyObject *value, struct brick_amounts *did)
{
    return which == 0   ? core_amount(value, &did->elements)
           : which == 1 ? core_amount(value, &did->bytes)
                        : core_flops(value, &did->flops);
}

/* Reads the amounts of stop() and record(). They are the last arguments, and each may be positional or a keyword. */
static int take_amounts(const char *method, PyObject *const *args, Py_ssize_t given, PyObject *names,
                        struct brick_amounts *did)
{
    static const char *const amounts[] = {"elements", "bytes", "flops"};
    const Py_ssize_t count = 3;
    if (given > count) {
        PyErr_Format(PyExc_TypeError, "brick_agent: %s takes only elements, bytes and flops", method);
        return -1;
    }
    for (Py_ssize_t i = 0; i < given; i++)
        if (take_one(i, args[i], did) != 0)
            return -1;
    for (Py_ssize_t i = 0; names != NULL && i < PyTuple_GET_SIZE(names); i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        Py_ssize_t which = given;
        while (which < count && PyUnicode_CompareWithASCIIString(name, amounts[which]) != 0)
            which++;
        if (which == count) {
            PyErr_Format(PyExc_TypeError, "brick_agent: %s got an unexpected keyword argument '%U'", method, name);
            return -1;
        }
        if (take_one(which, args[given + i], did) != 0)
            return -1;
    }
    return 0;
}

PyObject *core_brick_stop(PyObject *self, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    struct brick_amounts did = nothing;
    if (__builtin_expect(given > 0 || names != NULL, 0) && take_amounts("stop", args, given, names, &did) != 0)
        return NULL;
    return brick_leave((Brick *)self, &did);
}

PyObject *core_brick_record(PyObject *self, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    Brick *b = (Brick *)self;
    struct brick_amounts did = nothing;
    uint64_t elapsed_ns;
    if (given < 1) {
        PyErr_SetString(PyExc_TypeError, "brick_agent: record takes elapsed_ns, then elements, bytes and flops");
        return NULL;
    }
    if (core_elapsed(args[0], &elapsed_ns) != 0 || take_amounts("record", args + 1, given - 1, names, &did) != 0)
        return NULL;
    if (brick_off_here())
        Py_RETURN_NONE;
    if (b->number == BRICK_UNNAMED && core_resolve(b) != 0)
        return NULL;
    const void *key = core_key();
    core_begun(brick_record_of(b->number, key, elapsed_ns, &did), key);
    Py_RETURN_NONE;
}
