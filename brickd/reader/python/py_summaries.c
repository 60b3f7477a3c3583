/* python/py_summaries.c - brickd.shm._reader.Summaries: one summary for each path; adds spans and workers to them. */
#include "../core/summary_math.h"
#include "py_types.h"

#include <math.h>

typedef struct {
    PyObject_HEAD
    struct brick_summary *summaries;
    Py_ssize_t count;
    PyObject *packed; /* a cached Packed of the current values, or NULL */
} Summaries;

static int grow(Summaries *s, Py_ssize_t count)
{
    if (count <= s->count)
        return 1;
    const size_t bytes = (size_t)count * sizeof *s->summaries;
    struct brick_summary *more;
    if (s->summaries == NULL)
        more = scratch_take(PyType_GetModuleState(Py_TYPE(s)), bytes);
    else if ((more = PyMem_Realloc(s->summaries, bytes)) == NULL)
        PyErr_NoMemory();
    if (more == NULL)
        return 0;
    memset(more + s->count, 0, (size_t)(count - s->count) * sizeof *more);
    s->summaries = more;
    s->count = count;
    return 1;
}

static PyObject *summaries_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"bytes", NULL};
    const struct reader_state *state = PyType_GetModuleState(type);
    PyObject *given = NULL;
    Py_buffer bytes = {.buf = NULL, .len = 0};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O:Summaries", names, &given))
        return NULL;
    const int packed = given != NULL && Py_IS_TYPE(given, state->packed);
    if (packed)
        bytes.len = PyObject_Length(given);
    else if (given != NULL && PyObject_GetBuffer(given, &bytes, PyBUF_SIMPLE) != 0)
        return NULL;
    Py_ssize_t count = summaries_in(&bytes);
    Summaries *s = count >= 0 ? (Summaries *)type->tp_alloc(type, 0) : NULL;
    if (s != NULL && !grow(s, count))
        Py_CLEAR(s);
    if (s != NULL && packed)
        packed_unpack(given, s->summaries);
    else if (s != NULL && bytes.len > 0)
        memcpy(s->summaries, bytes.buf, (size_t)bytes.len);
    for (Py_ssize_t i = 0; s != NULL && i < count; i++) /* a summary without spans becomes zeros */
        if (s->summaries[i].count == 0)
            s->summaries[i] = (struct brick_summary){0};
    if (bytes.buf != NULL)
        PyBuffer_Release(&bytes);
    return (PyObject *)s;
}

static void summaries_dealloc(PyObject *self)
{
    Summaries *s = (Summaries *)self;
    scratch_give(PyType_GetModuleState(Py_TYPE(self)), s->summaries, (size_t)s->count * sizeof *s->summaries);
    Py_XDECREF(s->packed);
    plain_dealloc(self);
}

static PyObject *summaries_add(PyObject *self, PyObject *args)
{
    Summaries *s = (Summaries *)self;
    Py_ssize_t path;
    unsigned long long amounts[3];
    PyObject *given[3];
    if (!PyArg_ParseTuple(args, "nOOO:add", &path, &given[0], &given[1], &given[2]))
        return NULL;
    for (int i = 0; i < 3; i++) {
        amounts[i] = PyLong_AsUnsignedLongLong(given[i]);
        if (amounts[i] == (unsigned long long)-1 && PyErr_Occurred())
            return NULL;
    }
    if (path < 0 || path >= (Py_ssize_t)BRICK_NUMBERS_MAX) {
        PyErr_Format(PyExc_IndexError, "path is %zd, expected 0 to %u", path, BRICK_NUMBERS_MAX - 1);
        return NULL;
    }
    if (!grow(s, path + 1))
        return NULL;
    Py_CLEAR(s->packed);
    brick_summary_add_span(&s->summaries[path], amounts[0], 0, amounts[1], amounts[2]);
    Py_RETURN_NONE;
}

