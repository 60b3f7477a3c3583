/* python/timing.c - the calls of a BrickProfiler that hosts make at each brick: start_brick, stop_brick, start and
 * stop.
 *
 * Owns the timers, and the fields of a profiler that these calls read. Must not know statistics and settings: the rest
 * of the class is in _compat/profiler. Invariants: a profiler that times nothing reads no clock, and all its starts
 * return the same timer; a timer and a profiler do not keep each other alive.
 */
#include "arguments.h"
#include "brick.h"
#include "methods.h"
#include "span.h"

#include <time.h>

/* The result of a start, to pass to one stop. */
struct BrickTimer {
    PyObject_HEAD
    Brick *brick;      /* never freed, so no reference is counted */
    uint64_t start_ns; /* the time of CLOCK_MONOTONIC_RAW when deferred work began; 0: the timer has an open span
                          instead */
    uint32_t owner;    /* the profiler's serial; 0: the timer was stopped, or is for untimed bricks */
    bool waits;        /* whether the stop waits for the device */
    bool launches;     /* whether kernels that are recorded after the stop belong to this brick; false for a tile */
};

/* The first fields of a BrickProfiler. */
typedef struct {
    PyObject_HEAD
    uint32_t serial; /* the profiler's number, from 1 */
    bool on, defers, waits, graphs;
} Timing;

/* ---- timers ------------------------------------------------------------- */

static BrickTimer *timer_new(Brick *b)
{
    BrickTimer *t;
    if (core_state.timers > 0) {
        t = core_state.spare_timer[--core_state.timers];
        _Py_NewReference((PyObject *)t);
    } else {
        t = PyObject_New(BrickTimer, core_state.timer_type);
        if (t == NULL)
            return NULL;
    }
    t->brick = b;
    t->start_ns = 0;
    t->owner = 0;
    t->waits = t->launches = false;
    return t;
}

static void timer_dealloc(PyObject *self)
{
    if (core_state.timers < SPARE_TIMERS)
        core_state.spare_timer[core_state.timers++] = (BrickTimer *)self;
    else
        core_plain_dealloc(self);
}

static PyObject *timer_name(PyObject *self, void *unused) { return Py_NewRef(((BrickTimer *)self)->brick->name); }

static PyObject *timer_repr(PyObject *self)
{
    const BrickTimer *t = (BrickTimer *)self;
    if (t == core_state.idle)
        return PyUnicode_FromString("BrickTimer(not timed)");
    return PyUnicode_FromFormat("BrickTimer(%R, %s)", t->brick->name, t->owner == 0 ? "stopped" : "running");
}

