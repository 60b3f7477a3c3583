/* python/py_match.c - the methods of brickd.shm._reader.Fingerprints that compare fingerprints. They return what they
 * find as Python objects. */
#include "../core/match.h"
#include "../core/row_census.h"
#include "../core/row_pairs.h"
#include "py_fingerprints.h"

#include <math.h>
#include <stdlib.h>

static PyObject *known(float error) { return isfinite(error) ? PyFloat_FromDouble(error) : Py_NewRef(Py_None); }

static PyObject *row_of(const struct brick_match *m, const struct brick_match_row *row)
{
    PyObject *members = PyList_New(row->members);
    for (uint32_t i = 0; members != NULL && i < row->members; i++) {
        const struct brick_member *member = &m->members[row->first + i];
        list_put(&members, i, Py_BuildValue("(IKi)", member->worker, (unsigned long long)member->number, member->class));
    }
    if (members == NULL)
        return NULL;
    const struct brick_before *before = &row->before;
    return Py_BuildValue("(iIIINNNNI(KKK)N)", row->class, row->reference, row->worst, row->agree,
                         known(row->error), known(row->inputs), known(row->tolerance), known(row->rounding), row->contents,
                         (unsigned long long)before->identical, (unsigned long long)before->within,
                         (unsigned long long)before->not_comparable, members);
}

static PyObject *site_of(const struct brick_match_site *s)
{
    PyObject *classes = number_tuple(s->classes, 'Q', BRICK_CLASSES);
    if (classes == NULL)
        return NULL;
    return Py_BuildValue("(KIKKNKKKKd)", (unsigned long long)s->site, s->moment,
                         (unsigned long long)s->fingerprints, (unsigned long long)s->compared, classes,
                         (unsigned long long)s->lone, (unsigned long long)s->bare, (unsigned long long)s->missing,
                         (unsigned long long)s->uncertain, (double)s->error);
}

/* Returns the rows in order, but at most `most` of them. If there are more, rows that could be compared are
 * preferred. */
static PyObject *rows_of(const struct brick_match *m, size_t most)
{
    size_t comparable = 0, count = 0;
    for (size_t i = 0; i < m->rows_count; i++)
        comparable += m->rows[i].class <= BRICK_CLASS_DIVERGED;
    size_t left[] = {most - (comparable < most ? comparable : most), most};
    PyObject *rows = PyList_New((Py_ssize_t)(m->rows_count < most ? m->rows_count : most));
    for (size_t i = 0; rows != NULL && count < most && i < m->rows_count; i++) {
        size_t *room = &left[m->rows[i].class <= BRICK_CLASS_DIVERGED];
        if (*room > 0 && list_put(&rows, count, row_of(m, &m->rows[i]))) {
            *room -= 1;
            count++;
        }
    }
    return rows;
}

static PyObject *document_of(const struct brick_match *m, size_t most)
{
    PyObject *rows = rows_of(m, most), *sites = PyList_New((Py_ssize_t)m->sites_count);
    PyObject *workers = PyList_New((Py_ssize_t)m->count);
    for (size_t i = 0; sites != NULL && i < m->sites_count; i++)
        list_put(&sites, i, site_of(&m->sites[i]));
    for (size_t i = 0; workers != NULL && i < m->count; i++) {
        const struct brick_match_worker *e = &m->edges[i];
        list_put(&workers, i, Py_BuildValue("(KKK)", (unsigned long long)e->fingerprints, (unsigned long long)e->missing,
                                            (unsigned long long)e->uncertain));
    }
    size_t shared = 0, other = 0;
    for (size_t i = 0; i < m->steps_count; i++) {
        shared += m->steps[i].workers > 1;
        other += m->steps[i].other > 0;
    }
    if (rows != NULL && sites != NULL && workers != NULL)
        return Py_BuildValue("{s:K,s:N,s:N,s:N,s:(nnn)}", "fingerprints", (unsigned long long)m->fingerprints, "rows", rows,
                             "sites", sites, "workers", workers, "steps", (Py_ssize_t)shared,
                             (Py_ssize_t)(m->steps_count - shared), (Py_ssize_t)other);
    Py_XDECREF(rows);
    Py_XDECREF(sites);
    Py_XDECREF(workers);
    return NULL;
}

/* Reads a list with one number for each worker. If the list is None, leaves *numbers unchanged. Returns 0 with an
 * exception on failure. */
static int numbers_of_each(PyObject *list, const char *what, size_t count, uint64_t **numbers)
{
    size_t found;
    if (list == Py_None)
        return 1;
    if ((*numbers = numbers_in(list, UINT64_MAX, &found)) == NULL)
        return 0;
    if (found != count)
        PyErr_Format(PyExc_ValueError, "%zu workers, but '%s' has %zu numbers", count, what, found);
    return found == count;
}

