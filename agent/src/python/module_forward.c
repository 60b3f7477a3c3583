/* python/module_forward.c - the callable by which `instrument` replaces a module's forward. Each call of it is a span.
 *
 * The span has the module's layer. If a checksum of the output would be recorded, a second function runs instead of the
 * module's forward: it fingerprints the inputs before the module computes. A third function runs if rows of the step were
 * chosen by their histories. If rows would be recorded, rows.c makes the call. A module that is only watched for rows has
 * no span. This file is written in C because it runs for each module in each step.
 */
#include "arguments.h"
#include "context_key.h"
#include "methods.h"
#include "opening.h"
#include "rows.h"
#include "tensor.h"

#include "../writer/thread.h" /* the gate: while recording is off, a call returns immediately */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *function;
    PyObject *followed; /* the function to call if rows of the step were chosen by their histories; or NULL */
    PyObject *checked; /* the function to call if a checksum would be recorded; NULL: no span, only rows */
    PyObject *module;  /* a weak reference to the module, the first argument of both functions; or NULL */
    Brick *brick;      /* never freed, so no reference is counted */
    uint32_t layer;    /* a value above the largest layer means no layer */
    uint32_t rate;     /* the rate for brick_wants_of */
    CoreRows rows;
} Watched;

static int resolved(const Watched *w) { return w->brick->number != BRICK_UNNAMED ? 0 : core_resolve(w->brick); }

static int begin(const Watched *w, const void *key)
{
    if (resolved(w) != 0)
        return -1;
    if (w->layer <= BRICK_LAYER_MAX)
        core_begun(brick_layer_begin(w->layer, key), key);
    const unsigned outcome = brick_begin(w->brick->number, key, NULL);
    if (outcome)
        core_begun(outcome, key);
    return 0;
}

static int end(const Watched *w, const void *key)
{
    unsigned outcome = brick_end(w->brick->number, key, 0, 0);
    PyObject *ended = outcome ? core_ended(outcome, key) : Py_NewRef(Py_None);
    if (w->layer <= BRICK_LAYER_MAX && (outcome = brick_layer_end(w->layer, key)) != 0 && ended != NULL)
        Py_SETREF(ended, core_ended(outcome, key));
    Py_XDECREF(ended);
    return ended != NULL ? 0 : -1;
}

static PyObject *call_in_span(const Watched *w, const CoreRowsOf *of, PyObject *const *args, size_t nargsf, PyObject *names)
{
    if (begin(w, of->key) != 0)
        return NULL;
    /* Each step that records whole fingerprints also records rows. */
    const bool has_rows = core_rows_wanted(of);
    const bool is_whole = (has_rows || w->rows.context == NULL) && brick_wants_of(w->brick->number, of->key, NULL, w->rate);
    const bool is_followed = w->followed != NULL && core_history_is_chosen();
    PyObject *function = is_whole ? w->checked : is_followed ? w->followed : w->function;
    PyObject *result = has_rows ? core_rows_call(of, function, args, nargsf, names)
                                : PyObject_Vectorcall(function, args, nargsf, names);
    const CoreRaised raised = core_raised_by_call(result);
    return core_call_over(result, raised, end(w, of->key) != 0);
}

static PyObject *call(const Watched *w, PyObject *const *args, size_t nargsf, PyObject *names)
{
    if (brick_off_here())
        return PyObject_Vectorcall(w->function, args, nargsf, names);
    const CoreRowsOf of = {.rows = &w->rows,
                           .brick = w->brick,
                           .key = core_key(),
                           .layer = w->layer <= BRICK_LAYER_MAX ? &w->layer : NULL,
                           .rate = w->rate,
                           .has_module = w->module != NULL};
    if (w->checked != NULL)
        return call_in_span(w, &of, args, nargsf, names);
    if (resolved(w) != 0)
        return NULL;
    return core_rows_wanted(&of) ? core_rows_call(&of, w->function, args, nargsf, names)
                                 : PyObject_Vectorcall(w->function, args, nargsf, names);
}

#define FEW 8

