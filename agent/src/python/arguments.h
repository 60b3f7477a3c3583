/* python/arguments.h - arguments of callers: amounts, numbers, names, keywords; and the handling of invalid values. */
#ifndef BRICK_ARGUMENTS_H
#define BRICK_ARGUMENTS_H

#include "core.h"

/* Returns whether BRICKD_STRICT=1: wrong use then raises an exception. Call it only after an error, because it reads
 * the environment. */
bool core_strict(void);
/* Reports an invalid value. In strict mode, returns -1 with an exception set. Otherwise returns 0, and writes one line
 * to stderr for the first value with this `what`. */
int core_complain(const char *what, PyObject *value);
/* Like core_complain, for a text `what` that is built at run time: writes a line for the first value with this `kind`,
 * a constant text. */
int core_complain_once(const char *kind, const char *what, PyObject *value);

void core_warn(const char *line); /* writes a line to stderr */

static inline int core_amount(PyObject *value, uint64_t *amount)
{
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (__builtin_expect((uint64_t)number <= BRICK_AMOUNT_MAX && !overflow, 1)) { /* false for negative numbers */
        *amount = (uint64_t)number;
        return 0;
    }
    *amount = BRICK_BAD_AMOUNT;
    return core_complain("an amount must be an integer from 0 to 2^48", value);
}

/* Reads a number, which may be the float result of a formula or a number of numpy. */
static inline int core_flops(PyObject *value, double *flops)
{
    *flops = PyFloat_AsDouble(value);
    if (*flops >= 0 && *flops <= BRICK_FLOPS_MAX) /* false for NaN, and for the -1 of an object that is not a number */
        return 0;
    *flops = -1; /* the writer counts -1 as invalid */
    return core_complain("flops must be a number from 0 to 2^80", value);
}

int core_elapsed(PyObject *value, uint64_t *elapsed_ns);
int core_to_layer(PyObject *value, uint32_t *layer);
/* Sets *number to an integer, or to the hash of a string. For None and any other type, sets *has to false. */
int core_number(PyObject *value, uint64_t *number, bool *has, const char *expected);
/* Like core_number, for a step: brickd can also show the text of a step. */
int core_step_key(PyObject *value, uint64_t *step, bool *has);
/* Returns the name as a str that UTF-8 can encode: a new reference, or NULL with an exception set. */
PyObject *core_text(PyObject *value);

#define CORE_ARGUMENTS 9

/* The arguments of a function: the first `places` may be positional, the first `needed` are required. `interned` has
 * their names as interned strings, which the first call creates. Names in a caller's code are interned too, so equal
 * names are nearly always one object. */
typedef struct {
    const char *function;
    Py_ssize_t needed, places, count;
    const char *const *names;
    PyObject *interned[CORE_ARGUMENTS];
} CoreCall;

/* values[i] is a borrowed reference, or NULL if the caller omits the argument. Returns 0, or -1 with an exception
 * set. */
int core_arguments(CoreCall *call, PyObject *const *args, Py_ssize_t given, PyObject *names, PyObject **values);
static inline bool core_is_given(PyObject *value) { return value != NULL && value != Py_None; }

#endif
