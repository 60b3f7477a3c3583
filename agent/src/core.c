/* core.c - brick_agent._core: the writer's face in CPython.
 *
 * Owns handles (Brick), the context managers they give out (Span, Layer) and
 * the translation of Python's contexts into the writer's keys. Knows nothing of
 * shared memory. On the record path it calls no Python code, allocates nothing
 * and raises nothing.
 *
 * A `with` statement looks up __enter__ and __exit__ and calls what it finds.
 * A method would be bound for each lookup, an allocation twice per span; so
 * both names are descriptors that return an object which is there already: the
 * manager itself, whose call with no argument enters and with the three of an
 * exception leaves.
 *
 * Built per Python version: the thread state's context and vectorcall are not
 * in the limited API.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include "brick_agent.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define UNRESOLVED UINT32_MAX
#define SPARE_SPANS 64 /* kept for the next `b(elements=n)`, which then allocates nothing */

typedef struct Span Span;

/* A handle: a name with its number. Interned, and immortal: at most as many as
 * the segment has names. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    uint32_t number; /* UNRESOLVED until its first use: making a handle opens nothing */
    PyObject *name;
    PyObject *category; /* or None */
    Span *plain;        /* what `with b:` uses */
} Brick;

/* One `with`: a brick with its amounts. */
struct Span {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Brick *brick; /* immortal: not counted */
    uint64_t elements, bytes, step;
    bool has_step;
};

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    uint32_t layer;
} Layer;

/* __enter__ or __exit__ of a type. */
typedef struct {
    PyObject_HEAD
} Manager;

typedef struct {
    PyTypeObject *brick_type, *span_type, *layer_type, *manager_type;
    PyObject *handles; /* dict: name -> Brick */
    Brick *other;      /* what a name gets when there is no more room */
    Span *spare[SPARE_SPANS];
    int spares;
    unsigned swept;
    bool strict;
} State;

/* The interpreter's state of this module; process-wide, as the segment is. */
static State state;

/* ---- keys: on whose behalf --------------------------------------------- */

/* The context of the running task, greenlet or thread. A thread that has none
 * yet is given one, so that a greenlet started later is told from it. */
static inline const void *current_key(void)
{
    PyObject *context = PyThreadState_Get()->context;
    if (__builtin_expect(context == NULL, 0)) {
        PyObject *copy = PyContext_CopyCurrent();
        if (copy == NULL)
            PyErr_Clear();
        Py_XDECREF(copy);
        context = PyThreadState_Get()->context;
    }
    return context;
}

/* We hold the only reference: the task ended with a span open. */
static int key_is_dead(const void *key)
{
    return key != NULL && Py_REFCNT((PyObject *)(uintptr_t)key) == 1;
}

static void key_drop(const void *key)
{
    Py_XDECREF((PyObject *)(uintptr_t)key);
}

/* Lies in the thread state's dictionary, so that it dies with the thread while
 * the interpreter lock is held: only then can references to keys be given up. */
static void thread_ended(PyObject *capsule)
{
    if (PyCapsule_GetContext(capsule) == (void *)(uintptr_t)PyThread_get_thread_ident())
        brick_thread_exit(key_drop);
}

static void watch_thread(void)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *dictionary = PyThreadState_GetDict();
    PyObject *capsule = dictionary != NULL ? PyCapsule_New(&state, "brick_agent.thread", thread_ended) : NULL;
    if (capsule == NULL || PyCapsule_SetContext(capsule, (void *)(uintptr_t)PyThread_get_thread_ident()) != 0
        || PyDict_SetItemString(dictionary, "brick_agent", capsule) != 0)
        PyErr_Clear();
    Py_XDECREF(capsule);
    PyErr_Restore(type, value, traceback);
}

