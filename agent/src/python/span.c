/* python/span.c - `with b:`, `with b(elements=n):`, b.start(), b.stop(), b.record(ns), `with step(key):`, `with layer(n):`. */
#include "core.h"

#include "../writer/thread.h" /* for the gate: while recording is off, no call looks further */

/* ---- record path ------------------------------------------------------- */

/* `result`, or NULL in strict mode when the segment could not be opened. */
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
    struct brick_config config = {0};
    if (brick_state() == BRICK_NEW && core_open(&config) != 0)
        return NULL;
    core_begun(brick_layer_begin(((Layer *)self)->layer, key), key);
    return Py_NewRef(self);
}

/* ---- amounts ----------------------------------------------------------- */

int core_complain(const char *what, PyObject *value)
{
    PyErr_Clear();
    if (!core_strict())
        return 0;
    PyErr_Format(PyExc_ValueError, "brick_agent: %s, not %R (BRICKD_STRICT=1)", what, value);
    return -1;
}

int core_amount(PyObject *value, uint64_t *amount)
{
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (__builtin_expect((uint64_t)number <= BRICK_AMOUNT_MAX && !overflow, 1)) { /* not so for what is negative */
        *amount = (uint64_t)number;
        return 0;
    }
    *amount = BRICK_BAD_AMOUNT;
    return core_complain("an amount must be an integer from 0 to 2^48", value);
}

/* Also as the float that a formula gives, and as numpy's numbers. */
int core_flops(PyObject *value, double *flops)
{
    *flops = PyFloat_AsDouble(value);
    if (*flops >= 0 && *flops <= BRICK_FLOPS_MAX) /* not so for a NaN, nor for what is no number: that is -1 */
        return 0;
    *flops = -1; /* the writer counts it, and takes nothing */
    return core_complain("flops must be a number from 0 to 2^80", value);
}

int core_to_layer(PyObject *value, uint32_t *layer)
{
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (number >= 0 && number <= BRICK_LAYER_MAX) {
        *layer = (uint32_t)number;
        return 0;
    }
    *layer = UINT32_MAX;
    return core_complain("a layer must be an integer from 0 to 16,777,214", value);
}

/* The hash of a string is FNV-1a. */
int core_number(PyObject *value, uint64_t *number, bool *has, const char *wanted)
{
    Py_ssize_t length;
    const char *text = NULL;
    *number = 0;
    *has = false;
    if (value == Py_None)
        return 0;
    if (PyIndex_Check(value)) { /* numpy's integers too */
        *number = PyLong_AsUnsignedLongLongMask(value);
        *has = !PyErr_Occurred();
    } else if (PyUnicode_Check(value) && (text = PyUnicode_AsUTF8AndSize(value, &length)) != NULL) {
        *has = true;
        *number = UINT64_C(0xCBF29CE484222325);
        for (Py_ssize_t i = 0; i < length; i++)
            *number = (*number ^ (uint8_t)text[i]) * UINT64_C(0x100000001B3);
    }
    if (*has)
        return 0;
    *number = 0;
    return core_complain(wanted, value);
}

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
    PyTypeObject *type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF(type);
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
        return core_number(value, &s->step, &s->has_step, CORE_STEP);
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

/* What stop and record take behind their own arguments, by place or by name. */
static int take_amounts(const char *method, PyObject *const *args, Py_ssize_t given, PyObject *names,
                        struct brick_amounts *did)
{
    static const char *const amounts[] = {"elements", "bytes", "flops"};
    const Py_ssize_t count = 3;
    if (given > count) {
        PyErr_Format(PyExc_TypeError, "brick_agent: %s takes elements, bytes and flops, and no more", method);
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

/* Nanoseconds, also as the float that a device's clock or a subtraction gives, and as numpy's numbers. */
int core_elapsed(PyObject *value, uint64_t *elapsed_ns)
{
    if (PyLong_Check(value))
        return core_amount(value, elapsed_ns);
    double ns = PyFloat_AsDouble(value);
    if (ns >= 0 && ns < 0x1p63) { /* not so for a NaN, nor for what is no number: that is -1 */
        *elapsed_ns = (uint64_t)(ns + 0.5);
        return 0;
    }
    *elapsed_ns = BRICK_BAD_AMOUNT;
    return core_complain("elapsed_ns must be a number of nanoseconds from 0 to 2^48", value);
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
