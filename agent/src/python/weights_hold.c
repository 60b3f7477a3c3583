/* python/weights_hold.c - holds one watched tensor while the writer reads it.
 *
 * Owns the ways to find a tensor, to unpack it and to copy it from a device, and the reason why a tensor cannot be
 * read. Must not know which tensors are watched. Invariant: between two slices, no tensor is held.
 */
#include "weights_watched.h"
#include "methods.h"

#include <stdio.h>

void core_weights_forget_unpacked(CoreWeights *w)
{
    core_let_go(w->unpacked);
    w->unpacked = NULL;
}

/* Keeps a tensor that was unpacked or copied, and returns a new reference. Unpacking takes long, so it is done once for
 * all slices of a tensor. */
static PyObject *unpacked(CoreWeights *w, uint64_t number, PyObject *read)
{
    core_weights_forget_unpacked(w);
    w->unpacked = read;
    w->unpacked_of = number;
    return Py_XNewRef(read);
}

/* Returns the tensor as a new reference. Returns NULL if it no longer exists, or with an exception set. */
static PyObject *find(CoreWeights *w, uint64_t number)
{
    const struct entry *e = &w->entries[number];
    if (w->unpacked != NULL && w->unpacked_of == number)
        return Py_NewRef(w->unpacked);
    if (e->read != NULL) {
        core_weights_forget_unpacked(w);
        PyObject *read = PyObject_CallNoArgs(e->read);
        return read != Py_None ? unpacked(w, number, read) : NULL;
    }
    if (w->mapping != NULL) {
        PyObject *found = PyObject_GetItem(w->mapping, e->name);
        if (found == NULL && PyErr_ExceptionMatches(PyExc_KeyError))
            PyErr_Clear();
        return found;
    }
    if (e->place.of != NULL)
        return core_place_find(&e->place);
    PyErr_SetString(PyExc_ValueError, "brick_agent: the module did not return all of its tensors");
    return NULL;
}

/* Stores why the first unreadable tensor cannot be read. Clears the exception, unless it is an interrupt. */
static void note_why(CoreWeights *w)
{
    const CoreRaised raised = core_put_aside();
    PyObject *message = raised.value != NULL ? PyObject_Str(raised.value) : NULL;
    PyObject *ascii = message != NULL ? PyObject_ASCII(message) : NULL; /* ASCII has no line break */
    const char *text = ascii != NULL ? PyUnicode_AsUTF8(ascii) : NULL;
    snprintf(w->why, sizeof w->why, "%s", text != NULL ? text : "it raised");
    if (PyErr_Occurred() && !core_is_interrupt())
        PyErr_Clear();
    core_let_go(message);
    core_let_go(ascii);
    core_forget(raised);
}

static bool is_load(const CoreWeights *w) { return w->loader == PyThreadState_Get(); }

static enum brick_held failed(CoreWeights *w)
{
    core_let_go(w->object);
    w->object = NULL;
    if (!PyErr_Occurred())
        return BRICK_GONE;
    if (core_is_interrupt())
        return BRICK_NOT_NOW;
    if (is_load(w) && w->why[0] == '\0')
        note_why(w);
    else
        PyErr_Clear();
    return PyErr_Occurred() ? BRICK_NOT_NOW : BRICK_UNREADABLE;
}

/* Returns whether an object that could not be held can be copied from its device. If it can be copied, clears the
 * exception. */
static bool can_be_copied(const CoreWeights *w)
{
    const CoreRaised refused = core_put_aside(); /* because a look-up would clear the exception */
    if (w->held.is_on_device && core_torch_is_tensor(w->object)) {
        core_forget(refused);
        return true;
    }
    core_put_back(refused);
    return false;
}

/* Copies the object from its device and holds the copy. Returns 0, or -1 with an exception set. */
static int hold_copy(CoreWeights *w, uint64_t number)
{
    core_weights_forget_unpacked(w); /* never keep two copies at the same time */
    PyObject *copy = core_torch_host_copy(w->object);
    if (copy == NULL)
        return -1;
    Py_SETREF(w->object, unpacked(w, number, copy));
    return core_tensor_hold(w->object, &w->held);
}

enum brick_held core_weights_hold(void *host, uint64_t number, struct brick_tensor *tensor)
{
    CoreWeights *w = host;
    w->unlocked = NULL; /* in a forked child, this may be a state of the parent's thread */
    if (is_load(w) && PyErr_CheckSignals() != 0) /* the host must get this exception */
        return BRICK_NOT_NOW;
    w->object = find(w, number);
    if (w->object == Py_NotImplemented) {
        Py_CLEAR(w->object);
        core_weights_forget_unpacked(w);
        return BRICK_SAME;
    }
    if (w->object == NULL)
        return failed(w);
    if (core_tensor_hold(w->object, &w->held) != 0) {
        if (!can_be_copied(w))
            return failed(w);
        w->weights.each[number].seldom = 1;
        if (!w->weights.seldom) {
            Py_CLEAR(w->object);
            return BRICK_SELDOM;
        }
        if (hold_copy(w, number) != 0)
            return failed(w);
    }
    *tensor = w->held.tensor;
    if (is_load(w) && core_tensor_large(tensor))
        w->unlocked = PyEval_SaveThread();
    return BRICK_HELD;
}

void core_weights_release(void *host, uint64_t number)
{
    CoreWeights *w = host;
    if (w->unlocked != NULL) {
        PyEval_RestoreThread(w->unlocked);
        w->unlocked = NULL;
    }
    core_tensor_release(&w->held);
    Py_CLEAR(w->object);
}