/* After a begin. Never fails; an error of the caller's is left as it is. */
static void begun(unsigned outcome, const void *key)
{
    if (outcome & BRICK_FIRST) {
        Py_XINCREF((PyObject *)(uintptr_t)key);
        if ((++state.swept & 63) == 0)
            key_drop(brick_thread_sweep(key_is_dead));
    }
    if (__builtin_expect(outcome & BRICK_JOINED, 0))
        watch_thread();
}

static PyObject *finish(unsigned outcome, const void *key, PyObject *result)
{
    if (outcome & BRICK_LAST)
        key_drop(key);
    if (__builtin_expect(outcome & BRICK_JOINED, 0))
        watch_thread();
    if (__builtin_expect((outcome & BRICK_UNMATCHED) && state.strict, 0)) {
        PyErr_SetString(PyExc_RuntimeError, "brick_agent: a span ended that had not begun here (BRICKD_STRICT=1)");
        return NULL;
    }
    return Py_NewRef(result);
}

/* ---- opening ----------------------------------------------------------- */

/* "app" for /srv/app.py, "worker" for /srv/worker/__main__.py, "python" for a prompt. */
static void program_name(char *name, size_t size)
{
    const char *path = "";
    PyObject *argv = PySys_GetObject("argv"), *first;
    if (argv != NULL && PyList_Check(argv) && PyList_GET_SIZE(argv) > 0
        && PyUnicode_Check(first = PyList_GET_ITEM(argv, 0)) && (path = PyUnicode_AsUTF8(first)) == NULL) {
        PyErr_Clear();
        path = "";
    }
    const char *end = path + strlen(path), *slash = strrchr(path, '/');
    if (slash != NULL && strcmp(slash, "/__main__.py") == 0) {
        end = slash;
        while (slash > path && slash[-1] != '/')
            slash--;
        path = slash;
    } else if (slash != NULL) {
        path = slash + 1;
    }
    if (end - path > 3 && strcmp(end - 3, ".py") == 0)
        end -= 3;
    size_t length = (size_t)(end - path) < size ? (size_t)(end - path) : size - 1;
    memcpy(name, path, length);
    name[length] = 0;
    if (length == 0 || name[0] == '-')
        strcpy(name, "python");
}

static enum brick_state open_agent(struct brick_config *config)
{
    char name[128];
    const char *service = getenv("BRICKD_SERVICE");
    if (config->service == NULL && (service == NULL || *service == 0)) {
        program_name(name, sizeof name);
        config->service = name;
    }
    const char *strict = getenv("BRICKD_STRICT");
    state.strict = strict != NULL && strcmp(strict, "1") == 0;
    return brick_init(config);
}

/* The handle's number, at its first use. While nothing is recorded it stays unresolved. */
static void resolve(Brick *b)
{
    struct brick_config config = {0};
    enum brick_state now = brick_state();
    if (now == BRICK_NEW)
        now = open_agent(&config);
    if (now != BRICK_ON)
        return;
    Py_ssize_t length, kind_length;
    const char *name = PyUnicode_AsUTF8AndSize(b->name, &length);
    const char *category = b->category == Py_None ? NULL : PyUnicode_AsUTF8AndSize(b->category, &kind_length);
    b->number = brick_name(name, (size_t)length, category);
}

/* ---- record path ------------------------------------------------------- */

static inline void brick_enter(Brick *b, const uint64_t *step)
{
    if (__builtin_expect(b->number == UNRESOLVED, 0)) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        resolve(b);
        PyErr_Restore(type, value, traceback);
    }
    const void *key = current_key();
    unsigned outcome = brick_begin(b->number, key, step);
    if (outcome)
        begun(outcome, key);
}

static inline PyObject *brick_leave(Brick *b, uint64_t elements, uint64_t bytes)
{
    const void *key = current_key();
    unsigned outcome = brick_end(b->number, key, elements, bytes);
    if (outcome)
        return finish(outcome, key, Py_None);
    return Py_NewRef(Py_None);
}

