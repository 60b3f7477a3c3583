/* python/brick.c - creates handles: one per name, for the lifetime of the process. */
#include "brick.h"
#include "arguments.h"
#include "opening.h"
#include "span.h"

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
    b->plain->vectorcall = core_plain_call; /* this span is never freed or used for another purpose */
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
        const bool is_empty = PyUnicode_GET_LENGTH(name) == 0;
        if (is_empty || PyDict_GET_SIZE(core_state.handles) >= (Py_ssize_t)brick_names_room() - 1) { /* name 0 is "other" */
            if (core_complain(is_empty ? "a name must have at least one character" : "the table of names is full (raise BRICKD_NAMES), so a name is recorded as 'other'", name) != 0)
                goto failed;
            if (brick_state() == BRICK_ON)
                brick_name("", 0, NULL); /* counts the refusal */
            else
                __atomic_fetch_add(&core_state.refused, 1, __ATOMIC_RELAXED);
            b = core_state.other;
        } else {
            b = core_handle_new(name, kind);
            if (b == NULL || PyDict_SetItem(core_state.handles, name, (PyObject *)b) != 0)
                goto failed;
        }
    } else if (b->category == Py_None && kind != Py_None) { /* the first declared category is final */
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