/* Reads a list of pairs. Each pair is a site and a worker. Returns NULL with an exception on failure. */
static struct brick_named *named_in(PyObject *pairs, size_t *count)
{
    PyObject *all = pairs != NULL ? PySequence_Tuple(pairs) : PyTuple_New(0);
    *count = all != NULL ? (size_t)PyTuple_GET_SIZE(all) : 0;
    struct brick_named *named = all != NULL ? malloc((*count + 1) * sizeof *named) : NULL;
    if (all != NULL && named == NULL)
        PyErr_NoMemory();
    for (size_t i = 0; named != NULL && i < *count; i++) {
        unsigned long long site, worker;
        if (PyArg_ParseTuple(PyTuple_GET_ITEM(all, (Py_ssize_t)i), "KK:named", &site, &worker)) {
            named[i] = (struct brick_named){site, worker};
            continue;
        }
        free(named);
        named = NULL;
    }
    Py_XDECREF(all);
    return named;
}

PyObject *fingerprints_match(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"workers", "since", "by_input", "step", "rtol", "rows_max", "lost", "worn", "tier", "named", NULL};
    Fingerprints *p = (Fingerprints *)self;
    PyObject *workers, *since, *only_step = Py_None, *losses = Py_None, *wear = Py_None, *names_of = NULL, *found = NULL;
    Py_ssize_t rows_max = 4096;
    int tier = BRICK_TIER_TENSORS;
    size_t count;
    uint64_t step = 0, *from = NULL, *lost = NULL, *worn = NULL;
    struct brick_match m = {.rtol = -1};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OOp|OdnOOiO:match", names, &workers, &since, &m.by_input, &only_step,
                                     &m.rtol, &rows_max, &losses, &wear, &tier, &names_of))
        return NULL;
    if (!is_tier(tier))
        return NULL;
    m.tier = (enum brick_tier)tier;
    struct brick_fingerprints *window = window_of_all(p);
    if (window == NULL)
        return NULL;
    if (only_step != Py_None && (step = PyLong_AsUnsignedLongLong(only_step)) == (uint64_t)-1 && PyErr_Occurred())
        return NULL;
    struct brick_named *named = named_in(names_of, &m.named_count);
    uint32_t *which = named != NULL ? workers_in(workers, &count) : NULL;
    if (which != NULL && numbers_of_each(since, "times", count, &from) && numbers_of_each(losses, "losses", count, &lost)
        && numbers_of_each(wear, "wear", count, &worn)) {
        m.workers = which;
        m.since = from;
        m.lost = lost;
        m.worn = worn;
        m.count = count;
        m.named = named;
        m.step = only_step != Py_None ? &step : NULL;
        int whole;
        Py_BEGIN_ALLOW_THREADS
        pthread_mutex_lock(&p->mutex);
        whole = brick_match(window, &m);
        pthread_mutex_unlock(&p->mutex);
        Py_END_ALLOW_THREADS
        found = whole ? document_of(&m, rows_max < 0 ? 0 : (size_t)rows_max) : PyErr_NoMemory();
        brick_match_free(&m);
    }
    free(named);
    free(which);
    free(from);
    free(lost);
    free(worn);
    return found;
}

/* Returns the window that has both fingerprints, and replaces the two numbers by their numbers in this window. Returns
 * NULL if no window has both. */
static struct brick_fingerprints *window_of_both(Fingerprints *p, unsigned long long *one, unsigned long long *other)
{
    uint64_t first, second;
    struct brick_fingerprints *window = brick_windows_hold(&p->all, *one, &first);
    if (window == NULL || brick_windows_hold(&p->all, *other, &second) != window)
        return NULL;
    *one = first;
    *other = second;
    return window;
}

PyObject *fingerprints_rounded(PyObject *self, PyObject *args)
{
    Fingerprints *p = (Fingerprints *)self;
    unsigned long long one, other;
    if (!PyArg_ParseTuple(args, "KK:rounded", &one, &other))
        return NULL;
    enum brick_rounded rounded = BRICK_ROUNDED_NOT;
    take_lock(&p->mutex);
    const struct brick_fingerprints *window = window_of_both(p, &one, &other);
    if (window != NULL)
        rounded = brick_fingerprints_rounded(window, one, other);
    pthread_mutex_unlock(&p->mutex);
    return PyLong_FromLong(rounded);
}

PyObject *fingerprints_contents(PyObject *self, PyObject *args)
{
    Fingerprints *p = (Fingerprints *)self;
    unsigned long long one, other;
    int64_t found = 0;
    if (!PyArg_ParseTuple(args, "KK:contents", &one, &other))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&p->mutex);
    struct brick_fingerprints *window = window_of_both(p, &one, &other);
    if (window != NULL)
        found = brick_match_contents(window, one, other);
    pthread_mutex_unlock(&p->mutex);
    Py_END_ALLOW_THREADS
    return found >= 0 ? PyLong_FromLongLong(found) : PyErr_NoMemory();
}

