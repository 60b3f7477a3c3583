/* python/brick.c - names become handles, and the first use of one opens the segment. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

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

bool core_strict(void)
{
    const char *strict = getenv("BRICKD_STRICT");
    return strict != NULL && strcmp(strict, "1") == 0;
}

void core_note_program(void)
{
    if (brick_state() == BRICK_NEW)
        program_name(core_state.program, sizeof core_state.program);
}

static enum brick_state open_segment(struct brick_config *config)
{
    const char *service = getenv("BRICKD_SERVICE");
    if (config->service == NULL && (service == NULL || *service == 0))
        config->service = core_state.program;
    enum brick_state now = brick_init(config);
    if (now == BRICK_ON) /* other threads may be here as well, without the interpreter lock */
        for (unsigned n = __atomic_exchange_n(&core_state.refused, 0, __ATOMIC_RELAXED); n > 0; n--)
            brick_name("", 0, NULL); /* counts */
    return now;
}

int core_open(struct brick_config *config)
{
    if (open_segment(config) != BRICK_FAILED || !core_strict())
        return 0;
    PyErr_Format(PyExc_RuntimeError, "brick_agent: %s (BRICKD_STRICT=1)", brick_problem());
    return -1;
}

/* The handle's number, at its first use. While nothing is recorded it stays
 * unresolved. Its strings are as UTF-8 already: reading them asks for nothing. */
static void number_now(Brick *b)
{
    if (brick_state() != BRICK_ON)
        return;
    Py_ssize_t length;
    const char *name = PyUnicode_AsUTF8AndSize(b->name, &length);
    const char *category = b->category == Py_None ? NULL : PyUnicode_AsUTF8(b->category);
    __atomic_store_n(&b->number, brick_name(name, (size_t)length, category), __ATOMIC_RELAXED);
}

int core_resolve(Brick *b)
{
    struct brick_config config = {0};
    if (brick_state() == BRICK_NEW && core_open(&config) != 0)
        return -1;
    number_now(b);
    return 0;
}

void core_open_unlocked(void)
{
    struct brick_config config = {0};
    if (brick_state() == BRICK_NEW)
        open_segment(&config);
}

void core_resolve_unlocked(Brick *b)
{
    core_open_unlocked();
    number_now(b);
}

/* ---- handles ----------------------------------------------------------- */

PyObject *core_text(PyObject *value)
{
    if (!PyUnicode_Check(value)) {
        if (core_strict()) {
            PyErr_Format(PyExc_TypeError, "brick_agent: a name must be a string, not %R (BRICKD_STRICT=1)", value);
            return NULL;
        }
        return PyUnicode_FromFormat("<%s>", Py_TYPE(value)->tp_name);
    }
    if (PyUnicode_AsUTF8(value) != NULL)
        return PyUnicode_FromObject(value); /* a plain str, whatever its class may do */
    PyErr_Clear();
    PyObject *bytes = PyUnicode_AsEncodedString(value, "utf-8", "backslashreplace");
    PyObject *text = bytes != NULL ? PyUnicode_FromEncodedObject(bytes, "utf-8", "strict") : NULL;
    Py_XDECREF(bytes);
    return text;
}

Brick *core_handle_new(PyObject *name, PyObject *category)
{
    core_note_program();
    Brick *b = PyUnicode_AsUTF8(name) != NULL ? PyObject_New(Brick, core_state.brick_type) : NULL;
    if (b == NULL)
        return NULL;
    b->vectorcall = core_brick_call;
    b->number = BRICK_UNNAMED;
    b->name = Py_NewRef(name);
    b->category = Py_NewRef(category);
    b->plain = core_span_new(b);
    if (b->plain == NULL) {
        Py_DECREF(b);
        return NULL;
    }
    b->plain->vectorcall = core_plain_call; /* it is never given back, so no other span gets it */
    return b;
}

Brick *core_handle(PyObject *value, PyObject *category)
{
    PyObject *found = NULL;
    if (PyUnicode_CheckExact(value) && (found = PyDict_GetItemWithError(core_state.handles, value)) != NULL
        && category == Py_None)
        return (Brick *)found;
    PyErr_Clear();
    PyObject *name = core_text(value);
    PyObject *kind = name == NULL || category == Py_None ? Py_NewRef(Py_None) : core_text(category);
    if (name == NULL || kind == NULL)
        goto failed;
    if (kind != Py_None)
        Py_SETREF(kind, PyObject_CallMethod(kind, "lower", NULL));
    if (kind == NULL || (kind != Py_None && PyUnicode_AsUTF8(kind) == NULL))
        goto failed;
    Brick *b = (Brick *)PyDict_GetItemWithError(core_state.handles, name);
    if (b == NULL) {
        const char *wanted = NULL;
        if (PyUnicode_GET_LENGTH(name) == 0)
            wanted = "a name must not be empty";
        else if (PyDict_GET_SIZE(core_state.handles) >= (Py_ssize_t)brick_names_room() - 1) /* name 0 is nobody's */
            wanted = "no more names than BRICKD_NAMES";
        if (wanted != NULL) {
            if (core_complain(wanted, name) != 0)
                goto failed;
            if (brick_state() == BRICK_ON)
                brick_name("", 0, NULL); /* counts */
            else
                __atomic_fetch_add(&core_state.refused, 1, __ATOMIC_RELAXED);
            b = core_state.other;
        } else {
            b = core_handle_new(name, kind);
            if (b == NULL || PyDict_SetItem(core_state.handles, name, (PyObject *)b) != 0)
                goto failed;
        }
    } else if (b->category == Py_None && kind != Py_None) { /* the first one declared stays */
        Py_SETREF(b->category, Py_NewRef(kind));
        if (b->number != BRICK_UNNAMED && core_resolve(b) != 0)
            goto failed;
    }
    Py_DECREF(name);
    Py_DECREF(kind);
    return b;
failed:
    Py_XDECREF(name);
    Py_XDECREF(kind);
    if (core_strict())
        return NULL;
    PyErr_Clear();
    return core_state.other;
}
