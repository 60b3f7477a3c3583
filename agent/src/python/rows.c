/* python/rows.c - rows of a module's call.
 *
 * Owns which calls have rows: a call with one tensor of floating point in this host's memory and no other argument,
 * whose result is a tensor with the same rows, alone or as the first of several results. Must not know which rows are
 * chosen. Invariants: an error here changes no result and raises nothing, except for an interrupt; no tensor is held
 * during the call.
 */
#include "rows.h"
#include "context_key.h"
#include "opening.h"
#include "tensor.h"

static struct brick_at at_of(const CoreRowsOf *of, uint32_t backend)
{
    return (struct brick_at){.layer = of->layer, .backend = backend};
}

bool core_rows_wanted(const CoreRowsOf *of)
{
    const CoreRows *rows = of->rows;
    const struct brick_at at = at_of(of, 0);
    return rows->context != NULL && brick_rows_wanted(of->brick->number, of->key, &at, of->rate)
           && (rows->turns == 0 || brick_rows_turn(rows->turn, rows->turns));
}

/* Clears an exception and returns 0. If it is an interrupt, returns -1. */
static int forgive(void)
{
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    PyErr_Clear();
    return 0;
}

/* Sets *backend to the number of its name; to 0 if the call must not be recorded. */
static int ask(const CoreRows *rows, uint32_t *backend)
{
    PyObject *given = PyObject_CallNoArgs(rows->context);
    if (given != NULL && Py_IS_TYPE(given, core_state.brick_type)) {
        Brick *b = (Brick *)given;
        if (b->number == BRICK_UNNAMED && core_resolve(b) != 0)
            PyErr_Clear();
        *backend = b->number != BRICK_UNNAMED ? b->number : 0;
    }
    Py_XDECREF(given);
    return given != NULL ? 0 : forgive();
}

/* Returns 1 and holds the value if it is a tensor that can have rows; 0 if not; -1 with an interrupt set. */
static int hold(PyObject *value, CoreTensor *t)
{
    if (!core_torch_is_tensor(value))
        return 0;
    if (core_tensor_hold(value, t) != 0)
        return forgive();
    if (t->tensor.dtype >= BRICK_FLOAT16)
        return 1;
    core_tensor_release(t);
    return 0;
}

/* Returns whether the chosen rows are so large that other Python threads should run meanwhile. */
static bool are_large(const struct brick_tensor *t)
{
    const int64_t elements = t->dims > 0 ? t->shape[t->dims - 1] : 0;
    const int64_t shape[] = {BRICK_ROWS, elements};
    return core_tensor_large(&(struct brick_tensor){.dims = 2, .shape = shape});
}

static int choose(const CoreRowsOf *of, PyObject *input, struct brick_rows *rows)
{
    CoreTensor t;
    const int held = hold(input, &t);
    if (held <= 0)
        return held;
    PyThreadState *unlocked = are_large(&t.tensor) ? PyEval_SaveThread() : NULL;
    brick_rows_choose(of->key, &t.tensor, rows);
    if (unlocked != NULL)
        PyEval_RestoreThread(unlocked);
    core_tensor_release(&t);
    return 0;
}

static int record(const CoreRowsOf *of, PyObject *result, uint32_t backend, const struct brick_rows *rows)
{
    CoreTensor t;
    if (PyTuple_Check(result) && PyTuple_GET_SIZE(result) > 0)
        result = PyTuple_GET_ITEM(result, 0);
    else if (PyList_Check(result) && PyList_GET_SIZE(result) > 0)
        result = PyList_GET_ITEM(result, 0);
    Py_INCREF(result); /* other threads may change the list */
    const int held = hold(result, &t);
    if (held == 1) {
        const struct brick_at at = at_of(of, backend);
        PyThreadState *unlocked = are_large(&t.tensor) ? PyEval_SaveThread() : NULL;
        brick_rows_record(of->brick->number, of->key, &at, &t.tensor, rows);
        if (unlocked != NULL)
            PyEval_RestoreThread(unlocked);
        core_tensor_release(&t);
    }
    Py_DECREF(result);
    return held < 0 ? -1 : 0;
}

PyObject *core_rows_call(const CoreRowsOf *of, PyObject *function, PyObject *const *args, size_t nargsf, PyObject *names)
{
    struct brick_rows rows;
    uint32_t backend = 0;
    rows.count = 0;
    if (PyVectorcall_NARGS(nargsf) == 1 + of->has_module && (names == NULL || PyTuple_GET_SIZE(names) == 0)) {
        core_watch();
        if (ask(of->rows, &backend) != 0 || (backend != 0 && choose(of, args[of->has_module], &rows) != 0))
            return NULL;
    }
    PyObject *result = PyObject_Vectorcall(function, args, nargsf, names);
    if (result != NULL && rows.count > 0 && record(of, result, backend, &rows) != 0)
        Py_CLEAR(result);
    return result;
}
