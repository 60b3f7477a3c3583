/* fold_type.c - brickd._reader.Fold: summaries of many workers, added up by row. */
#include "fold.h"
#include "types.h"

#include <math.h>

typedef struct {
    PyObject_HEAD
    struct brick_row *rows;
    Py_ssize_t count;
    double grid_ns; /* the first worker's tick; 0 until there was one */
} Fold;

static PyObject *fold_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, ":Fold", names))
        return NULL;
    return type->tp_alloc(type, 0);
}

static void fold_dealloc(PyObject *self)
{
    PyMem_Free(((Fold *)self)->rows);
    plain_dealloc(self);
}

static int fold_grow(Fold *f, Py_ssize_t count)
{
    if (count <= f->count)
        return 1;
    struct brick_row *rows = PyMem_Realloc(f->rows, (size_t)count * sizeof *rows);
    if (rows == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    memset(rows + f->count, 0, (size_t)(count - f->count) * sizeof *rows);
    f->rows = rows;
    f->count = count;
    return 1;
}

/* What one worker gave to the rows that it has: {row: (count, total_ns, self_ns)}. */
static PyObject *shares(const struct brick_summary *s, const int32_t *rows, Py_ssize_t paths, Py_ssize_t count,
                        double tick_ns)
{
    PyObject *result = PyDict_New();
    double(*sums)[3] = PyMem_Calloc((size_t)count + 1, sizeof *sums);
    if (sums == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t p = 0; sums != NULL && p < paths; p++) {
        if (rows[p] < 0 || s[p].count == 0)
            continue;
        sums[rows[p]][0] += (double)s[p].count;
        sums[rows[p]][1] += (double)s[p].total * tick_ns;
        sums[rows[p]][2] += brick_rest(s[p].total, s[p].child) * tick_ns;
    }
    for (Py_ssize_t r = 0; sums != NULL && result != NULL && r < count; r++) {
        if (sums[r][0] == 0)
            continue;
        PyObject *key = PyLong_FromSsize_t(r), *value = Py_BuildValue("(ddd)", sums[r][0], sums[r][1], sums[r][2]);
        if (key == NULL || value == NULL || PyDict_SetItem(result, key, value) != 0)
            Py_CLEAR(result);
        Py_XDECREF(key);
        Py_XDECREF(value);
    }
    if (sums == NULL)
        Py_CLEAR(result);
    PyMem_Free(sums);
    return result;
}

static PyObject *fold_add(PyObject *self, PyObject *args)
{
    Fold *f = (Fold *)self;
    Py_buffer summaries, rows, outer;
    double tick_ns;
    if (!PyArg_ParseTuple(args, "y*y*y*d:add", &summaries, &rows, &outer, &tick_ns))
        return NULL;
    PyObject *result = NULL;
    Py_ssize_t paths = summaries.len / (Py_ssize_t)sizeof(struct brick_summary), most = -1;
    const struct brick_summary *s = summaries.buf;
    const int32_t *row = rows.buf;
    if (rows.len != paths * (Py_ssize_t)sizeof *row || outer.len != paths || !(tick_ns > 0) || !isfinite(tick_ns)) {
        PyErr_Format(PyExc_ValueError, "%zd paths need as many rows (int32) and outer flags (int8), and a tick above 0",
                     paths);
        goto done;
    }
    for (Py_ssize_t p = 0; p < paths; p++)
        most = row[p] > most ? row[p] : most;
    if (!fold_grow(f, most + 1))
        goto done;
    if (f->grid_ns == 0)
        f->grid_ns = tick_ns;
    for (Py_ssize_t p = 0; p < paths; p++)
        if (row[p] >= 0)
            brick_row_add(&f->rows[row[p]], &s[p], tick_ns, f->grid_ns, ((const int8_t *)outer.buf)[p]);
    result = shares(s, row, paths, most + 1, tick_ns);
done:
    PyBuffer_Release(&summaries);
    PyBuffer_Release(&rows);
    PyBuffer_Release(&outer);
    return result;
}

/* A row of the answer: every number that a screen may want, times in ns. */
static PyObject *fold_row(PyObject *self, PyObject *index)
{
    Fold *f = (Fold *)self;
    Py_ssize_t i = PyLong_AsSsize_t(index);
    if (i == -1 && PyErr_Occurred())
        return NULL;
    static const struct brick_row empty;
    const struct brick_row *r = i >= 0 && i < f->count ? &f->rows[i] : &empty;
    double n = (double)r->count, mean = n > 0 ? r->total / n : 0;
    double variance = n > 0 ? r->squares / n - mean * mean : 0;
    return Py_BuildValue("{s:K,s:d,s:d,s:d,s:d,s:d,s:d,s:d,s:d,s:d,s:d,s:K,s:K}", "count", (unsigned long long)r->count,
                         "total_ns", r->inclusive, "self_ns", r->self, "mean_ns", mean, "deviation_ns",
                         variance > 0 ? sqrt(variance) : 0.0, "min_ns", r->min, "max_ns", r->max, "p50_ns",
                         brick_row_quantile(r, 0.50, f->grid_ns), "p90_ns", brick_row_quantile(r, 0.90, f->grid_ns),
                         "p99_ns", brick_row_quantile(r, 0.99, f->grid_ns), "p999_ns",
                         brick_row_quantile(r, 0.999, f->grid_ns), "elements", (unsigned long long)r->elements, "bytes",
                         (unsigned long long)r->bytes);
}

static PyMethodDef fold_methods[] = {
    {"add", fold_add, METH_VARARGS,
     "add(summaries, rows, outer, tick_ns) -> {row: (count, total_ns, self_ns)} of what was added."},
    {"row", fold_row, METH_O, "row(index) -> its numbers by name."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot fold_slots[] = {
    {Py_tp_new, fold_new},
    {Py_tp_dealloc, fold_dealloc},
    {Py_tp_methods, fold_methods},
    {Py_tp_doc, "Summaries of many workers, added up by row."},
    {0, NULL},
};
PyType_Spec fold_spec = {"brickd._reader.Fold", sizeof(Fold), 0, Py_TPFLAGS_DEFAULT, fold_slots};