static PyGetSetDef timer_getset[] = {
    {"name", timer_name, NULL, "The name of the brick.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot timer_slots[] = {
    {Py_tp_dealloc, timer_dealloc},
    {Py_tp_repr, timer_repr},
    {Py_tp_getset, timer_getset},
    {Py_tp_doc, (void *)PyDoc_STR("The result of a start, to pass to one stop.")},
    {0, NULL},
};
PyType_Spec core_timer_spec = {
    "brick_agent._core.BrickTimer", sizeof(BrickTimer), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    timer_slots,
};

/* ---- names --------------------------------------------------------------- */

PyObject *core_know(PyObject *module, PyObject *args)
{
    PyObject *known, *named;
    if (!PyArg_ParseTuple(args, "O!O!:_know", &PyTuple_Type, &known, &PyDict_Type, &named))
        return NULL;
    Py_XSETREF(core_state.known, Py_NewRef(known));
    Py_XSETREF(core_state.named, Py_NewRef(named));
    if (core_state.idle == NULL)
        core_state.idle = timer_new(core_state.other);
    return core_state.idle != NULL ? Py_NewRef(Py_None) : NULL;
}

/* Returns a borrowed reference; in strict mode, NULL with an exception set. */
static Brick *by_name(PyObject *name, PyObject *category)
{
    PyObject *text = PyUnicode_Check(name) ? PyUnicode_FromObject(name) : NULL; /* a plain str, also for a subclass of str */
    PyObject *known = text != NULL ? PyDict_GetItemWithError(core_state.named, text) : NULL;
    Py_XDECREF(text);
    PyErr_Clear();
    return known != NULL ? (Brick *)known : core_handle(name, category);
}

PyObject *core_by_name(PyObject *module, PyObject *args)
{
    PyObject *name, *category = Py_None;
    return PyArg_ParseTuple(args, "O|O:_by_name", &name, &category) ? Py_XNewRef(by_name(name, category)) : NULL;
}

/* ---- the calls ----------------------------------------------------------- */

static PyObject *begin(Brick *b, uint32_t owner, bool waits)
{
    PyObject *begun = core_brick_start((PyObject *)b, NULL);
    BrickTimer *t = begun != NULL ? timer_new(b) : NULL;
    Py_XDECREF(begun);
    if (t != NULL) {
        t->owner = owner;
        t->waits = waits;
    }
    return (PyObject *)t;
}

/* Calls a method about the graph; use it only while the graph is recorded. Returns the method's answer; an error counts
 * as false. */
static bool graph_says(PyObject *self, const char *method, PyObject *of)
{
    PyObject *answer = of != NULL ? PyObject_CallMethod(self, method, "O", of) : PyObject_CallMethod(self, method, NULL);
    const bool yes = answer == Py_True;
    Py_XDECREF(answer);
    PyErr_Clear();
    return yes;
}

/* Without a span, the kernels recorded until the stop would belong to no brick. This call makes the graph assign
 * them to this brick. */
static PyObject *not_timed(PyObject *self, Brick *b)
{
    if (((Timing *)self)->graphs)
        graph_says(self, "_launches", (PyObject *)b);
    return Py_NewRef(core_state.idle);
}

static PyObject *begin_as_set(PyObject *self, Brick *b)
{
    const Timing *p = (Timing *)self;
    if (!p->on)
        return not_timed(self, b);
    if (!p->defers) {
        PyObject *begun = begin(b, p->serial, p->waits);
        if (begun != NULL)
            ((BrickTimer *)begun)->launches = true;
        return begun;
    }
    if (p->graphs)
        graph_says(self, "_launches", (PyObject *)b);
    struct timespec now;
    BrickTimer *t = timer_new(b);
    if (t != NULL) {
        clock_gettime(CLOCK_MONOTONIC_RAW, &now);
        t->start_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
        t->owner = p->serial;
    }
    return (PyObject *)t;
}

static PyObject *start_brick(PyObject *self, PyObject *id)
{
    const Timing *p = (Timing *)self;
    if (!p->on && !p->graphs)
        return Py_NewRef(core_state.idle);
    if (__builtin_expect(PyLong_Check(id) && !PyBool_Check(id), 1)) {
        int overflow;
        const long number = PyLong_AsLongAndOverflow(id, &overflow);
        if (overflow == 0 && number >= 0 && number < PyTuple_GET_SIZE(core_state.known))
            return begin_as_set(self, (Brick *)PyTuple_GET_ITEM(core_state.known, number));
    }
    if (!p->on)
        return Py_NewRef(core_state.idle);
    PyObject *refused = PyObject_CallMethod(self, "_by_id", "O", id);
    Py_XDECREF(refused);
    return refused != NULL ? Py_NewRef(core_state.idle) : NULL;
}

static PyObject *start(PyObject *self, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    static const char *const known[] = {"name", "category"};
    static CoreCall call = {"start", 1, 2, 2, known, {NULL}};
    PyObject *of[CORE_ARGUMENTS];
    if (core_arguments(&call, args, given, names, of) != 0)
        return NULL;
    if (!((Timing *)self)->on && !((Timing *)self)->graphs)
        return Py_NewRef(core_state.idle);
    Brick *b = by_name(of[0], of[1] != NULL ? of[1] : Py_None);
    return b != NULL ? begin_as_set(self, b) : NULL;
}

static PyObject *begin_tile(PyObject *self, PyObject *brick)
{
    if (Py_TYPE(brick) != core_state.brick_type)
        return Py_NewRef(core_state.idle);
    return begin((Brick *)brick, ((Timing *)self)->serial, false);
}

/* The span ends even if the wait raises, as with `finally`. */
static PyObject *wait_and_end(PyObject *self, Brick *b, const struct brick_amounts *did)
{
    PyObject *waited = PyObject_CallMethod(self, "_wait", NULL);
    const CoreRaised raised = core_raised_by_call(waited);
    core_let_go(waited);
    PyObject *ended = core_span_end(b, did);
    if (raised.type == NULL)
        return ended;
    core_let_go(ended);
    core_put_back(raised);
    return NULL;
}

static PyObject *stop(PyObject *self, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    static const char *const known[] = {"timer", "elements", "bytes", "flops"};
    static CoreCall call = {"stop", 1, 4, 4, known, {NULL}};
    PyObject *of[CORE_ARGUMENTS];
    if (given > 0 && args[0] == (PyObject *)core_state.idle)
        Py_RETURN_NONE;
    if (core_arguments(&call, args, given, names, of) != 0)
        return NULL;
    BrickTimer *t = (BrickTimer *)of[0];
    if (t == core_state.idle)
        Py_RETURN_NONE;
    if (Py_TYPE(t) != core_state.timer_type || t->owner != ((Timing *)self)->serial)
        return PyObject_CallMethod(self, "_refuse_timer", "OO", t,
                                   Py_TYPE(t) == core_state.timer_type && t->owner == 0 ? Py_True : Py_False);
    t->owner = 0;
    if (t->start_ns != 0)
        return PyObject_CallMethod(self, "_defer", "OKO", t->brick, (unsigned long long)t->start_ns,
                                   of[1] != NULL ? of[1] : Py_False);
    struct brick_amounts did = {0};
    if ((of[1] != NULL && core_amount(of[1], &did.elements) != 0) || (of[2] != NULL && core_amount(of[2], &did.bytes) != 0)
        || (of[3] != NULL && core_flops(of[3], &did.flops) != 0))
        return NULL;
    Brick *b = t->brick; /* the timer may be freed before the end of this function; the brick never is */
    const bool waits = t->waits, graphs = t->launches && ((Timing *)self)->graphs;
    const bool launched = graphs && graph_says(self, "_launched_here", NULL);
    PyObject *ended = __builtin_expect(waits, 0) ? wait_and_end(self, b, &did) : core_span_end(b, &did);
    if (graphs && ended != NULL)
        graph_says(self, "_launches", launched ? Py_None : (PyObject *)b);
    return ended;
}

static PyObject *timing_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static uint32_t profilers;
    if (core_state.idle == NULL) { /* _know was not called yet: start and stop need the data that it sets */
        PyErr_SetString(PyExc_TypeError, "brick_agent: use BrickProfiler, not its base");
        return NULL;
    }
    Timing *p = (Timing *)type->tp_alloc(type, 0);
    if (p != NULL)
        p->serial = ++profilers != 0 ? profilers : ++profilers;
    return (PyObject *)p;
}

