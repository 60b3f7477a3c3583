/* python/functions.c - the module brick_agent._core and its functions. */
#include "arguments.h"
#include "brick.h"
#include "context_key.h"
#include "methods.h"
#include "opening.h"
#include "span.h"

#include "../writer/lifecycle.h"
#include "../writer/memory_limit.h"
#include "../writer/run_mark.h"

#include <pthread.h>
#include <stdio.h>

CoreState core_state;

static PyObject *core_brick(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"name", "category", NULL};
    PyObject *name, *category = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|O:brick", names, &name, &category))
        return NULL;
    return Py_XNewRef((PyObject *)core_handle(name, category));
}

static PyObject *core_span(PyObject *module, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    if (given != 1) {
        PyErr_SetString(PyExc_TypeError, "brick_agent: span takes one name, then keywords: category, elements, bytes, flops, step");
        return NULL;
    }
    if (names == NULL)
        return Py_XNewRef((PyObject *)core_handle(args[0], Py_None));
    PyObject *category = Py_None;
    Span *s = core_span_new(NULL);
    if (s == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++)
        if (core_span_keyword(s, PyTuple_GET_ITEM(names, i), args[1 + i], &category) != 0) {
            Py_DECREF(s);
            return NULL;
        }
    s->brick = core_handle(args[0], category);
    if (s->brick == NULL)
        Py_CLEAR(s);
    return (PyObject *)s;
}

static PyObject *core_step(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"", "kind", "rows", "valid", NULL};
    PyObject *key, *kind = NULL, *rows = NULL, *valid = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|$OOO:step", names, &key, &kind, &rows, &valid))
        return NULL;
    Span *s = core_span_new(NULL);
    if (s == NULL)
        return NULL;
    s->vectorcall = core_step_call;
    if (core_step_key(key, &s->step, &s->has_step) != 0 || (rows != NULL && core_amount(rows, &s->did.elements) != 0)
        || (valid != Py_None && core_amount(valid, &s->did.bytes) != 0))
        goto failed;
    if (valid != Py_None && s->did.bytes > s->did.elements) {
        char text[64];
        snprintf(text, sizeof text, "valid must be at most rows (%llu)", (unsigned long long)s->did.elements);
        if (core_complain_once("valid rows", text, valid) != 0)
            goto failed;
    }
    if (valid == Py_None)
        s->did.bytes = s->did.elements != BRICK_BAD_AMOUNT ? s->did.elements : 0; /* an invalid `rows` counts once */
    s->brick = core_handle(kind != NULL ? kind : core_state.step, core_state.step);
    if (s->brick != NULL)
        return (PyObject *)s;
failed:
    Py_DECREF(s);
    return NULL;
}

static PyObject *core_layer(PyObject *module, PyObject *index)
{
    uint32_t layer;
    if (core_to_layer(index, &layer) != 0)
        return NULL;
    core_note_program();
    Layer *l = PyObject_New(Layer, core_state.layer_type);
    if (l == NULL)
        return NULL;
    l->vectorcall = core_layer_call;
    l->layer = layer;
    return (PyObject *)l;
}

/* Sets *text to a new reference to the text of a value, or to NULL if the value is None or has no text. Returns 0; in
 * strict mode, -1 with an exception set. */
static int to_text(PyObject *value, PyObject **text, const char **utf8)
{
    *text = value == Py_None ? NULL : PyObject_Str(value);
    *utf8 = *text != NULL ? PyUnicode_AsUTF8(*text) : NULL;
    if (value == Py_None || *utf8 != NULL)
        return 0;
    if (core_strict())
        return -1;
    PyErr_Clear();
    return 0;
}

/* A converter for PyArg_ParseTupleAndKeywords: returns 1, or 0 with an exception set. */
static int to_count(PyObject *value, void *count)
{
    uint64_t amount;
    const int failed = core_amount(value, &amount);
    *(uint32_t *)count = amount <= UINT32_MAX ? (uint32_t)amount : 0;
    return failed == 0;
}

PyObject *core_refused(PyObject *module, PyObject *unused)
{
    if (core_open_once() != 0)
        return NULL;
    if (!brick_is_off())
        brick_count_refused(core_key());
    Py_RETURN_NONE;
}

