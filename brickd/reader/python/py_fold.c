/* python/py_fold.c - brickd.shm._reader.Fold: sums the summaries of many workers, row by row. */
#include "../core/fold.h"
#include "py_types.h"

#include <math.h>

/* For one row: the mean duration of each worker, and the largest mean. */
struct means {
    double *ns, most;
    Py_ssize_t count, room, whose; /* whose: the number of the worker with the largest mean */
};

typedef struct {
    PyObject_HEAD
    struct brick_row *rows;
    struct means *means; /* one for each row */
    Py_ssize_t count;
    double grid_ns; /* the tick length of the first worker; 0: no worker yet */
} Fold;

static void fold_dealloc(PyObject *self)
{
    Fold *f = (Fold *)self;
    for (Py_ssize_t r = 0; r < f->count; r++)
        PyMem_Free(f->means[r].ns);
    PyMem_Free(f->means);
    PyMem_Free(f->rows);
    plain_dealloc(self);
}

static int fold_grow(Fold *f, Py_ssize_t count)
{
    if (count <= f->count)
        return 1;
    struct brick_row *rows = PyMem_Realloc(f->rows, (size_t)count * sizeof *rows);
    if (rows != NULL)
        f->rows = rows;
    struct means *means = rows != NULL ? PyMem_Realloc(f->means, (size_t)count * sizeof *means) : NULL;
    if (means == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    f->means = means;
    memset(rows + f->count, 0, (size_t)(count - f->count) * sizeof *rows);
    memset(means + f->count, 0, (size_t)(count - f->count) * sizeof *means);
    f->count = count;
    return 1;
}

/* If several workers have the largest mean, the one with the highest number is the worst. So the result does not depend
 * on the order in which workers are added. */
static int mean_add(struct means *m, double ns, Py_ssize_t whose)
{
    if (m->count == m->room) {
        Py_ssize_t room = 2 * m->room + 8;
        double *more = PyMem_Realloc(m->ns, (size_t)room * sizeof *more);
        if (more == NULL) {
            PyErr_NoMemory();
            return 0;
        }
        m->ns = more;
        m->room = room;
    }
    if (m->count == 0 || ns > m->most || (ns == m->most && whose > m->whose)) {
        m->most = ns;
        m->whose = whose;
    }
    m->ns[m->count++] = ns;
    return 1;
}

static int means_add(Fold *f, const struct brick_part *parts, const int32_t *rows, Py_ssize_t paths, Py_ssize_t count,
                     Py_ssize_t whose)
{
    double(*sums)[2] = PyMem_Calloc((size_t)count + 1, sizeof *sums);
    if (sums == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    for (Py_ssize_t p = 0; p < paths; p++) {
        if (rows[p] < 0)
            continue;
        sums[rows[p]][0] += (double)parts[p].summary->count;
        sums[rows[p]][1] += (double)parts[p].summary->total * parts[p].tick_ns;
    }
    int added = 1;
    for (Py_ssize_t r = 0; added && r < count; r++)
        if (sums[r][0] > 0)
            added = mean_add(&f->means[r], sums[r][1] / sums[r][0], whose);
    PyMem_Free(sums);
    return added;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the largest mean divided by the median of the means; 0 if there are no means. */
static double spread(struct means *m)
{
    if (m->count == 0)
        return 0;
    qsort(m->ns, (size_t)m->count, sizeof *m->ns, by_size);
    double median = (m->ns[(m->count - 1) / 2] + m->ns[m->count / 2]) / 2;
    return median > 0 ? m->most / median : 1;
}

/* Sets for each path the length of its tick, and the sum of the times in ns of the paths directly below it. */
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
    Py_ssize_t whose = 0;
    if (!PyArg_ParseTuple(args, "y*y*y*y*d|n:add", &summaries, &rows, &parents, &flags, &tick_ns, &whose))
        return NULL;
    int added = 0;
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
    added = means_add(f, parts, row, paths, most + 1, whose);
done:
    PyMem_Free(parts);
    PyBuffer_Release(&summaries);
    PyBuffer_Release(&rows);
    PyBuffer_Release(&parents);
    PyBuffer_Release(&flags);
    return added ? Py_NewRef(Py_None) : NULL;
}

static PyObject *fold_row(PyObject *self, PyObject *index)
{
    Fold *f = (Fold *)self;
    Py_ssize_t i = PyLong_AsSsize_t(index);
    if (i == -1 && PyErr_Occurred())
        return NULL;
    static const struct brick_row empty;
    struct means none = {0};
    const struct brick_row *r = i >= 0 && i < f->count ? &f->rows[i] : &empty;
    struct means *m = i >= 0 && i < f->count ? &f->means[i] : &none;
    double n = (double)r->count, mean = n > 0 ? r->total / n : 0;
    double variance = n > 0 ? r->squares / n - mean * mean : 0;
    const double deviation = variance > 0 ? sqrt(variance) : 0, grid_ns = f->grid_ns;
    return Py_BuildValue("{s:K,s:d,s:d,s:d,s:d,s:d,s:d,s:d,s:d,s:d,s:d,s:d,s:K,s:K,s:d,s:n,s:d}", "count",
                         (unsigned long long)r->count, "total_ns", r->inclusive, "self_ns", r->self, "mean_ns", mean,
                         "deviation_ns", deviation, "min_ns", r->min, "max_ns", r->max, "p50_ns",
                         brick_row_quantile(r, 0.50, grid_ns), "p90_ns", brick_row_quantile(r, 0.90, grid_ns), "p95_ns",
                         brick_row_quantile(r, 0.95, grid_ns), "p99_ns", brick_row_quantile(r, 0.99, grid_ns), "p999_ns",
                         brick_row_quantile(r, 0.999, grid_ns), "elements", (unsigned long long)r->elements, "bytes", (unsigned long long)r->bytes, "flops", r->flops, "worst",
                         m->whose, "spread", spread(m));
}

static PyObject *fold_histogram(PyObject *self, PyObject *index)
{
    Fold *f = (Fold *)self;
    Py_ssize_t i = PyLong_AsSsize_t(index);
    if (i == -1 && PyErr_Occurred())
        return NULL;
    PyObject *buckets = PyList_New(BRICK_BUCKETS);
    for (size_t b = 0; buckets != NULL && b < BRICK_BUCKETS; b++)
        list_put(&buckets, b, PyLong_FromDouble(i >= 0 && i < f->count ? f->rows[i].histogram[b] : 0));
    return buckets;
}

static PyObject *fold_sums(PyObject *self, PyObject *unused)
{
    Fold *f = (Fold *)self;
    PyObject *sums = PyList_New(f->count);
    for (Py_ssize_t i = 0; sums != NULL && i < f->count; i++) {
        const struct brick_row *r = &f->rows[i];
        list_put(&sums, (size_t)i,
                 Py_BuildValue("(KdK)", (unsigned long long)r->count, r->self, (unsigned long long)r->elements));
    }
    return sums;
}

static PyMethodDef fold_methods[] = {
    {"add", fold_add, METH_VARARGS, "Add the summaries of one worker."},
    {"row", fold_row, METH_O, "The numbers of a row, as a dict."},
    {"histogram", fold_histogram, METH_O,
     "[number of spans in each bucket]; the limits of buckets are in ticks of the first worker."},
    {"sums", fold_sums, METH_NOARGS, "[(count, self_ns, elements) of each row]."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot fold_slots[] = {
    {Py_tp_dealloc, fold_dealloc},
    {Py_tp_methods, fold_methods},
    {Py_tp_doc, "Summaries of many workers, added up by row."},
    {0, NULL},
};
PyType_Spec fold_spec = {"brickd.shm._reader.Fold", sizeof(Fold), 0, Py_TPFLAGS_DEFAULT, fold_slots};
