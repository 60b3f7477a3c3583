/* core.c - the module brick_agent._core: its functions and its types. */
#include "core.h"

#include <structmember.h>

CoreState core_state;

/* ---- functions ---------------------------------------------------------- */

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
        PyErr_SetString(PyExc_TypeError, "brick_agent: span takes one name, then keywords: category, elements, bytes, step");
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
    if (core_to_step(key, s) != 0 || (rows != NULL && core_amount(rows, &s->elements) != 0)
        || (valid != Py_None && core_amount(valid, &s->bytes) != 0))
        goto failed;
    if (valid == Py_None)
        s->bytes = s->elements != BRICK_BAD_AMOUNT ? s->elements : 0; /* counted once */
    s->brick = core_handle(kind != NULL ? kind : core_state.step, core_state.step);
    if (s->brick != NULL)
        return (PyObject *)s;
failed:
    Py_DECREF(s);
    return NULL;
}

static PyObject *core_layer(PyObject *module, PyObject *index)
{
    uint64_t layer;
    if (core_amount(index, &layer) != 0)
        return NULL;
    core_note_program();
    Layer *l = PyObject_New(Layer, core_state.layer_type);
    if (l == NULL)
        return NULL;
    l->vectorcall = core_layer_call;
    l->layer = layer < UINT32_MAX ? (uint32_t)layer : UINT32_MAX;
    return (PyObject *)l;
}

/* ---- life -------------------------------------------------------------- */

/* What was given as text: a new reference, or NULL for what is none. -1 with an exception set, in strict mode. */
static int given_text(PyObject *value, PyObject **text, const char **utf8)
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

static int given_count(PyObject *value, uint32_t *count)
{
    uint64_t amount;
    *count = 0;
    if (core_amount(value, &amount) != 0)
        return -1;
    if (amount <= UINT32_MAX)
        *count = (uint32_t)amount;
    return 0;
}

static PyObject *core_init(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"service", "worker", "lanes", "paths", "names", NULL};
    core_note_program();
    struct brick_config c = {0};
    PyObject *given[2] = {Py_None, Py_None}, *texts[2] = {NULL, NULL}, *zero = PyLong_FromLong(0);
    PyObject *counts[3] = {zero, zero, zero};
    PyObject *result = NULL;
    if (zero != NULL
        && PyArg_ParseTupleAndKeywords(args, keywords, "|OO$OOO:init", names, &given[0], &given[1], &counts[0],
                                       &counts[1], &counts[2])
        && given_text(given[0], &texts[0], &c.service) == 0 && given_text(given[1], &texts[1], &c.worker) == 0
        && given_count(counts[0], &c.lanes) == 0 && given_count(counts[1], &c.paths) == 0
        && given_count(counts[2], &c.names) == 0 && core_open(&c) == 0)
        result = PyBool_FromLong(brick_state() == BRICK_ON);
    Py_XDECREF(texts[0]);
    Py_XDECREF(texts[1]);
    Py_XDECREF(zero);
    return result;
}