static PyObject *core_init(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"service", "worker", "lanes", "paths", "names", "sites", NULL};
    core_note_program();
    struct brick_config c = {0};
    PyObject *service = Py_None, *worker = Py_None, *texts[2] = {NULL, NULL};
    PyObject *result = NULL;
    if (PyArg_ParseTupleAndKeywords(args, keywords, "|OO$O&O&O&O&:init", names, &service, &worker, to_count, &c.lanes,
                                    to_count, &c.paths, to_count, &c.names, to_count, &c.sites)
        && to_text(service, &texts[0], &c.service) == 0 && to_text(worker, &texts[1], &c.worker) == 0 && core_open(&c) == 0
        && core_check_init(service, worker, &c) == 0)
        result = PyBool_FromLong(brick_state() == BRICK_ON);
    Py_XDECREF(texts[0]);
    Py_XDECREF(texts[1]);
    return result;
}

static PyObject *core_shutdown(PyObject *module, PyObject *unused)
{
    brick_shutdown();
    Py_RETURN_NONE;
}

static PyObject *core_thread_records(PyObject *module, PyObject *unused) { return PyBool_FromLong(brick_thread_known()); }

static PyObject *core_memory_allows(PyObject *module, PyObject *bytes)
{
    const unsigned long long amount = PyLong_AsUnsignedLongLong(bytes);
    if (amount == (unsigned long long)-1 && PyErr_Occurred())
        return NULL;
    return PyBool_FromLong(brick_memory_allows(amount));
}

static PyObject *core_mark_run(PyObject *module, PyObject *unused)
{
    brick_run_mark();
    Py_RETURN_NONE;
}

static PyObject *core_enable(PyObject *module, PyObject *unused)
{
    brick_enable(1);
    Py_RETURN_NONE;
}

static PyObject *core_disable(PyObject *module, PyObject *unused)
{
    brick_enable(0);
    Py_RETURN_NONE;
}

static PyObject *core_segment_name(PyObject *module, PyObject *unused)
{
    return PyUnicode_FromString(brick_segment_name());
}

static PyObject *core_segment_fd(PyObject *module, PyObject *unused)
{
    return PyLong_FromLong(brick_segment_fd());
}

PyDoc_STRVAR(core_brick_doc,
"brick(name, category=None)\n--\n\n"
"Return the handle of a brick: create it once, use it everywhere.\n\n"
"The same name gives the same handle. Does not open the segment. Known categories: norm, attention, ffn, collective,\n"
"transfer, scheduler, host; you may use any other word. The first category declared for a name is final.\n\n"
">>> brick.brick(\"rms_norm\", category=\"norm\") is brick.brick(\"rms_norm\")\n"
"True\n");
PyDoc_STRVAR(core_span_doc,
"span(name, /, *, category=None, elements=0, bytes=0, flops=0, step=None)\n--\n\n"
"Time the body of a `with` statement without a handle.\n\n"
"step: as for a handle. A checksum with step 0 differs from one without a step; in the records of spans, both are 0.\n\n"
">>> with brick.span(\"prefill\", step=\"request-17\"):\n"
"...     pass\n");
PyDoc_STRVAR(core_step_doc,
"step(key, /, *, kind='step', rows=0, valid=None)\n--\n\n"
"Time one step of an engine: `with step(n, kind=\"decode\", rows=32, valid=30):`.\n\n"
"key: the engine's number or name of the step, which the spans inside inherit; or None. kind: the name of the step's\n"
"brick, which has the category \"step\". rows: the size of the batch. valid: the number of rows that are not padding, by\n"
"default all; valid rows count as elements.\n\n"
">>> with brick.step(17, kind=\"decode\", rows=32, valid=30), brick.span(\"attention\"):\n"
"...     pass\n");
PyDoc_STRVAR(core_layer_doc,
"layer(index, /)\n--\n\n"
"Set the layer of the spans inside. If layers are nested, the innermost layer applies.\n\n"
">>> with brick.layer(3), brick.span(\"attention\"):\n"
"...     pass\n");
PyDoc_STRVAR(core_init_doc,
"init(service=None, worker=None, *, lanes=0, paths=0, names=0, sites=0)\n"
"--\n\n"
"Open this process's segment now instead of at its first span; return whether it records.\n\n"
"worker: a number within the service, or coordinates (0.tp3.pp1). A forked child may give another worker before its\n"
"first span. Apart from that, only the first call has an effect. Never raises. BRICKD_SERVICE, BRICKD_WORKER,\n"
"BRICKD_LANES, BRICKD_PATHS, BRICKD_NAMES, BRICKD_SITES and BRICKD_EVENTS, or else defaults, replace values that are\n"
"missing or invalid.\n\n"
">>> brick.init(service=\"api\", worker=3)\n"
"True\n");
PyDoc_STRVAR(core_shutdown_doc,
"shutdown()\n--\n\n"
"End recording in this process permanently. Recording also ends at exit.\n\n"
">>> brick.shutdown()\n"
">>> with brick.span(\"after the end\"):  # has no effect\n"
"...     pass\n");
PyDoc_STRVAR(core_enable_doc,
"enable()\n--\n\n"
"Record again after disable().\n\n"
">>> brick.disable()\n"
">>> brick.enable()\n");
PyDoc_STRVAR(core_disable_doc,
"disable()\n--\n\n"
"Record nothing until enable(). Spans that are already open can still end.\n\n"
">>> brick.disable()\n"
">>> with brick.span(\"warm-up\"):  # not recorded\n"
"...     pass\n"
">>> brick.enable()\n");

