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
static PyObject *shares(const struct brick_part *parts, const int32_t *rows, Py_ssize_t paths, Py_ssize_t count)
{
    PyObject *result = PyDict_New();
    double(*sums)[3] = PyMem_Calloc((size_t)count + 1, sizeof *sums);
    if (sums == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t p = 0; sums != NULL && p < paths; p++) {
        const struct brick_summary *s = parts[p].summary;
        if (rows[p] < 0 || s->count == 0)
            continue;
        sums[rows[p]][0] += (double)s->count;
        sums[rows[p]][1] += (double)s->total * parts[p].tick_ns;
        sums[rows[p]][2] += brick_self_ns(&parts[p]);
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

/* Each path with its own tick, and with the times that were given inside its spans. */
static void measure(struct brick_part *parts, const struct brick_summary *s, const int32_t *parents, const int8_t *flags,
                    Py_ssize_t paths, double tick_ns)
{
    for (Py_ssize_t p = 0; p < paths; p++)
        parts[p] = (struct brick_part){
            .summary = &s[p], .tick_ns = flags[p] & BRICK_PART_NS ? 1.0 : tick_ns, .outer = flags[p] & BRICK_PART_OUTER};
    for (Py_ssize_t p = 0; p < paths; p++)
        if ((flags[p] & BRICK_PART_NS) && parents[p] >= 0 && parents[p] < paths)
            parts[parents[p]].given_ns += (double)s[p].total;
}

static PyObject *fold_add(PyObject *self, PyObject *args)
{
    Fold *f = (Fold *)self;
    Py_buffer summaries, rows, parents, flags;
    double tick_ns;
    if (!PyArg_ParseTuple(args, "y*y*y*y*d:add", &summaries, &rows, &parents, &flags, &tick_ns))
        return NULL;
    PyObject *result = NULL;
    Py_ssize_t paths = summaries.len / (Py_ssize_t)sizeof(struct brick_summary), most = -1;
    const int32_t *row = rows.buf;
    struct brick_part *parts = PyMem_Calloc((size_t)paths + 1, sizeof *parts);
    if (parts == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    if (rows.len != paths * (Py_ssize_t)sizeof *row || parents.len != rows.len || flags.len != paths || !(tick_ns > 0)
        || !isfinite(tick_ns)) {
        PyErr_Format(PyExc_ValueError,
                     "%zd paths need as many rows and parents (int32) and flags (int8), and a tick above 0", paths);
        goto done;
    }
    measure(parts, summaries.buf, parents.buf, flags.buf, paths, tick_ns);
    for (Py_ssize_t p = 0; p < paths; p++)
        most = row[p] > most ? row[p] : most;
    if (!fold_grow(f, most + 1))
        goto done;
    if (f->grid_ns == 0)
        f->grid_ns = tick_ns;
    for (Py_ssize_t p = 0; p < paths; p++)
        if (row[p] >= 0)
            brick_row_add(&f->rows[row[p]], &parts[p], f->grid_ns);
    result = shares(parts, row, paths, most + 1);
done:
    PyMem_Free(parts);
    PyBuffer_Release(&summaries);
    PyBuffer_Release(&rows);
    PyBuffer_Release(&parents);
    PyBuffer_Release(&flags);
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
     "add(summaries, rows, parents, flags, tick_ns) -> {row: (count, total_ns, self_ns)} of what was added."},
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