static PyObject *span_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    Span *s = (Span *)self;
    if (PyVectorcall_NARGS(nargsf) != 0)
        return brick_leave(s->brick, s->elements, s->bytes);
    brick_enter(s->brick, s->has_step ? &s->step : NULL);
    return Py_NewRef((PyObject *)s->brick);
}

static PyObject *layer_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    const void *key = current_key();
    if (PyVectorcall_NARGS(nargsf) != 0)
        return finish(brick_layer_end(key), key, Py_None);
    begun(brick_layer_begin(((Layer *)self)->layer, key), key);
    return Py_NewRef(self);
}

/* ---- amounts ----------------------------------------------------------- */

static int complain_strictly(const char *what, PyObject *value)
{
    if (!state.strict) {
        PyErr_Clear();
        return 0;
    }
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_ValueError, "brick_agent: %s, not %R (BRICKD_STRICT=1)", what, value);
    return -1;
}

static int to_amount(PyObject *value, uint64_t *amount)
{
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (__builtin_expect(number >= 0 && !overflow, 1)) {
        *amount = (uint64_t)number;
        return 0;
    }
    *amount = BRICK_BAD_AMOUNT;
    return complain_strictly("an amount must be an integer from 0 to 2^48", value);
}

/* An integer as it is, a string by its FNV-1a hash. */
static int to_step(PyObject *value, Span *s)
{
    Py_ssize_t length;
    s->has_step = value != Py_None;
    s->step = 0;
    if (PyLong_Check(value)) {
        s->step = PyLong_AsUnsignedLongLongMask(value);
        return 0;
    }
    if (value == Py_None)
        return 0;
    const char *text = PyUnicode_Check(value) ? PyUnicode_AsUTF8AndSize(value, &length) : NULL;
    if (text == NULL) {
        s->has_step = false;
        return complain_strictly("a step must be an integer or a string", value);
    }
    s->step = UINT64_C(0xCBF29CE484222325);
    for (Py_ssize_t i = 0; i < length; i++)
        s->step = (s->step ^ (uint8_t)text[i]) * UINT64_C(0x100000001B3);
    return 0;
}

static Span *span_new(Brick *b)
{
    Span *s;
    if (state.spares > 0) {
        s = state.spare[--state.spares];
        _Py_NewReference((PyObject *)s);
    } else {
        s = PyObject_New(Span, state.span_type);
        if (s == NULL)
            return NULL;
        s->vectorcall = span_call;
    }
    s->brick = b;
    s->elements = s->bytes = s->step = 0;
    s->has_step = false;
    return s;
}

static void span_dealloc(PyObject *self)
{
    if (state.spares < SPARE_SPANS) {
        state.spare[state.spares++] = (Span *)self;
        return;
    }
    PyTypeObject *type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* One keyword of a span: 0, or -1 with an exception set. `category` is taken by span() alone. */
static int span_keyword(Span *s, PyObject *name, PyObject *value, PyObject **category)
{
    if (PyUnicode_CompareWithASCIIString(name, "elements") == 0)
        return to_amount(value, &s->elements);
    if (PyUnicode_CompareWithASCIIString(name, "bytes") == 0)
        return to_amount(value, &s->bytes);
    if (PyUnicode_CompareWithASCIIString(name, "step") == 0)
        return to_step(value, s);
    if (category != NULL && PyUnicode_CompareWithASCIIString(name, "category") == 0) {
        *category = value;
        return 0;
    }
    PyErr_Format(PyExc_TypeError, "brick_agent: unexpected keyword argument '%U'", name);
    return -1;
}

static PyObject *brick_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    Py_ssize_t given = PyVectorcall_NARGS(nargsf);
    if (given != 0) {
        PyErr_SetString(PyExc_TypeError, "brick_agent: a brick takes keywords only: elements, bytes, step");
        return NULL;
    }
    Span *s = span_new((Brick *)self);
    if (s == NULL)
        return NULL;
    for (Py_ssize_t i = 0; names != NULL && i < PyTuple_GET_SIZE(names); i++)
        if (span_keyword(s, PyTuple_GET_ITEM(names, i), args[i], NULL) != 0) {
            Py_DECREF(s);
            return NULL;
        }
    return (PyObject *)s;
}