static PyMethodDef core_methods[] = {
    {"brick", (PyCFunction)(void (*)(void))core_brick, METH_VARARGS | METH_KEYWORDS, core_brick_doc},
    {"span", (PyCFunction)(void (*)(void))core_span, METH_FASTCALL | METH_KEYWORDS, core_span_doc},
    {"layer", core_layer, METH_O, core_layer_doc},
    {"step", (PyCFunction)(void (*)(void))core_step, METH_VARARGS | METH_KEYWORDS, core_step_doc},
    {"finalize", (PyCFunction)(void (*)(void))core_finalize, METH_FASTCALL | METH_KEYWORDS, core_finalize_doc},
    {"pending", core_pending, METH_NOARGS, core_pending_doc},
    {"kernel", (PyCFunction)(void (*)(void))core_kernel, METH_FASTCALL | METH_KEYWORDS, core_kernel_doc},
    {"transfer", (PyCFunction)(void (*)(void))core_transfer, METH_FASTCALL | METH_KEYWORDS, core_transfer_doc},
    {"needs", (PyCFunction)(void (*)(void))core_needs, METH_FASTCALL | METH_KEYWORDS, core_needs_doc},
    {"fingerprint", (PyCFunction)(void (*)(void))core_fingerprint, METH_FASTCALL | METH_KEYWORDS, core_fingerprint_doc},
    {"take", (PyCFunction)(void (*)(void))core_take, METH_FASTCALL | METH_KEYWORDS, core_take_doc},
    {"checksum", (PyCFunction)(void (*)(void))core_checksum, METH_FASTCALL | METH_KEYWORDS, core_checksum_doc},
    {"rows", (PyCFunction)(void (*)(void))core_history_rows, METH_FASTCALL | METH_KEYWORDS, core_history_rows_doc},
    {"weights", (PyCFunction)(void (*)(void))core_weights, METH_VARARGS | METH_KEYWORDS, core_weights_doc},
    {"init", (PyCFunction)(void (*)(void))core_init, METH_VARARGS | METH_KEYWORDS, core_init_doc},
    {"shutdown", core_shutdown, METH_NOARGS, core_shutdown_doc},
    {"_step_of", core_step_of, METH_VARARGS,
     "A step's key, computed from tensors and from the step that filled the caches (0: the caches are empty). None if the "
     "open span has a\nstep, or while recording is off."},
    {"_note_rows", core_note_rows, METH_VARARGS, "Record why no call of a part has rows. Arguments: a handle, a layer or None, a word for the reason."},
    {"_presume_rows", core_presume_rows, METH_VARARGS, "Declare that a part is only presumed to compute row by row. Arguments: a handle, a layer or None."},
    {"_choose", core_choose, METH_O, "Set the chosen rows of the model's call that this thread makes: the result of rows(), or None."},
    {"_chosen", core_chosen, METH_NOARGS, "The chosen rows of the model's call that this thread makes, or None."},
    {"_step_parts", core_step_parts, METH_VARARGS,
     "The part of a step that each sequence has: (column of its first token, index of its first token in this step, number "
     "of tokens,\nposition of its first token or -1), or None if the mask of its row is not plain. Or a word: the argument "
     "that is not plain. Arguments:\na mask or None, positions or None, rows, cached columns, columns of this step."},
    {"_watched", core_watched, METH_VARARGS, "Wrap a module's forward."},
    {"_traced", core_traced, METH_VARARGS, "Wrap a function. The first call records where it is defined. With `spans`, each call is a span."},
    {"_node", core_node, METH_VARARGS, "Record a node of the graph, with the time that the host gives."},
    {"_node_begin", core_node_begin, METH_O, "Open a node: later records become its children. Returns whether the node is inside a node of the same name."},
    {"_refused", core_refused, METH_NOARGS, "Count a call with wrong arguments."},
    {"_context", core_context, METH_NOARGS, "The current context. A span that begins in a context must end in the same context."},
    {"_place", core_place, METH_NOARGS, "The place of the next record: the start of the innermost open span, and its layer."},
    {"_node_end", core_node_end, METH_O, "Close a node."},
    {"_node_defined", core_node_defined, METH_VARARGS, "Record that the open node is a function, and the file and line of its definition."},
    {"_node_task", core_node_task, METH_VARARGS, "Record that the open node is a task, and how often it was polled."},
    {"_task_ended", core_task_ended, METH_O, "Mark the last recorded span of a brick as the last span of a task."},
    {"_source_hash", core_source_hash, METH_O, "The hash of a source's text."},
    {"_canary_order", core_canary_order, METH_NOARGS, "The word by which the daemon orders a canary; 0 if it ordered none."},
    {"_send_canary", core_send_canary, METH_VARARGS, "Record the result of a canary (text) from this piece on. Return the first piece that is left for a later call, or -1. A text that is too long counts as a dropped record."},
    {"_send_source", core_send_source, METH_VARARGS, "Record a source (text, name, path, hash) from this piece on. Return the first piece that is left for a later call, or -1. If the source is None, count a dropped record."},
    {"_totals", core_totals, METH_O, "The totals of this process: length of a tick, number of torn entries, paths, ledger. With True, the paths of marks too."},
    {"_mark_run", core_mark_run, METH_NOARGS, "Tell each `brickd run` above this process that this process has printed its report."},
    {"_recorded", core_recorded, METH_NOARGS, "Whether this process has recorded anything, or has turned recording off."},
    {"_thread_records", core_thread_records, METH_NOARGS, "Whether the calling thread has recorded anything."},
    {"_memory_allows", core_memory_allows, METH_O, "Whether the control groups of this process have room for this number of bytes."},
    {"_deferred", core_deferred, METH_VARARGS, "Defer work that began at a time of CLOCK_MONOTONIC_RAW. Returns its id, or 0; None while recording is off."},
    {"_know", core_know, METH_VARARGS, "Set the bricks of the old profiler's ids, names and aliases."},
    {"_by_name", core_by_name, METH_VARARGS, "The brick of a name or an alias; for other names, the result of brick()."},
    {"_own_methods", core_own_methods, METH_O, "Copy the methods of Timing into a subclass, which makes calls faster; return the subclass."},
    {"enable", core_enable, METH_NOARGS, core_enable_doc},
    {"disable", core_disable, METH_NOARGS, core_disable_doc},
    {"_segment_name", core_segment_name, METH_NOARGS, "The file name of this process's segment in /dev/shm, or ''."},
    {"_segment_fd", core_segment_fd, METH_NOARGS, "The descriptor of this process's segment, or -1."},
    {NULL, NULL, 0, NULL},
};