static PyObject *core_shutdown(PyObject *module, PyObject *unused)
{
    brick_shutdown();
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

/* ---- types ------------------------------------------------------------- */

/* __enter__ or __exit__ of a type. */
typedef struct {
    PyObject_HEAD
} Manager;

static void plain_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *manager_of(PyObject *owner)
{
    if (Py_TYPE(owner) == core_state.brick_type)
        return (PyObject *)((Brick *)owner)->plain;
    return owner;
}

static PyObject *manager_get(PyObject *self, PyObject *owner, PyObject *type)
{
    return Py_NewRef(owner != NULL ? manager_of(owner) : self);
}

/* type(b).__enter__(b), as contextlib.ExitStack calls it. */
static PyObject *manager_call(PyObject *self, PyObject *args, PyObject *keywords)
{
    PyObject *owner = PyTuple_GET_SIZE(args) > 0 ? PyTuple_GET_ITEM(args, 0) : NULL;
    if (owner == NULL || (Py_TYPE(owner) != core_state.brick_type && Py_TYPE(owner) != core_state.span_type
                          && Py_TYPE(owner) != core_state.layer_type)) {
        PyErr_SetString(PyExc_TypeError, "brick_agent: needs a brick, a span or a layer");
        return NULL;
    }
    PyObject *rest = PyTuple_GetSlice(args, 1, PyTuple_GET_SIZE(args));
    PyObject *result = rest != NULL ? PyObject_Call(manager_of(owner), rest, NULL) : NULL;
    Py_XDECREF(rest);
    return result;
}

static PyType_Slot manager_slots[] = {
    {Py_tp_dealloc, plain_dealloc},
    {Py_tp_descr_get, manager_get},
    {Py_tp_call, manager_call},
    {0, NULL},
};
static PyType_Spec manager_spec = {
    "brick_agent._core.Manager", sizeof(Manager), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, manager_slots,
};

static PyObject *brick_repr(PyObject *self)
{
    return PyUnicode_FromFormat("brick(%R)", ((Brick *)self)->name);
}

/* Pickled and copied by name: in another process it is the handle of that name there, here it is itself. */
static PyObject *brick_reduce(PyObject *self, PyObject *unused)
{
    return Py_BuildValue("O(OO)", core_state.brick_function, ((Brick *)self)->name, ((Brick *)self)->category);
}

PyDoc_STRVAR(brick_doc,
"A named unit of work, made by brick(): a context manager, with start() and stop() where `with` does not fit.\n\n"
"May be used from any thread, task and greenlet at once; pickled and copied by name.\n\n"
">>> norm = brick.brick(\"rms_norm\", category=\"norm\")\n"
">>> with norm:\n"
"...     pass\n"
">>> with norm(elements=4096, bytes=16384, step=17):\n"
"...     pass\n"
">>> norm\n"
"brick('rms_norm')\n");
PyDoc_STRVAR(start_doc,
"start($self, /)\n--\n\n"
"Begin a span of this brick.\n\n"
">>> copy = brick.brick(\"copy\", category=\"transfer\")\n"
">>> copy.start()\n"
">>> copy.stop(bytes=4096)\n");
PyDoc_STRVAR(stop_doc,
"stop($self, /, elements=0, bytes=0)\n--\n\n"
"End the youngest open span of this brick in this task.\n\n"
"Spans begun inside it and never ended are counted as abandoned.\n\n"
">>> copy = brick.brick(\"copy\")\n"
">>> copy.start()\n"
">>> copy.stop(1024, 4096)\n");
PyDoc_STRVAR(record_doc,
"record($self, elapsed_ns, /, elements=0, bytes=0)\n--\n\n"
"Count a span that was timed elsewhere: by a device's events, by a library's own clock.\n\n"
"It stands below what is open here, and is taken from the own time of that.\n\n"
">>> kernel = brick.brick(\"moe_gemm\", category=\"ffn\")\n"
">>> kernel.record(1_250_000, elements=4096)\n");

static PyMemberDef brick_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Brick, vectorcall), READONLY, NULL},
    {"name", T_OBJECT, offsetof(Brick, name), READONLY, "What it is called."},
    {"category", T_OBJECT, offsetof(Brick, category), READONLY, "The category declared for it, or None."},
    {NULL, 0, 0, 0, NULL},
};
static PyMethodDef brick_methods[] = {
    {"start", core_brick_start, METH_NOARGS, start_doc},
    {"record", (PyCFunction)(void (*)(void))core_brick_record, METH_FASTCALL | METH_KEYWORDS, record_doc},
    {"stop", (PyCFunction)(void (*)(void))core_brick_stop, METH_FASTCALL | METH_KEYWORDS, stop_doc},
    {"__reduce__", brick_reduce, METH_NOARGS, "Pickled by name."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot brick_slots[] = {
    {Py_tp_dealloc, plain_dealloc},
    {Py_tp_repr, brick_repr},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, brick_members},
    {Py_tp_methods, brick_methods},
    {Py_tp_doc, (void *)brick_doc},
    {0, NULL},
};
static PyType_Spec brick_spec = {
    "brick_agent.Brick", sizeof(Brick), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION, brick_slots,
};

PyDoc_STRVAR(span_doc,
"One span of a brick with its amounts, for one `with` statement: what b(), span() and step() give.\n\n"
">>> with brick.brick(\"rms_norm\")(elements=4096) as norm:\n"
"...     norm.name\n"
"'rms_norm'\n");
static PyMemberDef span_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Span, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot span_slots[] = {
    {Py_tp_dealloc, core_span_dealloc},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, span_members},
    {Py_tp_doc, span_doc},
    {0, NULL},
};
static PyType_Spec span_spec = {
    "brick_agent.Span", sizeof(Span), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION, span_slots,
};