static PyObject *brick_start(PyObject *self, PyObject *unused)
{
    brick_enter((Brick *)self, NULL);
    Py_RETURN_NONE;
}

static PyObject *brick_stop(PyObject *self, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    uint64_t amounts[2] = {0, 0};
    if (__builtin_expect(given > 0 || names != NULL, 0)) {
        if (given > 2) {
            PyErr_SetString(PyExc_TypeError, "brick_agent: stop takes elements and bytes");
            return NULL;
        }
        for (Py_ssize_t i = 0; i < given; i++)
            if (to_amount(args[i], &amounts[i]) != 0)
                return NULL;
        for (Py_ssize_t i = 0; names != NULL && i < PyTuple_GET_SIZE(names); i++) {
            PyObject *name = PyTuple_GET_ITEM(names, i);
            bool is_bytes = PyUnicode_CompareWithASCIIString(name, "bytes") == 0;
            if (!is_bytes && PyUnicode_CompareWithASCIIString(name, "elements") != 0) {
                PyErr_Format(PyExc_TypeError, "brick_agent: unexpected keyword argument '%U'", name);
                return NULL;
            }
            if (to_amount(args[given + i], &amounts[is_bytes]) != 0)
                return NULL;
        }
    }
    return brick_leave((Brick *)self, amounts[0], amounts[1]);
}

/* ---- handles ----------------------------------------------------------- */

/* A name that UTF-8 can hold; a new reference, or NULL with an exception set. */
static PyObject *to_text(PyObject *value)
{
    if (!PyUnicode_Check(value)) {
        if (state.strict) {
            PyErr_Format(PyExc_TypeError, "brick_agent: a name must be a string, not %R (BRICKD_STRICT=1)", value);
            return NULL;
        }
        return PyUnicode_FromFormat("<%s>", Py_TYPE(value)->tp_name);
    }
    if (PyUnicode_AsUTF8(value) != NULL)
        return Py_NewRef(value);
    PyErr_Clear();
    PyObject *bytes = PyUnicode_AsEncodedString(value, "utf-8", "backslashreplace");
    PyObject *text = bytes != NULL ? PyUnicode_FromEncodedObject(bytes, "utf-8", "strict") : NULL;
    Py_XDECREF(bytes);
    return text;
}

static Brick *brick_make(PyObject *name, PyObject *category)
{
    Brick *b = PyObject_New(Brick, state.brick_type);
    if (b == NULL)
        return NULL;
    b->vectorcall = brick_call;
    b->number = UNRESOLVED;
    b->name = Py_NewRef(name);
    b->category = Py_NewRef(category);
    b->plain = span_new(b);
    if (b->plain == NULL) {
        Py_DECREF(b);
        return NULL;
    }
    return b;
}

/* The handle of a name, made at its first mention: a borrowed reference. Out of
 * memory or of room for names it is "other", and the loss is counted. */