PyDoc_STRVAR(start_brick_doc,
"start_brick($self, id, /)\n--\n\n"
"Begin one of the 15 known bricks.\n\n"
">>> profiler = brick.BrickProfiler.enabled()\n"
">>> timer = profiler.start_brick(0)\n"
">>> timer.name\n"
"'RmsNorm'\n"
">>> profiler.stop_brick(timer, 4096)\n");
PyDoc_STRVAR(start_doc,
"start($self, /, name, category=None)\n--\n\n"
"Begin a brick of any name; an alias of a known brick means that brick.\n\n"
">>> profiler = brick.BrickProfiler.enabled()\n"
">>> timer = profiler.start(\"RoPE\")\n"
">>> timer.name\n"
"'RopeEmbedding'\n"
">>> profiler.stop(timer)\n");
PyDoc_STRVAR(stop_doc,
"stop($self, /, timer, elements=0, bytes=0, flops=0)\n--\n\n"
"End a brick, with the amounts of its work.\n\n"
">>> profiler = brick.BrickProfiler.enabled()\n"
">>> profiler.stop(profiler.start(\"tokenize\"), elements=12)\n"
">>> profiler.stop_brick(profiler.start_brick(3), elements=128)\n");

static PyMemberDef timing_members[] = {
    {"_on", T_BOOL, offsetof(Timing, on), 0, "Whether bricks that start now are timed."},
    {"_defers", T_BOOL, offsetof(Timing, defers), 0, "Whether bricks that start now end at a common sync, as deferred work."},
    {"_graphing", T_BOOL, offsetof(Timing, graphs), 0, "Whether the execution graph is recorded."},
    {"_waits", T_BOOL, offsetof(Timing, waits), 0, "Whether each stop waits for the device."},
    {NULL, 0, 0, 0, NULL},
};
static PyMethodDef timing_methods[] = {
    {"start_brick", start_brick, METH_O, start_brick_doc},
    {"start", (PyCFunction)(void (*)(void))start, METH_FASTCALL | METH_KEYWORDS, start_doc},
    {"stop_brick", (PyCFunction)(void (*)(void))stop, METH_FASTCALL | METH_KEYWORDS, stop_doc},
    {"stop", (PyCFunction)(void (*)(void))stop, METH_FASTCALL | METH_KEYWORDS, stop_doc},
    {"_begin_tile", begin_tile, METH_O, "Begin a span of a brick, whose stop does not wait for the device. With None, return the timer for untimed bricks."},
    {NULL, NULL, 0, NULL},
};

/* The interpreter has a fast call for C methods, but only if the object's class itself has the method, not a base
 * class. */
PyObject *core_own_methods(PyObject *module, PyObject *type)
{
    if (!PyType_Check(type) || !PyType_IsSubtype((PyTypeObject *)type, core_state.timing_type)) {
        PyErr_SetString(PyExc_TypeError, "brick_agent: needs a subclass of Timing");
        return NULL;
    }
    for (PyMethodDef *each = timing_methods; each->ml_name != NULL; each++) {
        PyObject *method = PyDescr_NewMethod((PyTypeObject *)type, each);
        const int failed = method == NULL || PyObject_SetAttrString(type, each->ml_name, method) != 0;
        Py_XDECREF(method);
        if (failed)
            return NULL;
    }
    return Py_NewRef(type);
}

static PyType_Slot timing_slots[] = {
    {Py_tp_new, timing_new},
    {Py_tp_members, timing_members},
    {Py_tp_methods, timing_methods},
    {Py_tp_doc, (void *)PyDoc_STR("The calls of a BrickProfiler that hosts make at each brick.")},
    {0, NULL},
};
PyType_Spec core_timing_spec = {
    "brick_agent._core.Timing", sizeof(Timing), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, timing_slots,
};
