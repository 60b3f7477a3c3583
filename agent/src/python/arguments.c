/* python/arguments.c - checks the arguments of callers: an invalid value is counted; in strict mode, it raises
 * instead. */
#include "arguments.h"

#include "brick_hash.h"
#include "brick_shm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- values -------------------------------------------------------------- */

bool core_strict(void)
{
    const char *strict = getenv("BRICKD_STRICT");
    return strict != NULL && strcmp(strict, "1") == 0;
}

static bool is_reported(const char *what)
{
    static const char *reported[64];
    size_t i = 0;
    while (i < sizeof reported / sizeof *reported && reported[i] != NULL && strcmp(reported[i], what) != 0)
        i++;
    if (i == sizeof reported / sizeof *reported || reported[i] != NULL)
        return true;
    reported[i] = what;
    return false;
}

/* Returns one line that describes the value: its repr, or only its type if the repr would run code of the host or is
 * long. Returns a new reference, or NULL. */
static PyObject *shown(PyObject *value)
{
    PyObject *text = NULL;
    if (value == Py_None || PyFloat_CheckExact(value) || PyLong_CheckExact(value) || PyBool_Check(value)
        || PyUnicode_CheckExact(value))
        text = PyObject_ASCII(value);
    if (text != NULL && PyUnicode_GET_LENGTH(text) <= 80)
        return text;
    Py_XDECREF(text);
    PyErr_Clear();
    return PyUnicode_FromFormat("a value of type %.80s", Py_TYPE(value)->tp_name);
}

int core_complain(const char *what, PyObject *value) { return core_complain_once(what, what, value); }

int core_complain_once(const char *kind, const char *what, PyObject *value)
{
    PyErr_Clear();
    if (core_strict()) {
        PyErr_Format(PyExc_ValueError, "brick_agent: %s, not %R (BRICKD_STRICT=1)", what, value);
        return -1;
    }
    if (is_reported(kind))
        return 0;
    char line[400];
    PyObject *text = shown(value);
    const char *given = text != NULL ? PyUnicode_AsUTF8(text) : NULL;
    snprintf(line, sizeof line, "brickd: %s, not %.120s (BRICKD_STRICT=1 raises an exception)\n", what,
             given != NULL ? given : "this value");
    core_warn(line);
    Py_XDECREF(text);
    PyErr_Clear();
    return 0;
}

void core_warn(const char *line)
{
    if (write(STDERR_FILENO, line, strlen(line)) < 0)
        return;
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

/* Reads nanoseconds: an integer, a float (a device's clock, a subtraction) or a number of numpy. */
int core_elapsed(PyObject *value, uint64_t *elapsed_ns)
{
    if (PyLong_Check(value))
        return core_amount(value, elapsed_ns);
    double ns = PyFloat_AsDouble(value);
    if (ns >= 0 && ns < 0x1p63) { /* false for NaN, and for the -1 of an object that is not a number */
        *elapsed_ns = (uint64_t)(ns + 0.5);
        return 0;
    }
    *elapsed_ns = BRICK_BAD_AMOUNT;
    return core_complain("elapsed_ns must be a number of nanoseconds from 0 to 2^48", value);
}

/* Inlined into both callers, so that `hash` is no indirect call: each call of a span may have a step. */
static inline __attribute__((always_inline)) int take_number(PyObject *value, uint64_t *number, bool *has,
                                                             const char *expected,
                                                             uint64_t (*hash)(const char *text, size_t length))
{
    Py_ssize_t length;
    const char *text = NULL;
    *number = 0;
    *has = false;
    if (value == Py_None)
        return 0;
    if (PyIndex_Check(value)) { /* includes numpy's integers */
        *number = PyLong_AsUnsignedLongLongMask(value);
        *has = !PyErr_Occurred();
    } else if (PyUnicode_Check(value) && (text = PyUnicode_AsUTF8AndSize(value, &length)) != NULL) {
        *has = true;
        *number = hash(text, (size_t)length);
    }
    if (*has)
        return 0;
    *number = 0;
    return core_complain(expected, value);
}

static inline uint64_t hash_only(const char *text, size_t length) { return brick_fnv1a(text, length); }

int core_number(PyObject *value, uint64_t *number, bool *has, const char *expected)
{
    return take_number(value, number, has, expected, hash_only);
}

int core_step_key(PyObject *value, uint64_t *step, bool *has)
{
    return take_number(value, step, has, "a step must be an integer or a string", brick_step_named);
}

PyObject *core_text(PyObject *value)
{
    if (!PyUnicode_Check(value)) {
        if (core_strict()) {
            PyErr_Format(PyExc_TypeError, "brick_agent: a name must be a string, not %R (BRICKD_STRICT=1)", value);
            return NULL;
        }
        return PyUnicode_FromFormat("<%s>", Py_TYPE(value)->tp_name);
    }
    if (PyUnicode_AsUTF8(value) != NULL)
        return PyUnicode_FromObject(value); /* make a plain str: a subclass may override methods */
    PyErr_Clear();
    PyObject *bytes = PyUnicode_AsEncodedString(value, "utf-8", "backslashreplace");
    PyObject *text = bytes != NULL ? PyUnicode_FromEncodedObject(bytes, "utf-8", "strict") : NULL;
    Py_XDECREF(bytes);
    return text;
}

/* ---- keywords ------------------------------------------------------------ */

static int which_of(CoreCall *call, PyObject *name, Py_ssize_t first)
{
    for (Py_ssize_t i = first; i < call->count; i++)
        if (call->interned[i] == name)
            return (int)i;
    for (Py_ssize_t i = first; i < call->count; i++) {
        if (PyUnicode_CompareWithASCIIString(name, call->names[i]) != 0)
            continue;
        if (call->interned[i] == NULL)
            call->interned[i] = PyUnicode_InternFromString(call->names[i]);
        PyErr_Clear();
        return (int)i;
    }
    PyErr_Format(PyExc_TypeError, "brick_agent: %s got an unexpected keyword argument '%U'", call->function, name);
    return -1;
}

int core_arguments(CoreCall *call, PyObject *const *args, Py_ssize_t given, PyObject *names, PyObject **values)
{
    if (given > call->places) {
        PyErr_Format(PyExc_TypeError, "brick_agent: %s takes at most %zd positional arguments, not %zd", call->function,
                     call->places, given);
        return -1;
    }
    for (Py_ssize_t i = 0; i < call->count; i++)
        values[i] = i < given ? args[i] : NULL;
    for (Py_ssize_t i = 0; names != NULL && i < PyTuple_GET_SIZE(names); i++) {
        const int which = which_of(call, PyTuple_GET_ITEM(names, i), given);
        if (which < 0)
            return -1;
        values[which] = args[given + i];
    }
    for (Py_ssize_t i = 0; i < call->needed; i++)
        if (values[i] == NULL) {
            PyErr_Format(PyExc_TypeError, "brick_agent: %s needs '%s'", call->function, call->names[i]);
            return -1;
        }
    return 0;
}