static PyObject *pair_of(const struct brick_service_window *of, const struct brick_row_pair *pair)
{
    unsigned long long newest[2][2];
    for (int side = 0; side < 2; side++)
        for (int of_side = 0; of_side < 2; of_side++)
            newest[side][of_side] = brick_windows_number(of, pair->newest[side][of_side]);
    return Py_BuildValue("(III(II)(II)(II)((KK)(KK))(NN))", pair->one, pair->other, pair->rows, pair->apart[0], pair->apart[1],
                         pair->far[0], pair->far[1], pair->unlike_own[0], pair->unlike_own[1], newest[0][0], newest[0][1],
                         newest[1][0], newest[1][1], PyBool_FromLong((long)pair->differs[0]),
                         PyBool_FromLong((long)pair->differs[1]));
}

PyObject *reader_rows_unsteady(PyObject *module, PyObject *list)
{
    PyObject *all = PySequence_Tuple(list);
    const size_t count = all != NULL ? (size_t)PyTuple_GET_SIZE(all) : 0;
    struct brick_row_pair *pairs = all != NULL ? calloc(count + 1, sizeof *pairs) : NULL;
    if (all != NULL && pairs == NULL)
        PyErr_NoMemory();
    int read = pairs != NULL;
    for (size_t i = 0; read && i < count; i++) {
        struct brick_row_pair *p = &pairs[i];
        PyObject *newest;
        int differs[2] = {0};
        read = PyArg_ParseTuple(PyTuple_GET_ITEM(all, (Py_ssize_t)i), "III(II)(II)(II)O(pp):rows_unsteady", &p->one, &p->other,
                                &p->rows, &p->apart[0], &p->apart[1], &p->far[0], &p->far[1], &p->unlike_own[0],
                                &p->unlike_own[1], &newest, &differs[0], &differs[1]);
        p->differs[0] = (uint32_t)differs[0];
        p->differs[1] = (uint32_t)differs[1];
        if (read && (p->one >= p->other || p->other >= WORKERS_MAX)) {
            PyErr_Format(PyExc_ValueError, "the workers of a pair are %u and %u, expected ascending numbers below %d", p->one,
                         p->other, WORKERS_MAX);
            read = 0;
        }
    }
    const int unsteady = read ? brick_rows_unsteady(pairs, count) : 0;
    free(pairs);
    Py_XDECREF(all);
    return !read ? NULL : unsteady < 0 ? PyErr_NoMemory() : PyBool_FromLong(unsteady);
}

PyObject *fingerprints_row_pairs(PyObject *self, PyObject *args)
{
    Fingerprints *p = (Fingerprints *)self;
    unsigned int service;
    unsigned long long site;
    if (!PyArg_ParseTuple(args, "IK:row_pairs", &service, &site))
        return NULL;
    struct brick_service_window of = {.number = 0};
    struct brick_row_pair *pairs = NULL;
    size_t count = 0;
    int whole = 1;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&p->mutex);
    const struct brick_service_window *its = brick_windows_of(&p->all, service, brick_tier_of_site(site));
    if (its != NULL) {
        of.number = its->number;
        pairs = brick_row_pairs(&its->window, service, site, &count);
        whole = pairs != NULL;
    }
    pthread_mutex_unlock(&p->mutex);
    Py_END_ALLOW_THREADS
    PyObject *list = whole ? PyList_New((Py_ssize_t)count) : PyErr_NoMemory();
    for (size_t i = 0; list != NULL && i < count; i++)
        list_put(&list, i, pair_of(&of, &pairs[i]));
    free(pairs);
    return list;
}

PyObject *fingerprints_rows_apart(PyObject *self, PyObject *args)
{
    Fingerprints *p = (Fingerprints *)self;
    struct brick_rows_apart found = {0};
    unsigned int service;
    int tier, whole = 1;
    if (!PyArg_ParseTuple(args, "Ii:rows_apart", &service, &tier) || !is_tier(tier))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&p->mutex);
    const struct brick_service_window *its = brick_windows_of(&p->all, service, (enum brick_tier)tier);
    if (its != NULL)
        whole = brick_rows_apart(&its->window, service, (enum brick_tier)tier, &found);
    pthread_mutex_unlock(&p->mutex);
    Py_END_ALLOW_THREADS
    return whole ? Py_BuildValue("(KK)", (unsigned long long)found.context, (unsigned long long)found.lineage) : PyErr_NoMemory();
}

PyObject *fingerprints_rows_repeated(PyObject *self, PyObject *args)
{
    Fingerprints *p = (Fingerprints *)self;
    uint64_t found = 0;
    unsigned int service;
    unsigned long long site;
    if (!PyArg_ParseTuple(args, "IK:rows_repeated", &service, &site))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&p->mutex);
    const struct brick_service_window *its = brick_windows_of(&p->all, service, BRICK_TIER_ROWS);
    if (its != NULL)
        found = brick_rows_repeated(&its->window, service, site);
    pthread_mutex_unlock(&p->mutex);
    Py_END_ALLOW_THREADS
    return found != UINT64_MAX ? PyLong_FromUnsignedLongLong(found) : PyErr_NoMemory();
}