PyDoc_STRVAR(layer_doc,
"A scope whose spans know their layer: what layer() gives. May be used again.\n\n"
">>> third = brick.layer(3)\n"
">>> with third, brick.span(\"attention\"):\n"
"...     pass\n");
static PyMemberDef layer_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Layer, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot layer_slots[] = {
    {Py_tp_dealloc, plain_dealloc},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, layer_members},
    {Py_tp_doc, layer_doc},
    {0, NULL},
};
static PyType_Spec layer_spec = {
    "brick_agent.Layer", sizeof(Layer), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION, layer_slots,
};

static PyTypeObject *add_type(PyObject *module, PyType_Spec *spec, bool manages)
{
    PyTypeObject *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    if (type == NULL || !manages)
        return type;
    static const char *const names[] = {"__enter__", "__exit__"};
    for (int i = 0; i < 2; i++) {
        PyObject *manager = (PyObject *)PyObject_New(Manager, core_state.manager_type);
        if (manager == NULL || PyObject_SetAttrString((PyObject *)type, names[i], manager) != 0)
            return NULL;
        Py_DECREF(manager);
    }
    return PyModule_AddType(module, type) == 0 ? type : NULL;
}

/* ---- module ------------------------------------------------------------ */

PyDoc_STRVAR(core_brick_doc,
"brick(name, category=None)\n--\n\n"
"The handle of a brick: make it once, use it everywhere.\n\n"
"The same name gives the same handle. Opens nothing. Known categories: norm, attention, ffn, collective,\n"
"transfer, scheduler, host; any other is your own. The first one declared for a name stays.\n\n"
">>> brick.brick(\"rms_norm\", category=\"norm\") is brick.brick(\"rms_norm\")\n"
"True\n");
PyDoc_STRVAR(core_span_doc,
"span(name, /, *, category=None, elements=0, bytes=0, step=None)\n--\n\n"
"Time the body of a `with` without a handle.\n\n"
"step: an integer or a string that says on whose behalf; spans inside inherit it.\n\n"
">>> with brick.span(\"prefill\", step=\"request-17\"):\n"
"...     pass\n");
PyDoc_STRVAR(core_step_doc,
"step(key, /, *, kind='step', rows=0, valid=None)\n--\n\n"
"Time one step of an engine: `with step(n, kind=\"decode\", rows=32, valid=30):`.\n\n"
"key: the engine's own number or name of it, which the spans inside inherit; None: it has none. kind: the brick\n"
"that it counts for, of category \"step\". rows: how large the batch is; valid: how many of them are not padding (all,\n"
"when not said): these count as elements.\n\n"
">>> with brick.step(17, kind=\"decode\", rows=32, valid=30), brick.span(\"attention\"):\n"
"...     pass\n");
PyDoc_STRVAR(core_layer_doc,
"layer(index, /)\n--\n\n"
"Let the spans inside know their layer; the innermost one counts.\n\n"
">>> with brick.layer(3), brick.span(\"attention\"):\n"
"...     pass\n");
PyDoc_STRVAR(core_init_doc,
"init(service=None, worker=None, *, lanes=0, paths=0, names=0)\n--\n\n"
"Open this process's segment now rather than at its first span; True when it records.\n\n"
"worker: a number within the service, or coordinates (0.tp3.pp1). Never raises and may be called\n"
"again; the first call decides. What is not given, or cannot be, comes from BRICKD_SERVICE,\n"
"BRICKD_WORKER, BRICKD_LANES, BRICKD_PATHS, BRICKD_NAMES, else from defaults.\n\n"
">>> brick.init(service=\"api\", worker=3)\n"
"True\n");
PyDoc_STRVAR(core_shutdown_doc,
"shutdown()\n--\n\n"
"End recording in this process for good. Done by itself at exit.\n\n"
">>> brick.shutdown()\n"
">>> with brick.span(\"after the end\"):  # harmless, and not recorded\n"
"...     pass\n");
PyDoc_STRVAR(core_enable_doc,
"enable()\n--\n\n"
"Record again after disable().\n\n"
">>> brick.disable()\n"
">>> brick.enable()\n");
PyDoc_STRVAR(core_disable_doc,
"disable()\n--\n\n"
"Record nothing until enable(). Spans that are open still end.\n\n"
">>> brick.disable()\n"
">>> with brick.span(\"warm-up\"):  # not recorded\n"
"...     pass\n"
">>> brick.enable()\n");

