/* python/trace.c - `@trace` wraps a plain callable, as functools.lru_cache does.
 *
 * The wrapper of a generator or coroutine only reports where the function is defined. The wrapper is written in C
 * because a Python wrapper with *args and **keywords would cost four times as much as the span. There are two types of
 * wrappers, because a wrapper must bind like its callable: attribute look-up binds a function as a method, but does not
 * bind a builtin or an object with __call__.
 */
#include "brick.h"
#include "methods.h"
#include "span.h"

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *function;
    PyObject *brick;
    PyObject *file;   /* in UTF-8; NULL: the definition is not reported */
    unsigned long line;
    unsigned reported_by; /* the process (core_state.process) whose first call reported the definition */
    bool spans;       /* 1: each call is a span; 0: only the definition is reported */
    PyObject *dictionary; /* functools.wraps writes __name__, __wrapped__ and other attributes here */
    PyObject *weak;
} Traced;

static PyObject *traced_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    Traced *t = (Traced *)self;
    if (__builtin_expect(t->reported_by != core_state.process, 0)
        && (t->file == NULL || core_define((Brick *)t->brick, t->file, t->line)))
        t->reported_by = core_state.process;
    if (!t->spans)
        return PyObject_Vectorcall(t->function, args, nargsf, names);
    PyObject *begun = core_brick_start(t->brick, NULL);
    if (begun == NULL)
        return NULL;
    Py_DECREF(begun);
    PyObject *result = PyObject_Vectorcall(t->function, args, nargsf, names);
    const CoreRaised raised = core_raised_by_call(result);
    PyObject *ended = core_brick_stop(t->brick, NULL, 0, NULL);
    Py_XDECREF(ended);
    return core_call_over(result, raised, ended == NULL);
}

/* Binds as a method if the wrapped function does. */
static PyObject *traced_get(PyObject *self, PyObject *owner, PyObject *type)
{
    PyObject *function = ((Traced *)self)->function;
    descrgetfunc get = Py_TYPE(function)->tp_descr_get;
    if (get == NULL || owner == NULL || owner == Py_None)
        return Py_NewRef(self);
    PyObject *bound = get(function, owner, type);
    Py_XDECREF(bound);
    if (bound == NULL)
        return NULL;
    return bound == function ? Py_NewRef(self) : PyMethod_New(self, owner);
}

static PyObject *traced_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<traced %R>", ((Traced *)self)->function);
}

/* Pickles by the qualified name, like a function. */
static PyObject *traced_reduce(PyObject *self, PyObject *unused) { return PyObject_GetAttrString(self, "__qualname__"); }
static PyObject *traced_copy(PyObject *self, PyObject *unused) { return Py_NewRef(self); }

static int traced_traverse(PyObject *self, visitproc visit, void *arg)
{
    Traced *t = (Traced *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(t->function);
    Py_VISIT(t->dictionary);
    return 0;
}

static int traced_clear(PyObject *self)
{
    Traced *t = (Traced *)self;
    Py_CLEAR(t->dictionary);
    /* Keep the function, because the wrapper can still be called. A reference cycle can be broken at the dictionary of
     * the wrapper or of the function. */
    return 0;
}

static void traced_dealloc(PyObject *self)
{
    Traced *t = (Traced *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (t->weak != NULL)
        PyObject_ClearWeakRefs(self);
    traced_clear(self);
    Py_XDECREF(t->function);
    Py_XDECREF(t->file);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyMemberDef traced_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Traced, vectorcall), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(Traced, dictionary), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Traced, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyGetSetDef traced_attributes[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyMethodDef traced_methods[] = {
    {"__reduce__", traced_reduce, METH_NOARGS, "Pickled by name."},
    {"__copy__", traced_copy, METH_NOARGS, "Itself."},
    {"__deepcopy__", traced_copy, METH_O, "Itself."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot traced_slots[] = {
    {Py_tp_dealloc, traced_dealloc},
    {Py_tp_traverse, traced_traverse},
    {Py_tp_clear, traced_clear},
    {Py_tp_repr, traced_repr},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_descr_get, traced_get},
    {Py_tp_members, traced_members},
    {Py_tp_getset, traced_attributes},
    {Py_tp_methods, traced_methods},
    {Py_tp_doc, "A function; each call is a span."},
    {0, NULL},
};
#define TRACED_FLAGS \
    (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION)
PyType_Spec core_traced_spec = {
    "brick_agent._core.Traced", sizeof(Traced), 0, TRACED_FLAGS | Py_TPFLAGS_METHOD_DESCRIPTOR, traced_slots,
};
PyType_Spec core_traced_object_spec = {
    "brick_agent._core.TracedObject", sizeof(Traced), 0, TRACED_FLAGS, traced_slots,
};

PyObject *core_traced(PyObject *module, PyObject *args)
{
    PyObject *function, *b, *file;
    unsigned long line;
    int spans;
    if (!PyArg_ParseTuple(args, "OO!pOk:traced", &function, core_state.brick_type, &b, &spans, &file, &line))
        return NULL;
    if (file != Py_None && PyUnicode_AsUTF8(file) == NULL)
        return NULL;
    Traced *t = PyObject_GC_New(Traced, PyType_HasFeature(Py_TYPE(function), Py_TPFLAGS_METHOD_DESCRIPTOR)
                                            ? core_state.traced_type
                                            : core_state.traced_object_type);
    if (t == NULL)
        return NULL;
    t->vectorcall = traced_call;
    t->function = Py_NewRef(function);
    t->brick = b; /* never freed, so no reference is counted */
    t->file = file != Py_None ? Py_NewRef(file) : NULL;
    t->line = line;
    t->reported_by = 0;
    t->spans = spans;
    t->dictionary = t->weak = NULL;
    PyObject_GC_Track((PyObject *)t);
    return (PyObject *)t;
}
