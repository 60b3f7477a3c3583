/* python/rows.c - rows of a module's call.
 *
 * Owns which calls have rows, and counts the calls with and without rows. A call with rows has one tensor of floating
 * point in this host's memory and no other argument, and its result is a tensor with the same rows, alone or as the
 * first of several results. Must not know which rows are chosen. Invariants: a call without rows is counted under its
 * reason; an error here changes no result and raises nothing, except for an interrupt; no tensor is held during the
 * call.
 */
#include "rows.h"
#include "arguments.h"
#include "context_key.h"
#include "opening.h"
#include "methods.h"
#include "tensor.h"

#include <string.h>

static struct brick_at at_of(const CoreRowsOf *of, uint32_t backend)
{
    return (struct brick_at){.layer = of->layer, .backend = backend};
}

bool core_rows_wanted(const CoreRowsOf *of)
{
    const CoreRows *rows = of->rows;
    const struct brick_at at = at_of(of, 0);
    if (rows->context == NULL || !brick_rows_wanted(of->brick->number, of->key, &at, of->rate))
        return false;
    if (rows->turns == 0)
        return true;
    if (!brick_rows_turn(rows->turn, rows->turns))
        return false;
    /* Published at each call, because a forked child has another segment, and so has a process that has replaced a lost
     * segment. */
    brick_rows_turns(rows->turns);
    return true;
}

/* Clears an exception and returns 0. If the exception is an interrupt, keeps it and returns -1. */
static int forgive(void)
{
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    PyErr_Clear();
    return 0;
}

/* ---- the result of a call for rows ------------------------------------------ */

/* Counts calls under this word (a phase or a reason). Clears an exception that counting raises. */
static int note(const CoreRowsOf *of, PyObject *word, uint64_t calls)
{
    const struct brick_at at = at_of(of, 0);
    Brick *b = PyUnicode_Check(word) ? core_handle(word, Py_None) : NULL;
    if (b != NULL && (b->number != BRICK_UNNAMED || core_resolve(b) == 0) && b->number != BRICK_UNNAMED)
        brick_rows_note(of->brick->number, of->key, &at, b->number, calls);
    return forgive();
}

static int note_text(const CoreRowsOf *of, const char *word)
{
    PyObject *text = PyUnicode_InternFromString(word);
    const int noted = text != NULL ? note(of, text, 1) : forgive();
    Py_XDECREF(text);
    return noted;
}

/* Counts a call by its phase, for all layers of a kernel together. Counts per layer would need more paths than marks
 * may use in a deep model. */
static int note_phase(const CoreRowsOf *of, const struct brick_rows *rows)
{
    static const uint32_t no_layer = UINT32_MAX;
    CoreRowsOf kernel = *of;
    kernel.layer = &no_layer;
    return note_text(&kernel, rows->leading < 2 ? "packed" : rows->shape[1] == 1 ? "decode" : "prefill");
}

/* Asks the callable `context` whether a call has rows. If so, sets *backend to the id of the backend's name; if not,
 * sets *backend to 0 and counts the call under the reason. `unreadable`: NULL, or a tensor that cannot be read. */
static int ask(const CoreRowsOf *of, PyObject *unreadable, uint32_t *backend)
{
    PyObject *given = PyObject_CallFunctionObjArgs(of->rows->context, unreadable, NULL);
    int failed = given != NULL ? 0 : forgive();
    *backend = 0;
    if (given != NULL && Py_IS_TYPE(given, core_state.brick_type)) {
        Brick *b = (Brick *)given;
        if (b->number == BRICK_UNNAMED && core_resolve(b) != 0)
            PyErr_Clear();
        *backend = b->number != BRICK_UNNAMED ? b->number : 0;
    } else if (given != NULL) {
        failed = note(of, given, 1);
    }
    Py_XDECREF(given);
    return failed;
}

/* ---- tensors -------------------------------------------------------------- */

/* Holds the value and returns 1 if it is a tensor that can have rows. Returns 0 if it is not, and -1 with an interrupt
 * set. */
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

/* Returns whether the chosen rows are so large that other Python threads should run while they are read. */
static bool are_large(const struct brick_tensor *t)
{
    const int64_t elements = t->dims > 0 ? t->shape[t->dims - 1] : 0;
    const int64_t shape[] = {BRICK_ROWS, elements};
    return core_tensor_large(&(struct brick_tensor){.dims = 2, .shape = shape});
}