static Brick *handle_of(PyObject *value, PyObject *category)
{
    PyObject *found = NULL;
    if (PyUnicode_CheckExact(value) && (found = PyDict_GetItemWithError(state.handles, value)) != NULL
        && category == Py_None)
        return (Brick *)found;
    PyErr_Clear();
    PyObject *name = to_text(value);
    PyObject *kind = name == NULL || category == Py_None ? Py_NewRef(Py_None) : to_text(category);
    if (name == NULL || kind == NULL)
        goto failed;
    if (kind != Py_None)
        Py_SETREF(kind, PyObject_CallMethod(kind, "lower", NULL));
    if (kind == NULL)
        goto failed;
    Brick *b = (Brick *)PyDict_GetItemWithError(state.handles, name);
    if (b == NULL) {
        uint32_t room = brick_names_room();
        if (PyUnicode_GET_LENGTH(name) == 0 || PyDict_GET_SIZE(state.handles) >= (Py_ssize_t)room) {
            brick_name("", 0, NULL); /* counts the refusal */
            b = state.other;
        } else {
            b = brick_make(name, kind);
            if (b == NULL || PyDict_SetItem(state.handles, name, (PyObject *)b) != 0)
                goto failed;
        }
    } else if (b->category == Py_None && kind != Py_None) { /* the first one declared stays */
        Py_SETREF(b->category, Py_NewRef(kind));
        if (b->number != UNRESOLVED)
            resolve(b);
    }
    Py_DECREF(name);
    Py_DECREF(kind);
    return b;
failed:
    Py_XDECREF(name);
    Py_XDECREF(kind);
    if (state.strict)
        return NULL;
    PyErr_Clear();
    return state.other;
}

static PyObject *core_brick(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"name", "category", NULL};
    PyObject *name, *category = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|O:brick", names, &name, &category))
        return NULL;
    return Py_XNewRef((PyObject *)handle_of(name, category));
}

static PyObject *core_span(PyObject *module, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    if (given != 1) {
        PyErr_SetString(PyExc_TypeError, "brick_agent: span takes one name, then keywords: category, elements, bytes, step");
        return NULL;
    }
    if (names == NULL)
        return Py_XNewRef((PyObject *)handle_of(args[0], Py_None));
    PyObject *category = Py_None;
    Span *s = span_new(NULL);
    if (s == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++)
        if (span_keyword(s, PyTuple_GET_ITEM(names, i), args[1 + i], &category) != 0) {
            Py_DECREF(s);
            return NULL;
        }
    s->brick = handle_of(args[0], category);
    if (s->brick == NULL)
        Py_CLEAR(s);
    return (PyObject *)s;
}

static PyObject *core_layer(PyObject *module, PyObject *index)
{
    uint64_t layer;
    if (to_amount(index, &layer) != 0)
        return NULL;
    Layer *l = PyObject_New(Layer, state.layer_type);
    if (l == NULL)
        return NULL;
    l->vectorcall = layer_call;
    l->layer = layer < UINT32_MAX ? (uint32_t)layer : UINT32_MAX;
    return (PyObject *)l;
}

/* ---- life -------------------------------------------------------------- */

static PyObject *core_init(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"service", "worker", "lanes", "paths", "names", NULL};
    struct brick_config c = {0};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|zz$III:init", names, &c.service, &c.worker, &c.lanes, &c.paths,
                                     &c.names))
        return NULL;
    enum brick_state now = open_agent(&c);
    if (now == BRICK_FAILED && state.strict) {
        PyErr_Format(PyExc_RuntimeError, "brick_agent: %s (BRICKD_STRICT=1)", brick_problem());
        return NULL;
    }
    return PyBool_FromLong(now == BRICK_ON);
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

static void plain_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *manager_of(PyObject *owner)
{
    if (Py_TYPE(owner) == state.brick_type)
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
    if (owner == NULL || (Py_TYPE(owner) != state.brick_type && Py_TYPE(owner) != state.span_type
                          && Py_TYPE(owner) != state.layer_type)) {
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

PyDoc_STRVAR(brick_doc,
"A named unit of work: `with b:`, `with b(elements=n, bytes=m):` or `b.start()` ... `b.stop()`.\n\n"
"Made by brick_agent.brick(). May be used from any thread, task and greenlet at once.");
PyDoc_STRVAR(start_doc,
"start($self, /)\n--\n\nBegin a span of this brick.");
PyDoc_STRVAR(stop_doc,
"stop($self, /, elements=0, bytes=0)\n--\n\n"
"End the youngest open span of this brick in this task.\n\n"
"Spans begun inside it and never ended are counted as abandoned.");

static PyMemberDef brick_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Brick, vectorcall), READONLY, NULL},
    {"name", T_OBJECT, offsetof(Brick, name), READONLY, "What it is called."},
    {"category", T_OBJECT, offsetof(Brick, category), READONLY, "The category declared for it, or None."},
    {NULL, 0, 0, 0, NULL},
};
static PyMethodDef brick_methods[] = {
    {"start", brick_start, METH_NOARGS, start_doc},
    {"stop", (PyCFunction)(void (*)(void))brick_stop, METH_FASTCALL | METH_KEYWORDS, stop_doc},
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

static PyMemberDef span_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Span, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot span_slots[] = {
    {Py_tp_dealloc, span_dealloc},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, span_members},
    {Py_tp_doc, "One span of a brick with its amounts, for one `with` statement."},
    {0, NULL},
};
static PyType_Spec span_spec = {
    "brick_agent.Span", sizeof(Span), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION, span_slots,
};

