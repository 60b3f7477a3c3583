/* python/deferred.c - b.defer(), finalize(), pending(): work that ends later than the call that begins it. */
#include "arguments.h"
#include "context_key.h"
#include "methods.h"
#include "opening.h"

#include "../writer/deferred.h" /* for work that began some time ago */

const char core_defer_doc[] = PyDoc_STR(
"defer($self, /, *, stream=None, elements=0, bytes=0, step=None)\n"
"--\n\n"
"Record that a device gets work of this brick now; return an id, or 0 if the work was not recorded.\n\n"
"The work is a child of the open span, and has its step unless `step` is given. stream: the device's stream, an integer\n"
"(a handle, an index) or a string; optional if there is only one. finalize() ends the work, with a measured duration or\n"
"else with a bound.\n\n"
">>> kernel = brick.brick(\"moe_gemm\", category=\"ffn\")\n"
">>> for chunk in range(3):\n"
"...     id = kernel.defer(stream=7, elements=4096)\n"
">>> brick.pending()\n"
"3\n"
">>> brick.finalize(stream=7, durations={id: 1_250_000})\n");
const char core_finalize_doc[] = PyDoc_STR(
"finalize(*, stream=None, durations=None)\n--\n\n"
"End deferred work after the host has waited for a stream, or for all streams.\n\n"
"stream: as for Brick.defer(); None: every stream. durations: a mapping of ids to the nanoseconds that the device measured.\n\n"
">>> copy = brick.brick(\"copy\", category=\"transfer\")\n"
">>> ids = [copy.defer(stream=\"upload\", bytes=1 << 20) for _ in range(2)]\n"
">>> brick.finalize(durations={id: 85_000.5 for id in ids})\n"
">>> brick.pending()\n"
"0\n");
const char core_pending_doc[] = PyDoc_STR(
"pending()\n--\n\n"
"Return the number of defer() calls of this process whose work finalize() has not ended.\n\n"
">>> id = brick.brick(\"moe_gemm\").defer()\n"
">>> brick.pending()\n"
"1\n"
">>> brick.finalize()\n"
">>> brick.pending()\n"
"0\n");

#define NO_ID UINT64_MAX /* no id of deferred work, so the writer counts it as unmatched */
#define A_STREAM "a stream must be an integer or a string"

PyObject *core_brick_defer(PyObject *self, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    enum { STREAM, ELEMENTS, BYTES, STEP };
    static const char *const known[] = {"stream", "elements", "bytes", "step"};
    static CoreCall call = {"defer", 0, 0, 4, known, {NULL}};
    Brick *b = (Brick *)self;
    PyObject *of[CORE_ARGUMENTS];
    uint64_t stream = 0, step = 0, amounts[2] = {0, 0}, id;
    bool has_stream, has_step = false;
    if (given != 0) {
        PyErr_SetString(PyExc_TypeError, "brick_agent: defer takes keywords only: stream, elements, bytes, step");
        return NULL;
    }
    if (core_arguments(&call, args, given, names, of) != 0
        || (of[STREAM] != NULL && core_number(of[STREAM], &stream, &has_stream, A_STREAM) != 0)
        || (of[ELEMENTS] != NULL && core_amount(of[ELEMENTS], &amounts[0]) != 0)
        || (of[BYTES] != NULL && core_amount(of[BYTES], &amounts[1]) != 0)
        || (of[STEP] != NULL && core_step_key(of[STEP], &step, &has_step) != 0))
        return NULL;
    if (brick_is_off())
        return PyLong_FromLong(0);
    if (b->number == BRICK_UNNAMED && core_resolve(b) != 0)
        return NULL;
    if (brick_defer(b->number, core_key(), stream, has_step ? &step : NULL, amounts[0], amounts[1], &id) != BRICK_DONE)
        core_watch();
    return PyLong_FromUnsignedLongLong(id);
}

PyObject *core_deferred(PyObject *module, PyObject *args)
{
    Brick *b;
    unsigned long long start_ns, stream;
    PyObject *amounts[2];
    uint64_t did[2], id;
    if (!PyArg_ParseTuple(args, "O!KKOO:_deferred", core_state.brick_type, &b, &start_ns, &stream, &amounts[0], &amounts[1])
        || core_amount(amounts[0], &did[0]) != 0 || core_amount(amounts[1], &did[1]) != 0)
        return NULL;
    if (brick_is_off())
        Py_RETURN_NONE;
    if (b->number == BRICK_UNNAMED && core_resolve(b) != 0)
        return NULL;
    const uint64_t start = start_ns;
    if (brick_defer_since(b->number, core_key(), &start, stream, NULL, did[0], did[1], &id) != BRICK_DONE)
        core_watch();
    return PyLong_FromUnsignedLongLong(id);
}

/* Forwards one duration; the writer counts an invalid one. Returns 0, or -1 with an exception set. */
static int measured(PyObject *key, PyObject *value)
{
    uint64_t id = NO_ID, elapsed_ns;
    if (core_elapsed(value, &elapsed_ns) != 0)
        return -1;
    PyObject *number = PyNumber_Index(key);
    if (number != NULL)
        id = PyLong_AsUnsignedLongLong(number);
    Py_XDECREF(number);
    PyErr_Clear();
    unsigned outcome = brick_measured(id, elapsed_ns);
    if (outcome != BRICK_DONE)
        core_watch();
    return (outcome & BRICK_UNMATCHED) != 0 ? core_complain("finalize's durations must have ids that defer returned", key) : 0;
}

static int all_measured(PyObject *durations)
{
    PyObject *items = PyMapping_Check(durations) ? PyMapping_Items(durations) : NULL;
    int wrong = 0;
    if (items == NULL) {
        brick_measured(NO_ID, 0);
        return core_complain("finalize's durations must be a mapping of ids to nanoseconds", durations);
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items) && wrong == 0; i++) {
        PyObject *item = PyList_GET_ITEM(items, i);
        bool pair = PyTuple_Check(item) && PyTuple_GET_SIZE(item) == 2;
        wrong = measured(pair ? PyTuple_GET_ITEM(item, 0) : item, pair ? PyTuple_GET_ITEM(item, 1) : Py_None);
    }
    Py_DECREF(items);
    return wrong;
}

PyObject *core_finalize(PyObject *module, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    static const char *const known[] = {"stream", "durations"};
    static CoreCall call = {"finalize", 0, 0, 2, known, {NULL}};
    PyObject *of[CORE_ARGUMENTS];
    uint64_t stream = 0;
    bool has;
    if (given != 0) {
        PyErr_SetString(PyExc_TypeError, "brick_agent: finalize takes keywords only: stream, durations");
        return NULL;
    }
    if (core_arguments(&call, args, given, names, of) != 0)
        return NULL;
    const bool has_stream = core_is_given(of[0]); /* as in defer, an invalid stream is 0 */
    if ((has_stream && core_number(of[0], &stream, &has, A_STREAM) != 0)
        || (core_is_given(of[1]) && all_measured(of[1]) != 0))
        return NULL;
    if (brick_finalize(has_stream ? &stream : NULL) != BRICK_DONE)
        core_watch();
    Py_RETURN_NONE;
}

PyObject *core_pending(PyObject *module, PyObject *unused) { return PyLong_FromUnsignedLongLong(brick_pending()); }