static int choose(const CoreRowsOf *of, PyObject *input, struct brick_rows *rows)
{
    CoreTensor t;
    uint32_t none;
    const int held = hold(input, &t);
    if (held <= 0)
        return held < 0 ? -1 : ask(of, input, &none);
    PyThreadState *unlocked = are_large(&t.tensor) ? PyEval_SaveThread() : NULL;
    brick_rows_choose(of->key, &t.tensor, rows);
    if (unlocked != NULL)
        PyEval_RestoreThread(unlocked);
    core_tensor_release(&t);
    return 0;
}

static bool has_rows(const struct brick_tensor *output, const struct brick_rows *rows)
{
    return output->dims == rows->leading + 1
           && memcmp(output->shape, rows->shape, rows->leading * sizeof *rows->shape) == 0;
}

static int record(const CoreRowsOf *of, PyObject *result, uint32_t backend, const struct brick_rows *rows)
{
    CoreTensor t;
    bool recorded = false;
    if (PyTuple_Check(result) && PyTuple_GET_SIZE(result) > 0)
        result = PyTuple_GET_ITEM(result, 0);
    else if (PyList_Check(result) && PyList_GET_SIZE(result) > 0)
        result = PyList_GET_ITEM(result, 0);
    Py_INCREF(result); /* other threads may change the list */
    const int held = hold(result, &t);
    if (held == 1 && has_rows(&t.tensor, rows)) {
        const struct brick_at at = at_of(of, backend);
        recorded = true;
        PyThreadState *unlocked = are_large(&t.tensor) ? PyEval_SaveThread() : NULL;
        brick_rows_record(of->brick->number, of->key, &at, &t.tensor, rows);
        if (unlocked != NULL)
            PyEval_RestoreThread(unlocked);
    }
    if (held == 1)
        core_tensor_release(&t);
    Py_DECREF(result);
    if (held < 0)
        return -1;
    return recorded ? note_phase(of, rows) : note_text(of, "output");
}

/* Takes the input rows of a call, or counts why the call has no rows. */
static int before(const CoreRowsOf *of, PyObject *const *args, size_t nargsf, PyObject *names, uint32_t *backend,
                  struct brick_rows *rows)
{
    rows->count = 0;
    core_watch();
    if (PyUnicode_Check(of->rows->context))
        return note(of, of->rows->context, 1);
    if (ask(of, NULL, backend) != 0)
        return -1;
    if (*backend == 0)
        return 0;
    if (PyVectorcall_NARGS(nargsf) != 1 + of->has_module || (names != NULL && PyTuple_GET_SIZE(names) > 0))
        return note_text(of, "arguments");
    return choose(of, args[of->has_module], rows);
}

PyObject *core_rows_call(const CoreRowsOf *of, PyObject *function, PyObject *const *args, size_t nargsf, PyObject *names)
{
    struct brick_rows rows;
    uint32_t backend = 0;
    if (before(of, args, nargsf, names, &backend, &rows) != 0)
        return NULL;
    PyObject *result = PyObject_Vectorcall(function, args, nargsf, names);
    if (result != NULL && rows.count > 0 && record(of, result, backend, &rows) != 0)
        Py_CLEAR(result);
    return result;
}

PyObject *core_note_rows(PyObject *module, PyObject *args)
{
    PyObject *b, *layer, *word;
    uint32_t index = UINT32_MAX;
    if (!PyArg_ParseTuple(args, "O!OU:_note_rows", core_state.brick_type, &b, &layer, &word)
        || (layer != Py_None && core_to_layer(layer, &index) != 0))
        return NULL;
    const CoreRowsOf of = {.brick = (Brick *)b, .key = core_key(), .layer = &index};
    if (of.brick->number == BRICK_UNNAMED && core_resolve(of.brick) != 0 && forgive() != 0)
        return NULL;
    core_watch();
    if (of.brick->number != BRICK_UNNAMED && note(&of, word, 0) != 0)
        return NULL;
    Py_RETURN_NONE;
}

PyObject *core_presume_rows(PyObject *module, PyObject *args)
{
    PyObject *b, *layer;
    uint32_t index = UINT32_MAX;
    if (!PyArg_ParseTuple(args, "O!O:_presume_rows", core_state.brick_type, &b, &layer)
        || (layer != Py_None && core_to_layer(layer, &index) != 0))
        return NULL;
    Brick *brick = (Brick *)b;
    if (brick->number == BRICK_UNNAMED && core_resolve(brick) != 0 && forgive() != 0)
        return NULL;
    core_watch();
    if (brick->number != BRICK_UNNAMED)
        brick_rows_presume(brick->number, index);
    Py_RETURN_NONE;
}
