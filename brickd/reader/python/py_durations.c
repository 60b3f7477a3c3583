/* python/py_durations.c - brickd.shm._reader.Durations: how long the spans of each place took, over many workers. */
#include "../core/fold.h"
#include "py_types.h"

typedef struct {
    PyObject_HEAD
    struct brick_durations *rows; /* sums over all workers, whose ticks have the same length */
    Py_ssize_t count;
} Durations;

static void durations_dealloc(PyObject *self)
{
    PyMem_Free(((Durations *)self)->rows);
    plain_dealloc(self);
}

static int durations_grow(Durations *d, Py_ssize_t count)
{
    if (count <= d->count)
        return 1;
    struct brick_durations *rows = PyMem_Realloc(d->rows, (size_t)count * sizeof *rows);
    if (rows == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    memset(rows + d->count, 0, (size_t)(count - d->count) * sizeof *rows);
    d->rows = rows;
    d->count = count;
    return 1;
}

static PyObject *sums(const struct brick_durations *rows, Py_ssize_t count)
{
    PyObject *list = PyList_New(count);
    for (Py_ssize_t r = 0; list != NULL && r < count; r++)
        list_put(&list, (size_t)r,
                 Py_BuildValue("(KKK)", (unsigned long long)rows[r].count, (unsigned long long)rows[r].ticks,
                               (unsigned long long)rows[r].ns));
    return list;
}

static PyObject *durations_add(PyObject *self, PyObject *args)
{
    Durations *d = (Durations *)self;
    Py_buffer summaries, rows, flags, places, ticks, ns;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*:add", &summaries, &rows, &flags, &places, &ticks, &ns))
        return NULL;
    PyObject *found = NULL;
    struct brick_durations *own = NULL;
    const struct brick_summary *s = summaries.buf;
    const int32_t *row = rows.buf, *place = places.buf;
    const uint8_t *flag = flags.buf;
    Py_ssize_t paths = summaries.len / (Py_ssize_t)sizeof *s, known = places.len / (Py_ssize_t)sizeof *place, count = 0;
    if (rows.len != paths * (Py_ssize_t)sizeof *row || flags.len != paths || ticks.len != BRICK_BUCKETS
        || ns.len != BRICK_BUCKETS) {
        PyErr_Format(PyExc_ValueError,
                     "%zd paths need as many rows (int32) and flags (int8), and %u bounds each for ticks and for ns",
                     paths, BRICK_BUCKETS);
        goto done;
    }
    for (Py_ssize_t k = 0; k < known; k++)
        count = place[k] >= count ? (Py_ssize_t)place[k] + 1 : count;
    own = PyMem_Calloc((size_t)count + 1, sizeof *own);
    if (own == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    if (!durations_grow(d, count))
        goto done;
    for (Py_ssize_t p = 0; p < paths; p++) {
        int32_t at = row[p] >= 0 && row[p] < known ? place[row[p]] : -1;
        if (at >= 0)
            brick_durations_add(&own[at], &s[p], flag[p], flag[p] & BRICK_PART_NS ? ns.buf : ticks.buf);
    }
    for (Py_ssize_t r = 0; r < count; r++)
        brick_durations_join(&d->rows[r], &own[r]);
    found = sums(own, count);
done:
    PyMem_Free(own);
    PyBuffer_Release(&summaries);
    PyBuffer_Release(&rows);
    PyBuffer_Release(&flags);
    PyBuffer_Release(&places);
    PyBuffer_Release(&ticks);
    PyBuffer_Release(&ns);
    return found;
}

static PyObject *durations_row(PyObject *self, PyObject *index)
{
    Durations *d = (Durations *)self;
    static const struct brick_durations empty;
    Py_ssize_t i = PyLong_AsSsize_t(index);
    if (i == -1 && PyErr_Occurred())
        return NULL;
    const struct brick_durations *r = i >= 0 && i < d->count ? &d->rows[i] : &empty;
    return Py_BuildValue("(KKKN)", (unsigned long long)r->count, (unsigned long long)r->ticks, (unsigned long long)r->ns,
                         number_tuple(r->within, 'Q', BRICK_BOUNDS));
}

static PyMethodDef durations_methods[] = {
    {"add", durations_add, METH_VARARGS, "Add one worker; return [(count, ticks, ns)]: what it adds to each place."},
    {"row", durations_row, METH_O, "(count, ticks, ns, counts by bound) of a place, over all workers."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot durations_slots[] = {
    {Py_tp_dealloc, durations_dealloc},
    {Py_tp_methods, durations_methods},
    {Py_tp_doc, "The durations of spans of many workers, by place and bound."},
    {0, NULL},
};
PyType_Spec durations_spec = {"brickd.shm._reader.Durations", sizeof(Durations), 0, Py_TPFLAGS_DEFAULT, durations_slots};