static PyObject *summaries_merge(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"other", "rows", "factor", NULL};
    Summaries *s = (Summaries *)self;
    Py_buffer other, rows;
    double factor = 1.0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "y*y*|d:merge", names, &other, &rows, &factor))
        return NULL;
    int merged = 0;
    Py_ssize_t count = summaries_in(&other), most = -1;
    const struct brick_summary *summary = other.buf;
    const int32_t *row = rows.buf;
    if (count >= 0 && rows.len != count * (Py_ssize_t)sizeof *row)
        PyErr_Format(PyExc_ValueError, "%zd summaries need the same number of rows (int32)", count);
    else if (count >= 0 && !(factor > 0 && isfinite(factor)))
        PyErr_SetString(PyExc_ValueError, "the factor must be a number above 0");
    else if (count >= 0) {
        for (Py_ssize_t i = 0; i < count; i++)
            most = row[i] > most ? row[i] : most;
        merged = grow(s, most + 1);
        Py_CLEAR(s->packed);
    }
    for (Py_ssize_t i = 0; merged && i < count; i++) {
        if (row[i] < 0)
            continue;
        struct brick_summary scaled;
        if (factor != 1.0)
            scaled = brick_summary_scaled(&summary[i], factor);
        brick_summary_add(&s->summaries[row[i]], factor != 1.0 ? &scaled : &summary[i]);
    }
    PyBuffer_Release(&other);
    PyBuffer_Release(&rows);
    return merged ? Py_NewRef(Py_None) : NULL;
}

static PyObject *summaries_subtract(PyObject *self, PyObject *args)
{
    Summaries *s = (Summaries *)self;
    Py_buffer then, rows;
    if (!PyArg_ParseTuple(args, "y*y*:subtract", &then, &rows))
        return NULL;
    Py_ssize_t count = summaries_in(&then);
    const struct brick_summary *summary = then.buf;
    const int32_t *row = rows.buf;
    int fits = count >= 0 && rows.len == count * (Py_ssize_t)sizeof *row;
    if (count >= 0 && !fits)
        PyErr_Format(PyExc_ValueError, "%zd summaries need the same number of rows (int32)", count);
    Py_CLEAR(s->packed);
    for (Py_ssize_t i = 0; fits && i < count; i++)
        if (row[i] >= 0 && row[i] < s->count)
            brick_summary_subtract(&s->summaries[row[i]], &summary[i]);
    PyBuffer_Release(&then);
    PyBuffer_Release(&rows);
    return fits ? Py_NewRef(Py_None) : NULL;
}

static PyObject *summaries_tobytes(PyObject *self, PyObject *unused)
{
    Summaries *s = (Summaries *)self;
    return PyBytes_FromStringAndSize((const char *)s->summaries, s->count * (Py_ssize_t)sizeof *s->summaries);
}

static PyObject *summaries_packed(PyObject *self, PyObject *unused)
{
    Summaries *s = (Summaries *)self;
    if (s->packed == NULL) {
        struct reader_state *state = PyType_GetModuleState(Py_TYPE(self));
        s->packed = packed_of(state, s->summaries, s->count);
    }
    return Py_XNewRef(s->packed);
}

static Py_ssize_t summaries_length(PyObject *self) { return ((Summaries *)self)->count; }

static PyMethodDef summaries_methods[] = {
    {"add", summaries_add, METH_VARARGS, "Add a span."},
    {"merge", (PyCFunction)(void (*)(void))summaries_merge, METH_VARARGS | METH_KEYWORDS,
     "Add each summary to its row, with its times multiplied; a summary with a negative row is skipped."},
    {"subtract", summaries_subtract, METH_VARARGS,
     "Subtract each summary from its row; afterwards, min and max are only bounds."},
    {"tobytes", summaries_tobytes, METH_NOARGS, "The summaries, as the bytes of an array."},
    {"packed", summaries_packed, METH_NOARGS, "The summaries as a Packed, cached until they change."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot summaries_slots[] = {
    {Py_tp_new, summaries_new},
    {Py_tp_dealloc, summaries_dealloc},
    {Py_tp_methods, summaries_methods},
    {Py_sq_length, summaries_length},
    {Py_tp_doc, "Summaries(bytes=b''): an array of summaries that grows."},
    {0, NULL},
};
PyType_Spec summaries_spec = {"brickd.shm._reader.Summaries", sizeof(Summaries), 0, Py_TPFLAGS_DEFAULT, summaries_slots};
