/* calls.c - makes the calls of the capsule available to Python, for tests that begin and end spans in any order.
 *
 * A task is a number, which task() returns; 0 means the thread itself. Calls that do not need the interpreter lock are
 * made without the lock. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <pthread.h>

#include "brick_python.h"

static const struct brick_python *brick;

#define KEY(task) ((const void *)(uintptr_t)(task))

static PyObject *task(PyObject *module, PyObject *unused) { return PyLong_FromVoidPtr((void *)(uintptr_t)brick->task()); }

static PyObject *is_off(PyObject *module, PyObject *unused) { return PyBool_FromLong(brick->is_off()); }

/* Calls that take a name, a task and one number. */
static PyObject *call(PyObject *args, void (*function)(struct brick_handle *b, const void *task, uint64_t number))
{
    const char *name;
    unsigned long long key, number = 0;
    if (!PyArg_ParseTuple(args, "sK|K", &name, &key, &number))
        return NULL;
    struct brick_handle *b = brick->brick(name, "native");
    Py_BEGIN_ALLOW_THREADS
    function(b, KEY(key), number);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static void call_begin(struct brick_handle *b, const void *task, uint64_t step) { brick->begin(b, task, step ? &step : NULL); }
static void call_end(struct brick_handle *b, const void *task, uint64_t elements) { brick->end(b, task, elements, 5); }
static void call_step_end(struct brick_handle *b, const void *task, uint64_t rows) { brick->step_end(b, task, rows, 7); }
static void call_record(struct brick_handle *b, const void *task, uint64_t ns) { brick->record(b, task, ns, 3, 5); }
static void call_layer_begin(struct brick_handle *b, const void *task, uint64_t layer)
{
    (void)b;
    brick->layer_begin((uint32_t)layer, task);
}
static void call_layer_end(struct brick_handle *b, const void *task, uint64_t layer)
{
    (void)b;
    brick->layer_end((uint32_t)layer, task);
}

#define FUNCTION(name) \
    static PyObject *name(PyObject *module, PyObject *args) { return call(args, call_##name); }
FUNCTION(begin)
FUNCTION(end)
FUNCTION(step_end)
FUNCTION(record)
FUNCTION(layer_begin)
FUNCTION(layer_end)

/* ---- deferred work ------------------------------------------------------ */

static PyObject *defer(PyObject *module, PyObject *args)
{
    const char *name;
    unsigned long long key, stream, id;
    if (!PyArg_ParseTuple(args, "sKK", &name, &key, &stream))
        return NULL;
    struct brick_handle *b = brick->brick(name, "native");
    Py_BEGIN_ALLOW_THREADS
    id = brick->defer(b, KEY(key), stream, NULL, 3, 5);
    Py_END_ALLOW_THREADS
    return PyLong_FromUnsignedLongLong(id);
}

static PyObject *measured(PyObject *module, PyObject *args)
{
    unsigned long long id, elapsed_ns;
    if (!PyArg_ParseTuple(args, "KK", &id, &elapsed_ns))
        return NULL;
    brick->measured(id, elapsed_ns);
    Py_RETURN_NONE;
}

static PyObject *finalize(PyObject *module, PyObject *args)
{
    unsigned long long stream = 0;
    if (!PyArg_ParseTuple(args, "|K", &stream))
        return NULL;
    const uint64_t only = stream;
    brick->finalize(PyTuple_GET_SIZE(args) > 0 ? &only : NULL);
    Py_RETURN_NONE;
}

static PyObject *pending(PyObject *module, PyObject *unused) { return PyLong_FromUnsignedLongLong(brick->pending()); }

/* ---- checksums ---------------------------------------------------------- */

static PyObject *wants(PyObject *module, PyObject *args)
{
    const char *name;
    unsigned long long key;
    if (!PyArg_ParseTuple(args, "sK", &name, &key))
        return NULL;
    return PyBool_FromLong(brick->wants(brick->brick(name, "native"), KEY(key), NULL));
}

/* checksum(name, task, dtype, output, input, group=None, step=0): records one-dimensional tensors; returns None, or the
 * reason why the output could not be read. */
static PyObject *checksum(PyObject *module, PyObject *args)
{
    const char *name, *group = NULL, *refused;
    unsigned long long key, step = 0;
    unsigned dtype;
    Py_buffer output, input;
    if (!PyArg_ParseTuple(args, "sKIy*y*|zK", &name, &key, &dtype, &output, &input, &group, &step))
        return NULL;
    struct brick_handle *kernel = brick->brick(name, "native");
    struct brick_at at = {.params = 5};
    struct brick_taken taken[2];
    const int64_t shape[2] = {output.len / 4, input.len / 4};
    const struct brick_tensor out = {output.buf, dtype, 1, shape, NULL, BRICK_ALL_ROWS};
    const struct brick_tensor in = {input.buf, dtype, 1, shape + 1, NULL, BRICK_ALL_ROWS};
    const uint64_t number = step;
    if (group != NULL) {
        at.relation = BRICK_AGREES_REPLICATED;
        at.of = at.backend = brick->number(brick->brick(group, NULL));
    }
    if (step != 0)
        at.step = &number;
    Py_BEGIN_ALLOW_THREADS
    brick->take(kernel, KEY(key), &at, &in, &taken[1]);
    refused = brick->take(kernel, KEY(key), &at, &out, &taken[0]);
    brick->checksum(kernel, KEY(key), &at, &taken[0], &taken[1], 1);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&output);
    PyBuffer_Release(&input);
    return Py_BuildValue("z", refused);
}

/* ---- threads that Python does not know ------------------------------- */

static struct brick_handle *thread_brick;

struct errand {
    unsigned long spans;
    PyObject *function;
};

static void *run_errand(void *argument)
{
    const struct errand *e = (const struct errand *)argument;
    for (unsigned long n = 0; n < e->spans; n++) {
        brick->begin(thread_brick, NULL, NULL);
        if (e->function != NULL) {
            PyGILState_STATE state = PyGILState_Ensure();
            PyObject *answer = PyObject_CallNoArgs(e->function);
            if (answer == NULL)
                PyErr_WriteUnraisable(e->function);
            Py_XDECREF(answer);
            PyGILState_Release(state);
        }
        brick->end(thread_brick, NULL, 0, 0);
    }
    return NULL;
}

/* threads(many, spans, function=None): starts `many` threads, which record `spans` spans each. If a function is given,
 * each span contains a call of it. */
static PyObject *threads(PyObject *module, PyObject *args)
{
    pthread_t started[64];
    unsigned long many, n = 0;
    struct errand e = {.function = NULL};
    if (!PyArg_ParseTuple(args, "kk|O", &many, &e.spans, &e.function))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    while (n < many && n < 64 && pthread_create(&started[n], NULL, run_errand, &e) == 0)
        n++;
    for (unsigned long i = 0; i < n; i++)
        pthread_join(started[i], NULL);
    Py_END_ALLOW_THREADS
    return PyLong_FromUnsignedLong(n);
}

/* launched(kernel, task, blocks), moved(task, bytes), needs(task): record a mark for the open brick. */
static PyObject *launched(PyObject *module, PyObject *args)
{
    const char *name;
    unsigned long long key, blocks;
    if (!PyArg_ParseTuple(args, "sKK", &name, &key, &blocks))
        return NULL;
    struct brick_handle *b = brick->brick(name, "kernel");
    const struct brick_launch how = {.grid = {(uint32_t)blocks, 1, 1}, .block = {32, 1, 1}};
    const struct brick_amounts did = {.flops = 9};
    const uint64_t elapsed_ns = 7;
    Py_BEGIN_ALLOW_THREADS
    brick->launched(b, KEY(key), &how, NULL, &did);
    brick->launched(b, KEY(key), NULL, &elapsed_ns, NULL);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *moved(PyObject *module, PyObject *args)
{
    unsigned long long key, bytes;
    if (!PyArg_ParseTuple(args, "KK", &key, &bytes))
        return NULL;
    brick->moved(BRICK_TO_DEVICE, brick->brick("tokens", NULL), brick->brick("gpu0", NULL), KEY(key), bytes, NULL);
    Py_RETURN_NONE;
}

static PyObject *needs(PyObject *module, PyObject *args)
{
    const char *name, *needed;
    unsigned long long key;
    if (!PyArg_ParseTuple(args, "zsK", &name, &needed, &key))
        return NULL;
    brick->needs(name != NULL ? brick->brick(name, NULL) : NULL, brick->brick(needed, NULL), KEY(key));
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"task", task, METH_NOARGS, NULL},
    {"is_off", is_off, METH_NOARGS, NULL},
    {"begin", begin, METH_VARARGS, NULL},
    {"end", end, METH_VARARGS, NULL},
    {"step_end", step_end, METH_VARARGS, NULL},
    {"record", record, METH_VARARGS, NULL},
    {"layer_begin", layer_begin, METH_VARARGS, NULL},
    {"layer_end", layer_end, METH_VARARGS, NULL},
    {"defer", defer, METH_VARARGS, NULL},
    {"measured", measured, METH_VARARGS, NULL},
    {"finalize", finalize, METH_VARARGS, NULL},
    {"pending", pending, METH_NOARGS, NULL},
    {"wants", wants, METH_VARARGS, NULL},
    {"checksum", checksum, METH_VARARGS, NULL},
    {"launched", launched, METH_VARARGS, NULL},
    {"moved", moved, METH_VARARGS, NULL},
    {"needs", needs, METH_VARARGS, NULL},
    {"threads", threads, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "calls", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_calls(void)
{
    brick = brick_python();
    if (brick == NULL)
        return NULL;
    thread_brick = brick->brick("thread", "native");
    return PyModule_Create(&definition);
}
