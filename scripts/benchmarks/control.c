/* control.c - the smallest cost that a span can have in any C extension. It makes the calls and the two clock reads of
 * brick_agent, but stores nothing.
 *
 * The functions are called in the same way as those of agent/src/python/functions.c: __enter__ and __exit__ are
 * descriptors that return an existing object and are called by vectorcall; start is METH_NOARGS, stop is METH_FASTCALL
 * | METH_KEYWORDS.
 *
 * This file is compiled twice: as `control_clock`, with the clock that the agent selected, and as `control_empty`,
 * without a clock, which shows the least that a disabled span can cost.
 *
 *   -DCONTROL_NAME=control_clock -DCONTROL_CLOCK=1   (BRICK_CLOCK_*; 0: no clock)
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <stdint.h>
#include <time.h>

#if CONTROL_CLOCK == 1
#include <x86intrin.h>
#endif

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define TEXT_(a) #a
#define TEXT(a) TEXT_(a)

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *manager; /* what __enter__ and __exit__ return; NULL in objects that are no brick */
} Control;

static PyTypeObject *brick_type, *span_type, *manager_type;

static inline void read_clock(void)
{
#if CONTROL_CLOCK == 1
    uint64_t ticks = __rdtsc();
    __asm__ volatile("" : : "r"(ticks));
#elif CONTROL_CLOCK == 2
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
#elif CONTROL_CLOCK == 3
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    uint64_t ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    __asm__ volatile("" : : "r"(ns));
#endif
}

static PyObject *span_call(PyObject *self, PyObject *const *args, size_t given, PyObject *names)
{
    read_clock();
    if (PyVectorcall_NARGS(given) != 0)
        Py_RETURN_NONE;
    return Py_NewRef(self);
}

static PyObject *brick_start(PyObject *self, PyObject *unused)
{
    read_clock();
    Py_RETURN_NONE;
}

static PyObject *brick_stop(PyObject *self, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    if (given > 0 || names != NULL) {
        PyErr_SetString(PyExc_TypeError, "the control takes no amounts");
        return NULL;
    }
    read_clock();
    Py_RETURN_NONE;
}

/* These functions have the same arguments and results as start_brick and stop_brick, but do nothing. */
static PyObject *brick_start_brick(PyObject *self, PyObject *id) { return Py_NewRef(self); }

static PyObject *brick_stop_brick(PyObject *self, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    Py_RETURN_NONE;
}

static PyObject *manager_get(PyObject *self, PyObject *owner, PyObject *type)
{
    return Py_NewRef(owner != NULL ? ((Control *)owner)->manager : self);
}

static PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Control, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyMethodDef methods[] = {
    {"start", brick_start, METH_NOARGS, NULL},
    {"stop", (PyCFunction)(void (*)(void))brick_stop, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"start_brick", brick_start_brick, METH_O, NULL},
    {"stop_brick", (PyCFunction)(void (*)(void))brick_stop_brick, METH_FASTCALL | METH_KEYWORDS, NULL},
    {NULL, NULL, 0, NULL},
};

#define FLAGS (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION)
static PyType_Slot brick_slots[] = {{Py_tp_methods, methods}, {0, NULL}};
static PyType_Slot span_slots[] = {{Py_tp_call, PyVectorcall_Call}, {Py_tp_members, members}, {0, NULL}};
static PyType_Slot manager_slots[] = {{Py_tp_descr_get, manager_get}, {0, NULL}};
static PyType_Spec brick_spec = {"control.Brick", sizeof(Control), 0, FLAGS, brick_slots};
static PyType_Spec span_spec = {"control.Span", sizeof(Control), 0, FLAGS | Py_TPFLAGS_HAVE_VECTORCALL, span_slots};
static PyType_Spec manager_spec = {"control.Manager", sizeof(PyObject), 0, FLAGS, manager_slots};

/* Objects and types are never freed. */
static PyObject *control_brick(PyObject *module, PyObject *unused)
{
    Control *brick = PyObject_New(Control, brick_type), *span = PyObject_New(Control, span_type);
    if (brick == NULL || span == NULL)
        return NULL;
    span->vectorcall = span_call;
    span->manager = NULL;
    brick->vectorcall = NULL;
    brick->manager = (PyObject *)span;
    return (PyObject *)brick;
}

static PyMethodDef functions[] = {
    {"brick", control_brick, METH_NOARGS, "A thing with __enter__, __exit__, start and stop."},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, TEXT(CONTROL_NAME), NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC JOIN(PyInit_, CONTROL_NAME)(void)
{
    static const char *const names[] = {"__enter__", "__exit__"};
    manager_type = (PyTypeObject *)PyType_FromSpec(&manager_spec);
    span_type = (PyTypeObject *)PyType_FromSpec(&span_spec);
    brick_type = (PyTypeObject *)PyType_FromSpec(&brick_spec);
    if (manager_type == NULL || span_type == NULL || brick_type == NULL)
        return NULL;
    for (int i = 0; i < 2; i++) {
        PyObject *manager = PyObject_New(PyObject, manager_type);
        if (manager == NULL || PyObject_SetAttrString((PyObject *)brick_type, names[i], manager) != 0)
            return NULL;
    }
    return PyModule_Create(&definition);
}
