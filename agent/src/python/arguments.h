/* python/arguments.h - what callers pass: amounts, numbers, names, keywords; and what becomes of a value that cannot be. */
#ifndef BRICK_ARGUMENTS_H
#define BRICK_ARGUMENTS_H

#include "core.h"

/* BRICKD_STRICT=1: what is else counted is raised. Read only where something went wrong. */
bool core_strict(void);
/* Of a value that is not taken: 0, in strict mode -1 with an exception set. */
int core_complain(const char *what, PyObject *value);

/* A line on stderr. */
void core_warn(const char *line);

static inline int core_amount(PyObject *value, uint64_t *amount)
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
static inline int core_flops(PyObject *value, double *flops)
{
    *flops = PyFloat_AsDouble(value);
    if (*flops >= 0 && *flops <= BRICK_FLOPS_MAX) /* not so for a NaN, nor for what is no number: that is -1 */
        return 0;
    *flops = -1; /* the writer counts it, and takes nothing */
    return core_complain("flops must be a number from 0 to 2^80", value);
}

int core_elapsed(PyObject *value, uint64_t *elapsed_ns);
int core_to_layer(PyObject *value, uint32_t *layer);
/* An integer as it is, a string by its hash. *has is false for None and for what is neither. */
int core_number(PyObject *value, uint64_t *number, bool *has, const char *expected);
#define CORE_STEP "a step must be an integer or a string"
/* A name that UTF-8 can hold; a new reference, or NULL with an exception set. */
PyObject *core_text(PyObject *value);

#define CORE_ARGUMENTS 9

/* What a function takes: `places` of its arguments by place, the first `needed` always. `interned`: their names, interned
 * at the first call, since those that a caller writes are interned too. */
typedef struct {
    const char *function;
    Py_ssize_t needed, places, count;
    const char *const *names;
    PyObject *interned[CORE_ARGUMENTS];
} CoreCall;

/* values[i] is borrowed, or NULL where the caller passes none. 0, or -1 with an exception set. */
int core_arguments(CoreCall *call, PyObject *const *args, Py_ssize_t given, PyObject *names, PyObject **values);
static inline bool core_is_given(PyObject *value) { return value != NULL && value != Py_None; }

#endif