static void in_child(void) { core_state.process++; }

static int core_exec(PyObject *module)
{
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError, "brick_agent can be imported only in the main interpreter");
        return -1;
    }
    PyObject *native = core_native();
    if (native == NULL || PyModule_AddObjectRef(module, "native", native) != 0)
        return -1;
    Py_DECREF(native);
    Py_XSETREF(core_state.brick_function, PyObject_GetAttrString(module, "brick"));
    if (core_add_types(module) != 0 || core_add_fingerprint(module) != 0)
        return -1;
    if (core_state.handles != NULL)
        return 0;
    core_state.step = PyUnicode_InternFromString("step");
    core_state.handles = PyDict_New();
    PyObject *other = PyUnicode_InternFromString("other");
    if (core_state.brick_function == NULL || core_state.step == NULL || core_state.handles == NULL || other == NULL)
        return -1;
    /* This handle stands for all names without room. A brick that the host names "other" has another handle. */
    core_state.other = core_handle_new(other, Py_None);
    Py_DECREF(other);
    if (core_state.other == NULL)
        return -1;
    core_state.process = 1;
    pthread_atfork(NULL, NULL, in_child);
    return 0;
}

static PyModuleDef_Slot core_slots[] = {
    {Py_mod_exec, core_exec},
    {0, NULL},
};
static struct PyModuleDef core_module = {
    PyModuleDef_HEAD_INIT, "brick_agent._core", "The compiled core of brick_agent.", 0, core_methods, core_slots,
    NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&core_module); }
