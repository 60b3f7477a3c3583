/* python/types.c - the types of brick_agent._core, and their documentation. */
#include "methods.h"
#include "span.h"

/* The attribute __enter__ or __exit__ of a type (core.h explains why it is not a method). */
typedef struct {
    PyObject_HEAD
} Manager;

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

/* Handles type(b).__enter__(b), which contextlib.ExitStack calls. */
static PyObject *manager_call(PyObject *self, PyObject *args, PyObject *keywords)
{
    PyObject *owner = PyTuple_GET_SIZE(args) > 0 ? PyTuple_GET_ITEM(args, 0) : NULL;
    if (owner == NULL || (Py_TYPE(owner) != core_state.brick_type && Py_TYPE(owner) != core_state.span_type
                          && Py_TYPE(owner) != core_state.layer_type)) {
        PyErr_SetString(PyExc_TypeError, "brick_agent: the first argument must be a brick, a span or a layer");
        return NULL;
    }
    PyObject *rest = PyTuple_GetSlice(args, 1, PyTuple_GET_SIZE(args));
    PyObject *result = rest != NULL ? PyObject_Call(manager_of(owner), rest, NULL) : NULL;
    Py_XDECREF(rest);
    return result;
}

static PyType_Slot manager_slots[] = {
    {Py_tp_dealloc, core_plain_dealloc},
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

/* Pickles and copies a handle by its name. A pickle gives the handle of this name in the process that loads it; a copy
 * is the same handle. */
static PyObject *brick_reduce(PyObject *self, PyObject *unused)
{
    return Py_BuildValue("O(OO)", core_state.brick_function, ((Brick *)self)->name, ((Brick *)self)->category);
}

PyDoc_STRVAR(brick_doc,
"A named unit of work, made by brick(): a context manager, with start() and stop() for code where `with` does not fit.\n\n"
"All threads, tasks and greenlets may use a handle at the same time. A handle is pickled and copied by name.\n\n"
"A call with keywords returns a span with amounts. brickd adds up the amounts of all spans, and those given to stop(),\n"
"record() and defer(). elements: the tokens, rows or values that the brick counts; bytes: the bytes that it reads and\n"
"writes; both are integers from 0 to 2^48, 0 if unknown. flops: floating-point operations. step: an integer or a string,\n"
"the request or the iteration of the span; spans inside have the same step.\n\n"
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
"stop($self, /, elements=0, bytes=0, flops=0)\n--\n\n"
"End the youngest open span of this brick in this task.\n\n"
"Spans begun inside it and never ended are counted as abandoned.\n\n"
">>> copy = brick.brick(\"copy\")\n"
">>> copy.start()\n"
">>> copy.stop(1024, 4096)\n");
PyDoc_STRVAR(record_doc,
"record($self, elapsed_ns, /, elements=0, bytes=0, flops=0)\n"
"--\n\n"
"Record a span that was timed elsewhere: by a device's events or a library's clock.\n\n"
"The span is a child of the open span, whose self time shrinks by elapsed_ns.\n\n"
">>> kernel = brick.brick(\"moe_gemm\", category=\"ffn\")\n"
">>> kernel.record(1_250_000, elements=4096, flops=2 * 4096**2)\n");

PyMemberDef core_callable_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Span, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
_Static_assert(offsetof(Span, vectorcall) == sizeof(PyObject), "each of these types begins with its vectorcall");

static PyMemberDef brick_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Brick, vectorcall), READONLY, NULL},
    {"name", T_OBJECT, offsetof(Brick, name), READONLY, "The name."},
    {"category", T_OBJECT, offsetof(Brick, category), READONLY, "The declared category, or None."},
    {NULL, 0, 0, 0, NULL},
};
static PyMethodDef brick_methods[] = {
    {"start", core_brick_start, METH_NOARGS, start_doc},
    {"record", (PyCFunction)(void (*)(void))core_brick_record, METH_FASTCALL | METH_KEYWORDS, record_doc},
    {"defer", (PyCFunction)(void (*)(void))core_brick_defer, METH_FASTCALL | METH_KEYWORDS, core_defer_doc},
    {"stop", (PyCFunction)(void (*)(void))core_brick_stop, METH_FASTCALL | METH_KEYWORDS, stop_doc},
    {"__reduce__", brick_reduce, METH_NOARGS, "Pickled by name."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot brick_slots[] = {
    {Py_tp_dealloc, core_plain_dealloc},
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
"One span of a brick with its amounts, for one `with` statement: the result of b(), span() and step().\n\n"
">>> with brick.brick(\"rms_norm\")(elements=4096) as norm:\n"
"...     norm.name\n"
"'rms_norm'\n");
static PyType_Slot span_slots[] = {
    {Py_tp_dealloc, core_span_dealloc},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, core_callable_members},
    {Py_tp_doc, (void *)span_doc},
    {0, NULL},
};
static PyType_Spec span_spec = {
    "brick_agent.Span", sizeof(Span), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION, span_slots,
};

PyDoc_STRVAR(layer_doc,
"The result of layer(): a scope whose spans have this layer. May be used several times.\n\n"
">>> third = brick.layer(3)\n"
">>> with third, brick.span(\"attention\"):\n"
"...     pass\n");
static PyType_Slot layer_slots[] = {
    {Py_tp_dealloc, core_plain_dealloc},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, core_callable_members},
    {Py_tp_doc, (void *)layer_doc},
    {0, NULL},
};
static PyType_Spec layer_spec = {
    "brick_agent.Layer", sizeof(Layer), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION, layer_slots,
};

static PyTypeObject *make_type(PyObject *module, PyType_Spec *spec, bool manages)
{
    static const char *const names[] = {"__enter__", "__exit__"};
    PyTypeObject *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    for (int i = 0; type != NULL && manages && i < 2; i++) {
        PyObject *manager = (PyObject *)PyObject_New(Manager, core_state.manager_type);
        if (manager == NULL || PyObject_SetAttrString((PyObject *)type, names[i], manager) != 0)
            return NULL;
        Py_DECREF(manager);
    }
    return type;
}

int core_add_types(PyObject *module)
{
    static const struct {
        PyType_Spec *spec;
        PyTypeObject **type; /* where the type is kept, so that it is created only once, even if the module is removed
                                from sys.modules and imported again */
        bool is_public, manages;
    } all[] = {
        {&manager_spec, &core_state.manager_type, false, false}, /* first, because the types below need it */
        {&brick_spec, &core_state.brick_type, true, true},
        {&span_spec, &core_state.span_type, true, true},
        {&layer_spec, &core_state.layer_type, true, true},
        {&core_taken_spec, &core_state.taken_type, true, false},
        {&core_history_spec, &core_state.history_type, true, false},
        {&core_step_rows_spec, &core_state.step_rows_type, true, false},
        {&core_traced_spec, &core_state.traced_type, false, false},
        {&core_traced_object_spec, &core_state.traced_object_type, false, false},
        {&core_watched_spec, &core_state.watched_type, false, false},
        {&core_timer_spec, &core_state.timer_type, true, false},
        {&core_timing_spec, &core_state.timing_type, true, false},
    };
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        PyTypeObject **type = all[n].type;
        if (*type == NULL && (*type = make_type(module, all[n].spec, all[n].manages)) == NULL)
            return -1;
        if (all[n].is_public && PyModule_AddType(module, *type) != 0)
            return -1;
    }
    return 0;
}