static PyMethodDef core_methods[] = {
    {"brick", (PyCFunction)(void (*)(void))core_brick, METH_VARARGS | METH_KEYWORDS, core_brick_doc},
    {"span", (PyCFunction)(void (*)(void))core_span, METH_FASTCALL | METH_KEYWORDS, core_span_doc},
    {"layer", core_layer, METH_O, core_layer_doc},
    {"step", (PyCFunction)(void (*)(void))core_step, METH_VARARGS | METH_KEYWORDS, core_step_doc},
    {"init", (PyCFunction)(void (*)(void))core_init, METH_VARARGS | METH_KEYWORDS, core_init_doc},
    {"shutdown", core_shutdown, METH_NOARGS, core_shutdown_doc},
    {"enable", core_enable, METH_NOARGS, core_enable_doc},
    {"disable", core_disable, METH_NOARGS, core_disable_doc},
    {"_segment_name", core_segment_name, METH_NOARGS, "The file of this process below /dev/shm, or ''."},
    {"_segment_fd", core_segment_fd, METH_NOARGS, "Its descriptor, or -1."},
    {NULL, NULL, 0, NULL},
};

static int core_exec(PyObject *module)
{
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError, "brick_agent lives in the main interpreter only");
        return -1;
    }
    PyObject *native = core_native();
    if (native == NULL || PyModule_AddObjectRef(module, "native", native) != 0)
        return -1;
    Py_DECREF(native);
    Py_XSETREF(core_state.brick_function, PyObject_GetAttrString(module, "brick"));
    if (core_state.handles != NULL) /* imported once more, after somebody emptied sys.modules */
        return PyModule_AddType(module, core_state.brick_type) | PyModule_AddType(module, core_state.span_type)
               | PyModule_AddType(module, core_state.layer_type);
    core_state.manager_type = add_type(module, &manager_spec, false);
    if (core_state.manager_type == NULL || (core_state.brick_type = add_type(module, &brick_spec, true)) == NULL
        || (core_state.span_type = add_type(module, &span_spec, true)) == NULL
        || (core_state.layer_type = add_type(module, &layer_spec, true)) == NULL)
        return -1;
    core_state.step = PyUnicode_InternFromString("step");
    core_state.handles = PyDict_New();
    PyObject *other = PyUnicode_InternFromString("other");
    if (core_state.brick_function == NULL || core_state.step == NULL || core_state.handles == NULL || other == NULL)
        return -1;
    core_state.other = core_handle_new(other, Py_None);
    Py_DECREF(other);
    if (core_state.other == NULL)
        return -1;
    core_state.other->number = 0;
    return PyDict_SetItem(core_state.handles, core_state.other->name, (PyObject *)core_state.other);
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
