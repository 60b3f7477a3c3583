/* python/arguments.h - arguments of callers: amounts, numbers, names, keywords; and the handling of invalid values. */
#ifndef BRICK_ARGUMENTS_H
#define BRICK_ARGUMENTS_H

#include "core.h"

/* Returns whether BRICKD_STRICT=1: errors then raise and are also counted. Reads the variable only at an error. */
bool core_strict(void);
/* Rejects a value: returns 0, or in strict mode -1 with an exception set. The first value of a kind writes a line to
 * stderr. */
int core_complain(const char *what, PyObject *value);
/* Like core_complain, for a text built at run time. kind: a constant text that identifies the kind of mistake. */
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
/* An integer stays unchanged, a string becomes its hash. For None and any other type, *has is false. */
int core_number(PyObject *value, uint64_t *number, bool *has, const char *expected);
/* core_number for a step, whose text brickd can show. */
int core_step_key(PyObject *value, uint64_t *step, bool *has);
/* Returns the name as a str that UTF-8 can encode: a new reference, or NULL with an exception set. */
PyObject *core_text(PyObject *value);

#define CORE_ARGUMENTS 9

/* The arguments of a function: the first `places` may be positional, the first `needed` are required. `interned` has
 * their names as interned strings, created at the first call; Python also interns the names in a caller's code. */
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