static PyObject *call_of(const Watched *w, PyObject *const *args, size_t nargsf, PyObject *names)
{
    const Py_ssize_t given = PyVectorcall_NARGS(nargsf), all = given + (names != NULL ? PyTuple_GET_SIZE(names) : 0);
    PyObject *few[FEW + 2], **room = all <= FEW ? few : PyMem_Malloc((size_t)(all + 2) * sizeof *room);
    if (room == NULL)
        return PyErr_NoMemory();
    PyObject *module = Py_NewRef(PyWeakref_GetObject(w->module)); /* the forward may drop the module */
    room[1] = module;
    for (Py_ssize_t n = 0; n < all; n++)
        room[2 + n] = args[n];
    PyObject *result = call(w, room + 1, (size_t)(given + 1) | PY_VECTORCALL_ARGUMENTS_OFFSET, names);
    if (room != few)
        PyMem_Free(room);
    core_let_go(module);
    return result;
}

static PyObject *watched_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    const Watched *w = (const Watched *)self;
    return (w->module != NULL ? call_of : call)(w, args, nargsf, names);
}

static int watched_traverse(PyObject *self, visitproc visit, void *arg)
{
    Watched *w = (Watched *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(w->function);
    Py_VISIT(w->checked);
    Py_VISIT(w->followed);
    Py_VISIT(w->module);
    Py_VISIT(w->rows.context);
    return 0;
}

/* There is no tp_clear: the functions must exist as long as this callable can be called. The garbage collector can
 * break a reference cycle at its other objects. */
static void watched_dealloc(PyObject *self)
{
    Watched *w = (Watched *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(w->function);
    Py_XDECREF(w->checked);
    Py_XDECREF(w->followed);
    Py_XDECREF(w->module);
    Py_XDECREF(w->rows.context);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyType_Slot watched_slots[] = {
    {Py_tp_dealloc, watched_dealloc},
    {Py_tp_traverse, watched_traverse},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, core_callable_members},
    {Py_tp_doc, "A module's forward; each call is a span."},
    {0, NULL},
};
PyType_Spec core_watched_spec = {
    "brick_agent._core.Watched", sizeof(Watched), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION, watched_slots,
};

PyObject *core_watched(PyObject *module, PyObject *args)
{
    PyObject *function, *b, *layer, *checked, *of = Py_None, *context = Py_None, *followed = Py_None;
    unsigned long long rate;
    CoreRows rows = {.turns = 0};
    if (!PyArg_ParseTuple(args, "OO!OOK|OOIIO:watched", &function, core_state.brick_type, &b, &layer, &checked, &rate, &of,
                          &context, &rows.turn, &rows.turns, &followed))
        return NULL;
    uint32_t index = UINT32_MAX;
    if (layer != Py_None && core_to_layer(layer, &index) != 0)
        return NULL;
    Watched *w = PyObject_GC_New(Watched, core_state.watched_type);
    if (w == NULL)
        return NULL;
    w->vectorcall = watched_call;
    w->function = Py_NewRef(function);
    w->checked = checked != Py_None ? Py_NewRef(checked) : NULL;
    w->followed = followed != Py_None ? Py_NewRef(followed) : NULL;
    w->module = of != Py_None ? Py_NewRef(of) : NULL;
    w->brick = (Brick *)b;
    w->layer = index;
    w->rate = rate < UINT32_MAX ? (uint32_t)rate : UINT32_MAX;
    rows.context = context != Py_None ? Py_NewRef(context) : NULL;
    w->rows = rows;
    PyObject_GC_Track((PyObject *)w);
    return (PyObject *)w;
}

PyObject *core_step_of(PyObject *module, PyObject *args)
{
    uint64_t step = 0;
    unsigned long long filled;
    PyObject *tensors;
    if (!PyArg_ParseTuple(args, "OK:_step_of", &tensors, &filled))
        return NULL;
    if (brick_off_here() || brick_in_step(core_key()))
        Py_RETURN_NONE;
    PyObject *all = PySequence_Tuple(tensors);
    for (Py_ssize_t n = 0; all != NULL && n < PyTuple_GET_SIZE(all); n++) {
        CoreTensor t;
        if (core_tensor_hold(PyTuple_GET_ITEM(all, n), &t) != 0)
            break;
        Py_BEGIN_ALLOW_THREADS
        step = brick_step_given(step, &t.tensor);
        Py_END_ALLOW_THREADS
        core_tensor_release(&t);
    }
    Py_XDECREF(all);
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception))
        return NULL;
    PyErr_Clear();
    return PyLong_FromUnsignedLongLong(brick_step_after(step, filled));
}
