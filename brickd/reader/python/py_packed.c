/* python/py_packed.c - brickd.shm._reader.Packed: a compressed array of summaries. It is unpacked only while its buffer
 * is in use. */
#include "../core/summary_codec.h"
#include "py_types.h"

/* An array has at most this many rows: one for each path, and a second one for the path's bounded times. */
#define ROWS_MAX (2 * (int64_t)BRICK_NUMBERS_MAX)

enum { WORDS = sizeof(struct brick_summary) / sizeof(uint64_t) };

typedef struct {
    PyObject_HEAD
    PyObject *form; /* the packed bytes */
    Py_ssize_t rows;
} Packed;

/* Creates a Packed, which takes over the reference to the packed bytes `form`. */
static PyObject *packed_with(PyTypeObject *type, PyObject *form, Py_ssize_t rows)
{
    Packed *p = form != NULL ? (Packed *)type->tp_alloc(type, 0) : NULL;
    if (p == NULL) {
        Py_XDECREF(form);
        return NULL;
    }
    p->form = form;
    p->rows = rows;
    return (PyObject *)p;
}

Py_ssize_t summaries_in(const Py_buffer *buffer)
{
    if (buffer->len % (Py_ssize_t)sizeof(struct brick_summary) == 0)
        return buffer->len / (Py_ssize_t)sizeof(struct brick_summary);
    PyErr_Format(PyExc_ValueError, "%zd bytes are not an array of summaries of %zu bytes each", buffer->len,
                 sizeof(struct brick_summary));
    return -1;
}

PyObject *packed_of(struct reader_state *state, const struct brick_summary *summaries, Py_ssize_t count)
{
    size_t words = (size_t)count * WORDS, room = words * BRICK_PACKED_MAX;
    if (count > ROWS_MAX)
        return PyErr_Format(PyExc_ValueError, "%zd summaries, expected at most %lld", count, (long long)ROWS_MAX);
    uint8_t *packed = scratch_take(state, room);
    if (packed == NULL)
        return NULL;
    size_t size = brick_pack((const uint64_t *)(const void *)summaries, words, packed);
    PyObject *form = PyBytes_FromStringAndSize((const char *)packed, (Py_ssize_t)size);
    scratch_give(state, packed, room);
    return packed_with(state->packed, form, count);
}

static PyObject *packed_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"bytes", NULL};
    Py_buffer bytes;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "y*:Packed", names, &bytes))
        return NULL;
    Py_ssize_t count = summaries_in(&bytes);
    PyObject *packed = count >= 0 ? packed_of(PyType_GetModuleState(type), bytes.buf, count) : NULL;
    PyBuffer_Release(&bytes);
    return packed;
}

static PyObject *packed_from_form(PyObject *type, PyObject *form)
{
    if (!PyBytes_Check(form))
        return PyErr_Format(PyExc_TypeError, "the packed summaries must be bytes, not %s", Py_TYPE(form)->tp_name);
    Py_ssize_t size = PyBytes_GET_SIZE(form);
    int64_t words = brick_packed_words((const uint8_t *)PyBytes_AS_STRING(form), (size_t)size);
    if (words < 0 || words % WORDS != 0 || words / WORDS > ROWS_MAX)
        return PyErr_Format(PyExc_ValueError, "%zd bytes are not a packed array of at most %lld summaries", size,
                            (long long)ROWS_MAX);
    return packed_with((PyTypeObject *)type, Py_NewRef(form), (Py_ssize_t)(words / WORDS));
}

static void packed_dealloc(PyObject *self)
{
    Py_DECREF(((Packed *)self)->form);
    plain_dealloc(self);
}

static PyObject *packed_form(PyObject *self, PyObject *unused) { return Py_NewRef(((Packed *)self)->form); }

static Py_ssize_t packed_length(PyObject *self) { return ((Packed *)self)->rows * (Py_ssize_t)sizeof(struct brick_summary); }

void packed_unpack(PyObject *self, struct brick_summary *into)
{
    const PyObject *form = ((Packed *)self)->form;
    brick_unpack((const uint8_t *)PyBytes_AS_STRING(form), (size_t)PyBytes_GET_SIZE(form), (uint64_t *)(void *)into);
}

static int packed_look(PyObject *self, Py_buffer *view, int flags)
{
    struct reader_state *state = PyType_GetModuleState(Py_TYPE(self));
    void *rows = scratch_take(state, (size_t)packed_length(self));
    if (rows == NULL) {
        view->obj = NULL;
        return -1;
    }
    packed_unpack(self, rows);
    if (PyBuffer_FillInfo(view, self, rows, packed_length(self), 1, flags) != 0) {
        scratch_give(state, rows, (size_t)packed_length(self));
        return -1;
    }
    view->internal = rows;
    return 0;
}

static void packed_look_away(PyObject *self, Py_buffer *view)
{
    scratch_give(PyType_GetModuleState(Py_TYPE(self)), view->internal, (size_t)packed_length(self));
}

static PyObject *packed_compare(PyObject *self, PyObject *other, int how)
{
    if (Py_TYPE(self) != Py_TYPE(other))
        Py_RETURN_NOTIMPLEMENTED;
    return PyObject_RichCompare(((Packed *)self)->form, ((Packed *)other)->form, how);
}

static Py_hash_t packed_hash(PyObject *self) { return PyObject_Hash(((Packed *)self)->form); }

static PyMethodDef packed_methods[] = {
    {"of", packed_from_form, METH_O | METH_CLASS,
     "Create a Packed from packed bytes; ValueError: the bytes are invalid."},
    {"form", packed_form, METH_NOARGS, "The packed bytes."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot packed_slots[] = {
    {Py_tp_new, packed_new},
    {Py_tp_dealloc, packed_dealloc},
    {Py_tp_methods, packed_methods},
    {Py_tp_richcompare, packed_compare},
    {Py_tp_hash, packed_hash},
    {Py_sq_length, packed_length},
    {Py_bf_getbuffer, packed_look},
    {Py_bf_releasebuffer, packed_look_away},
    {Py_tp_doc, "Packed(bytes): a packed array of summaries; its buffer has the unpacked array."},
    {0, NULL},
};
PyType_Spec packed_spec = {"brickd.shm._reader.Packed", sizeof(Packed), 0, Py_TPFLAGS_DEFAULT, packed_slots};