static PyMemberDef layer_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Layer, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot layer_slots[] = {
    {Py_tp_dealloc, plain_dealloc},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, layer_members},
    {Py_tp_doc, "A scope whose spans know their layer."},
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
        PyObject *manager = (PyObject *)PyObject_New(Manager, state.manager_type);
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
"transfer, scheduler, host; any other is your own. The first one declared for a name stays.");
PyDoc_STRVAR(core_span_doc,
"span(name, /, *, category=None, elements=0, bytes=0, step=None)\n--\n\n"
"`with span(\"prefill\", step=request):` times its body without a handle.\n\n"
"step: an integer or a string that says on whose behalf; spans inside inherit it.");
PyDoc_STRVAR(core_layer_doc,
"layer(index, /)\n--\n\n`with layer(3):` lets the spans inside know their layer.");
PyDoc_STRVAR(core_init_doc,
"init(service=None, worker=None, *, lanes=0, paths=0, names=0)\n--\n\n"
"Open this process's segment now rather than at its first span; True when it records.\n\n"
"Never raises and may be called again; the first call decides. What is not given comes from\n"
"BRICKD_SERVICE, BRICKD_WORKER, BRICKD_LANES, BRICKD_PATHS, BRICKD_NAMES, else from defaults.");
PyDoc_STRVAR(core_shutdown_doc,
"shutdown()\n--\n\nEnd recording in this process for good. Done by itself at exit.");
PyDoc_STRVAR(core_enable_doc, "enable()\n--\n\nRecord again after disable().");
PyDoc_STRVAR(core_disable_doc, "disable()\n--\n\nRecord nothing until enable(). Spans that are open still end.");

static PyMethodDef core_methods[] = {
    {"brick", (PyCFunction)(void (*)(void))core_brick, METH_VARARGS | METH_KEYWORDS, core_brick_doc},
    {"span", (PyCFunction)(void (*)(void))core_span, METH_FASTCALL | METH_KEYWORDS, core_span_doc},
    {"layer", core_layer, METH_O, core_layer_doc},
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
    if (state.handles != NULL) /* imported once more, after somebody emptied sys.modules */
        return PyModule_AddType(module, state.brick_type) | PyModule_AddType(module, state.span_type)
               | PyModule_AddType(module, state.layer_type);
    state.manager_type = add_type(module, &manager_spec, false);
    if (state.manager_type == NULL || (state.brick_type = add_type(module, &brick_spec, true)) == NULL
        || (state.span_type = add_type(module, &span_spec, true)) == NULL
        || (state.layer_type = add_type(module, &layer_spec, true)) == NULL)
        return -1;
    state.handles = PyDict_New();
    PyObject *other = PyUnicode_InternFromString("other");
    if (state.handles == NULL || other == NULL)
        return -1;
    state.other = brick_make(other, Py_None);
    Py_DECREF(other);
    if (state.other == NULL)
        return -1;
    state.other->number = 0;
    return PyDict_SetItem(state.handles, state.other->name, (PyObject *)state.other);
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
