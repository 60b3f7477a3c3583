/* python/py_prints.c - brickd.shm._reader.Prints: what workers said of their tensors, and what it comes to side by side.
 *
 * Every method holds the lock while it looks or changes, and makes no object
 * meanwhile, but for match(): that is for Prints of which the caller has the only one.
 */
#include "../core/match.h"
#include "../core/tolerance.h"
#include "py_types.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <structmember.h>
#include <sys/random.h>

#define WORKERS_MAX (1 << 24)

typedef struct {
    PyObject_HEAD
    struct brick_prints prints;
    pthread_mutex_t mutex;
    int opened;
} Prints;

static void lock(Prints *p)
{
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&p->mutex);
    Py_END_ALLOW_THREADS
}

static void unlock(Prints *p) { pthread_mutex_unlock(&p->mutex); }

static Prints *prints_made(PyTypeObject *type, Py_ssize_t bytes_max)
{
    uint64_t key;
    Prints *self = (Prints *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->opened = pthread_mutex_init(&self->mutex, NULL) == 0;
    if (self->opened && getrandom(&key, sizeof key, 0) == (ssize_t)sizeof key) {
        brick_prints_init(&self->prints, (size_t)bytes_max, key);
        return self;
    }
    Py_DECREF(self);
    PyErr_NoMemory();
    return NULL;
}

static PyObject *prints_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"bytes_max", NULL};
    Py_ssize_t bytes_max;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "n:Prints", names, &bytes_max))
        return NULL;
    if (bytes_max < 0)
        return PyErr_Format(PyExc_ValueError, "a bound of bytes is 0 or more, not %zd", bytes_max);
    return (PyObject *)prints_made(type, bytes_max);
}

static void prints_dealloc(PyObject *self)
{
    brick_prints_free(&((Prints *)self)->prints);
    if (((Prints *)self)->opened)
        pthread_mutex_destroy(&((Prints *)self)->mutex);
    plain_dealloc(self);
}

/* ---- adding ------------------------------------------------------------- */

/* What one call came to. */
struct added {
    Py_ssize_t taken;
    struct brick_record *weights; /* NULL: there are none yet */
    size_t weights_count;
    int no_memory;
};

static void add_all(struct brick_prints *p, const struct brick_speaker *by, const char *bytes, Py_ssize_t length,
                    struct added *a)
{
    const size_t total = (size_t)length / sizeof(struct brick_record);
    for (size_t at = 0; at < total;) {
        struct brick_record slots[BRICK_CHECKED_SLOTS_MAX];
        const size_t left = total - at;
        const struct brick_checked *c = (const struct brick_checked *)(const void *)slots;
        memcpy(slots, bytes + at * sizeof *slots, sizeof *slots);
        if (c->slots > 1 && c->slots <= left && c->slots <= BRICK_CHECKED_SLOTS_MAX)
            memcpy(slots + 1, bytes + (at + 1) * sizeof *slots, (c->slots - 1u) * sizeof *slots);
        const int weight = c->kind == BRICK_KIND_CHECKED && (c->flags & BRICK_CHECKED_WEIGHT) != 0
                           && c->slots == BRICK_CHECKED_SLOTS(0) && c->slots <= left;
        if (weight) {
            const struct brick_tensor_sums *sums = (const struct brick_tensor_sums *)(const void *)&slots[2];
            if (by->named && (c->site >= by->sites_count || by->sites[c->site] == 0))
                return;
            if (sums->dtype != 0) { /* nothing was read: two of those would be equal */
                if (a->weights == NULL && (a->weights = malloc(left * sizeof *slots)) == NULL) {
                    a->no_memory = 1;
                    return;
                }
                memcpy(a->weights + a->weights_count, slots, c->slots * sizeof *slots);
                a->weights_count += c->slots;
            } else {
                p->refused++;
            }
        } else {
            const enum brick_added added = brick_prints_add(p, by, slots, left);
            if (added == BRICK_ADDED_UNKNOWN)
                return;
            if (added == BRICK_ADDED_NO_MEMORY) {
                a->no_memory = 1;
                return;
            }
            if (added == BRICK_ADDED_NOT) /* where the next one begins is not known */
                break;
        }
        at += c->slots;
        a->taken = (Py_ssize_t)(at * sizeof *slots);
    }
    a->taken = length;
}

static PyObject *numbers(const uint64_t *from, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *number = PyLong_FromUnsignedLongLong(from[i]);
        if (number == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, number);
    }
    return list;
}

static PyObject *prints_add(PyObject *self, PyObject *args)
{
    Prints *p = (Prints *)self;
    Py_buffer sites, names, records;
    unsigned int worker, service;
    unsigned long long shard;
    int named;
    if (!PyArg_ParseTuple(args, "IIKy*y*y*p:add", &worker, &service, &shard, &sites, &names, &records, &named))
        return NULL;
    const struct brick_speaker by = {
        .worker = worker,
        .service = service,
        .shard = shard,
        .sites = sites.buf,
        .names = names.buf,
        .sites_count = (size_t)sites.len / sizeof(uint64_t),
        .names_count = (size_t)names.len / sizeof(uint64_t),
        .named = named,
    };
    PyObject *result = NULL;
    struct added a = {0};
    if (worker >= WORKERS_MAX) {
        PyErr_Format(PyExc_ValueError, "a worker has a number below %d, not %u", WORKERS_MAX, worker);
    } else {
        lock(p);
        add_all(&p->prints, &by, records.buf, records.len, &a);
        unlock(p);
        result = a.no_memory ? PyErr_NoMemory()
                             : Py_BuildValue("(ny#)", a.taken, a.weights != NULL ? (const char *)a.weights : "",
                                             (Py_ssize_t)(a.weights_count * sizeof *a.weights));
    }
    free(a.weights);
    PyBuffer_Release(&sites);
    PyBuffer_Release(&names);
    PyBuffer_Release(&records);
    return result;
}

/* ---- looking ------------------------------------------------------------ */

static PyObject *prints_unlike(PyObject *self, PyObject *unused)
{
    Prints *p = (Prints *)self;
    uint64_t waiting[BRICK_UNLIKE_MAX];
    lock(p);
    const size_t count = brick_prints_tell_unlike(&p->prints, waiting);
    unlock(p);
    return numbers(waiting, count);
}

static PyObject *prints_print(PyObject *self, PyObject *number)
{
    Prints *p = (Prints *)self;
    struct brick_record slots[BRICK_CHECKED_SLOTS_MAX];
    struct brick_print print;
    const uint64_t n = PyLong_AsUnsignedLongLong(number);
    if (n == (uint64_t)-1 && PyErr_Occurred())
        return NULL;
    lock(p);
    const int here = n >= p->prints.first && n < p->prints.end;
    if (here) {
        print = *brick_prints_at(&p->prints, n);
        brick_prints_slots(&p->prints, &print, slots);
    }
    unlock(p);
    if (!here)
        Py_RETURN_NONE;
    return Py_BuildValue("(IKy#)", print.worker, (unsigned long long)brick_print_site(&print), (const char *)slots,
                         (Py_ssize_t)(print.slots * sizeof *slots));
}

struct opinion {
    uint64_t output, number;
    uint32_t worker, count;
};

static PyObject *prints_group(PyObject *self, PyObject *number)
{
    Prints *p = (Prints *)self;
    const uint64_t n = PyLong_AsUnsignedLongLong(number);
    if (n == (uint64_t)-1 && PyErr_Occurred())
        return NULL;
    struct opinion *copy = NULL;
    size_t count = 0, room = 0;
    int whole = 1;
    lock(p);
    const int here = n >= p->prints.first && n < p->prints.end;
    const uint64_t first = here ? brick_prints_opinion(&p->prints, brick_prints_at(&p->prints, n)) : p->prints.end;
    for (uint64_t at = first; whole && at != p->prints.end; count++) {
        const struct brick_print *print = brick_prints_at(&p->prints, at);
        if (count == room) {
            room = room > 0 ? 2 * room : 64;
            struct opinion *more = realloc(copy, room * sizeof *more);
            whole = more != NULL;
            copy = whole ? more : copy;
        }
        if (whole)
            copy[count] = (struct opinion){print->output, at, print->worker, print->count};
        at = brick_prints_next(&p->prints, at);
        at = at != first ? at : p->prints.end;
    }
    unlock(p);
    PyObject *rows = whole ? PyList_New((Py_ssize_t)count) : PyErr_NoMemory();
    for (size_t i = 0; rows != NULL && i < count; i++) {
        PyObject *row = Py_BuildValue("(IKIK)", copy[i].worker, (unsigned long long)copy[i].output,
                                      (unsigned int)copy[i].count, (unsigned long long)copy[i].number);
        if (row == NULL)
            Py_CLEAR(rows);
        else
            PyList_SET_ITEM(rows, (Py_ssize_t)i, row);
    }
    free(copy);
    return rows;
}

static PyObject *prints_counts(PyObject *self, PyObject *unused)
{
    Prints *p = (Prints *)self;
    lock(p);
    const size_t count = p->prints.changed_count;
    struct brick_site_count *copy = malloc((count + 1) * sizeof *copy);
    if (copy != NULL)
        brick_prints_tell_counts(&p->prints, copy);
    unlock(p);
    PyObject *rows = copy != NULL ? PyList_New((Py_ssize_t)count) : PyErr_NoMemory();
    for (size_t i = 0; rows != NULL && i < count; i++) {
        const struct brick_site_count *c = &copy[i];
        PyObject *row = Py_BuildValue("(IKKKKKKK)", c->service, (unsigned long long)c->site, (unsigned long long)c->prints,
                                      (unsigned long long)c->bare, (unsigned long long)c->met,
                                      (unsigned long long)c->unlike, (unsigned long long)c->gone,
                                      (unsigned long long)c->stateful);
        if (row == NULL)
            Py_CLEAR(rows);
        else
            PyList_SET_ITEM(rows, (Py_ssize_t)i, row);
    }
    free(copy);
    return rows;
}

static PyObject *prints_forget(PyObject *self, PyObject *number)
{
    Prints *p = (Prints *)self;
    const unsigned long service = PyLong_AsUnsignedLong(number);
    if (service == (unsigned long)-1 && PyErr_Occurred())
        return NULL;
    if (service > UINT32_MAX) {
        PyErr_Format(PyExc_ValueError, "a service has a number below 2^32, not %lu", service);
        return NULL;
    }
    lock(p);
    const int done = brick_prints_forget(&p->prints, (uint32_t)service);
    unlock(p);
    return done ? Py_NewRef(Py_None) : PyErr_NoMemory();
}

/* Numbers out of a sequence, each below a bound. NULL with an exception. */
static uint64_t *taken(PyObject *sequence, uint64_t below, size_t *count)
{
    PyObject *held = PySequence_Tuple(sequence);
    if (held == NULL)
        return NULL;
    *count = (size_t)PyTuple_GET_SIZE(held);
    uint64_t *values = malloc((*count + 1) * sizeof *values);
    if (values == NULL)
        PyErr_NoMemory();
    for (size_t i = 0; values != NULL && i < *count; i++) {
        values[i] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(held, (Py_ssize_t)i));
        const int failed = values[i] == (uint64_t)-1 && PyErr_Occurred() != NULL;
        if (!failed && values[i] < below)
            continue;
        if (!failed)
            PyErr_Format(PyExc_ValueError, "item %zu is %llu, wanted a number below %llu", i,
                         (unsigned long long)values[i], (unsigned long long)below);
        free(values);
        values = NULL;
    }
    Py_DECREF(held);
    return values;
}

static uint32_t *workers_taken(PyObject *sequence, size_t *count)
{
    uint64_t *wide = taken(sequence, WORKERS_MAX, count);
    uint32_t *workers = wide != NULL ? malloc((*count + 1) * sizeof *workers) : NULL;
    if (wide != NULL && workers == NULL)
        PyErr_NoMemory();
    for (size_t i = 0; workers != NULL && i < *count; i++)
        workers[i] = (uint32_t)wide[i];
    free(wide);
    return workers;
}

static PyObject *prints_mute(PyObject *self, PyObject *sequence)
{
    Prints *p = (Prints *)self;
    size_t count;
    uint32_t *workers = workers_taken(sequence, &count);
    if (workers == NULL)
        return NULL;
    lock(p);
    brick_prints_mute(&p->prints, workers, count);
    unlock(p);
    free(workers);
    Py_RETURN_NONE;
}

static PyObject *prints_select(PyObject *self, PyObject *args)
{
    Prints *p = (Prints *)self, *other = NULL;
    PyObject *sequences[3], *result = NULL;
    uint32_t *taken[3] = {NULL};
    size_t counts[3] = {0};
    if (!PyArg_ParseTuple(args, "OOO:select", &sequences[0], &sequences[1], &sequences[2]))
        return NULL;
    int whole = 1;
    for (size_t i = 0; whole && i < 3; i++)
        whole = (taken[i] = workers_taken(sequences[i], &counts[i])) != NULL;
    if (whole && (counts[1] != counts[0] || counts[2] != counts[0])) {
        PyErr_Format(PyExc_ValueError, "%zu workers, but %zu numbers and %zu services", counts[0], counts[1], counts[2]);
    } else if (whole && (other = prints_made(Py_TYPE(self), PY_SSIZE_T_MAX)) != NULL) {
        uint64_t *ends = calloc(counts[0] + 1, sizeof *ends);
        const struct brick_renumbered r = {taken[0], taken[1], taken[2], counts[0], ends};
        /* It is long, and whoever is heard meanwhile waits for the lock alone. */
        Py_BEGIN_ALLOW_THREADS
        pthread_mutex_lock(&p->mutex);
        whole = ends != NULL && brick_prints_copy(&other->prints, &p->prints, &r);
        pthread_mutex_unlock(&p->mutex);
        Py_END_ALLOW_THREADS
        PyObject *list = whole ? numbers(ends, counts[0]) : PyErr_NoMemory();
        result = list != NULL ? Py_BuildValue("(ON)", other, list) : NULL;
        free(ends);
        Py_DECREF(other);
    }
    for (size_t i = 0; i < 3; i++)
        free(taken[i]);
    return result;
}

/* ---- side by side ------------------------------------------------------- */

static PyObject *known(float error) { return isfinite(error) ? PyFloat_FromDouble(error) : Py_NewRef(Py_None); }

/* Puts what was made into a list; 0, without the list, where that failed. */
static int put(PyObject **list, size_t index, PyObject *made)
{
    if (made == NULL)
        Py_CLEAR(*list);
    else
        PyList_SET_ITEM(*list, (Py_ssize_t)index, made);
    return made != NULL;
}

static PyObject *row_of(const struct brick_match *m, const struct brick_row_found *row)
{
    PyObject *members = PyList_New(row->members);
    for (uint32_t i = 0; members != NULL && i < row->members; i++) {
        const struct brick_member *member = &m->members[row->first + i];
        put(&members, i, Py_BuildValue("(IKi)", member->worker, (unsigned long long)member->number, member->class));
    }
    if (members == NULL)
        return NULL;
    const struct brick_before *before = &row->before;
    return Py_BuildValue("(iIIINNNNI(KKK)N)", row->class, row->against, row->worst, row->agree,
                         known(row->error), known(row->inputs), known(row->tolerance), known(row->rounding), row->contents,
                         (unsigned long long)before->identical, (unsigned long long)before->within,
                         (unsigned long long)before->not_comparable, members);
}

static PyObject *site_of(const struct brick_site_found *s)
{
    PyObject *classes = PyTuple_New(BRICK_CLASSES);
    for (Py_ssize_t i = 0; classes != NULL && i < BRICK_CLASSES; i++) {
        PyObject *count = PyLong_FromUnsignedLongLong(s->classes[i]);
        if (count == NULL)
            Py_CLEAR(classes);
        else
            PyTuple_SET_ITEM(classes, i, count);
    }
    if (classes == NULL)
        return NULL;
    return Py_BuildValue("(KIKKNKKKKd)", (unsigned long long)s->site, s->moment,
                         (unsigned long long)s->prints, (unsigned long long)s->compared, classes,
                         (unsigned long long)s->lone, (unsigned long long)s->bare, (unsigned long long)s->missing,
                         (unsigned long long)s->uncertain, (double)s->error);
}

/* The first rows in order, so many of them, but none that is not comparable instead of one that is. */
static PyObject *rows_of(const struct brick_match *m, size_t most)
{
    size_t comparable = 0, told = 0;
    for (size_t i = 0; i < m->rows_count; i++)
        comparable += m->rows[i].class <= BRICK_CLASS_DIVERGED;
    size_t left[] = {most - (comparable < most ? comparable : most), most};
    PyObject *rows = PyList_New((Py_ssize_t)(m->rows_count < most ? m->rows_count : most));
    for (size_t i = 0; rows != NULL && told < most && i < m->rows_count; i++) {
        size_t *room = &left[m->rows[i].class <= BRICK_CLASS_DIVERGED];
        if (*room > 0 && put(&rows, told, row_of(m, &m->rows[i]))) {
            *room -= 1;
            told++;
        }
    }
    return rows;
}

static PyObject *matched(const struct brick_match *m, size_t most)
{
    PyObject *rows = rows_of(m, most), *sites = PyList_New((Py_ssize_t)m->sites_count);
    PyObject *workers = PyList_New((Py_ssize_t)m->count);
    for (size_t i = 0; sites != NULL && i < m->sites_count; i++)
        put(&sites, i, site_of(&m->sites[i]));
    for (size_t i = 0; workers != NULL && i < m->count; i++) {
        const struct brick_edge *e = &m->edges[i];
        put(&workers, i, Py_BuildValue("(KKK)", (unsigned long long)e->prints, (unsigned long long)e->missing,
                                       (unsigned long long)e->uncertain));
    }
    size_t shared = 0, other = 0;
    for (size_t i = 0; i < m->steps_count; i++) {
        shared += m->steps[i].workers > 1;
        other += m->steps[i].other > 0;
    }
    if (rows != NULL && sites != NULL && workers != NULL)
        return Py_BuildValue("{s:K,s:K,s:N,s:N,s:N,s:(nnn)}", "prints", (unsigned long long)m->prints, "rows_count",
                             (unsigned long long)m->rows_count, "rows", rows, "sites", sites, "workers", workers,
                             "steps", (Py_ssize_t)shared, (Py_ssize_t)(m->steps_count - shared), (Py_ssize_t)other);
    Py_XDECREF(rows);
    Py_XDECREF(sites);
    Py_XDECREF(workers);
    return NULL;
}

/* A number of each worker, of a list that may not be there. 0: it is none. */
static int each_taken(PyObject *list, const char *what, size_t count, uint64_t **numbers)
{
    size_t found;
    if (list == Py_None)
        return 1;
    if ((*numbers = taken(list, UINT64_MAX, &found)) == NULL)
        return 0;
    if (found != count)
        PyErr_Format(PyExc_ValueError, "%zu workers, but %s of %zu", count, what, found);
    return found == count;
}

static PyObject *prints_match(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"workers", "since", "by_input", "step", "rtol", "rows_max", "lost", "worn", NULL};
    Prints *p = (Prints *)self;
    PyObject *workers, *since, *step_wanted = Py_None, *losses = Py_None, *wear = Py_None, *found = NULL;
    Py_ssize_t rows_max = 4096;
    size_t count;
    uint64_t step = 0, *from = NULL, *lost = NULL, *worn = NULL;
    struct brick_match m = {.rtol = -1};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OOp|OdnOO:match", names, &workers, &since, &m.by_input, &step_wanted,
                                     &m.rtol, &rows_max, &losses, &wear))
        return NULL;
    if (step_wanted != Py_None && (step = PyLong_AsUnsignedLongLong(step_wanted)) == (uint64_t)-1 && PyErr_Occurred())
        return NULL;
    uint32_t *which = workers_taken(workers, &count);
    if (which != NULL && each_taken(since, "times", count, &from) && each_taken(losses, "losses", count, &lost)
        && each_taken(wear, "wear", count, &worn)) {
        m.workers = which;
        m.since = from;
        m.lost = lost;
        m.worn = worn;
        m.count = count;
        m.step = step_wanted != Py_None ? &step : NULL;
        int whole;
        Py_BEGIN_ALLOW_THREADS
        pthread_mutex_lock(&p->mutex);
        whole = brick_match(&p->prints, &m);
        pthread_mutex_unlock(&p->mutex);
        Py_END_ALLOW_THREADS
        found = whole ? matched(&m, rows_max < 0 ? 0 : (size_t)rows_max) : PyErr_NoMemory();
        brick_match_free(&m);
    }
    free(which);
    free(from);
    free(lost);
    free(worn);
    return found;
}

static int are_here(const Prints *p, uint64_t one, uint64_t other)
{
    const uint64_t first = p->prints.first, end = p->prints.end;
    return one >= first && one < end && other >= first && other < end;
}

static PyObject *prints_rounded(PyObject *self, PyObject *args)
{
    Prints *p = (Prints *)self;
    unsigned long long one, other;
    if (!PyArg_ParseTuple(args, "KK:rounded", &one, &other))
        return NULL;
    lock(p);
    const int rounded = are_here(p, one, other) ? brick_prints_rounded(&p->prints, one, other) : 0;
    unlock(p);
    return PyLong_FromLong(rounded);
}

static PyObject *prints_contents(PyObject *self, PyObject *args)
{
    Prints *p = (Prints *)self;
    unsigned long long one, other;
    int64_t found = 0;
    if (!PyArg_ParseTuple(args, "KK:contents", &one, &other))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&p->mutex);
    if (are_here(p, one, other))
        found = brick_match_contents(&p->prints, one, other);
    pthread_mutex_unlock(&p->mutex);
    Py_END_ALLOW_THREADS
    return found >= 0 ? PyLong_FromLongLong(found) : PyErr_NoMemory();
}

/* ---- one beside another -------------------------------------------------- */

#define SAID_SLOTS (BRICK_CHECKED_SLOTS(0) - 1u) /* behind the head of a record without inputs */

PyObject *reader_tensor_error(PyObject *module, PyObject *args)
{
    struct brick_record one[SAID_SLOTS + 1] = {{0}}, other[SAID_SLOTS + 1] = {{0}};
    const Py_ssize_t wanted = SAID_SLOTS * sizeof *one;
    Py_buffer a, b;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*y*:tensor_error", &a, &b))
        return NULL;
    if (a.len != wanted || b.len != wanted) {
        PyErr_Format(PyExc_ValueError, "%zd and %zd bytes, wanted are %zd of each", a.len, b.len, wanted);
    } else {
        memcpy(one + 1, a.buf, (size_t)wanted);
        memcpy(other + 1, b.buf, (size_t)wanted);
        const float error = brick_tensor_error(one, other, 0);
        result = isfinite(error) ? PyFloat_FromDouble(error) : Py_NewRef(Py_None);
    }
    PyBuffer_Release(&a);
    PyBuffer_Release(&b);
    return result;
}

static PyMethodDef prints_methods[] = {
    {"add", prints_add, METH_VARARGS,
     "add(worker, service, shard, sites, names, records, named) -> (bytes taken, records of weights); stops before a record whose site or name has no digest, if what is not named is not to pass."},
    {"print", prints_print, METH_O, "print(number) -> (worker, its number for the site, slots), or None: it has gone."},
    {"group", prints_group, METH_O, "group(number) -> [(worker, output, times, newest print)] of those with the same to do."},
    {"unlike", prints_unlike, METH_NOARGS, "The numbers of prints whose group has another output, a few of each site, by turns; each is told once."},
    {"forget", prints_forget, METH_O, "forget(service): nothing is known of its sites any more; what it said last stays."},
    {"mute", prints_mute, METH_O, "mute(workers): what they said is no opinion any more."},
    {"counts", prints_counts, METH_NOARGS, "[(service, site, prints, bare, met, unlike, gone, stateful)] since this was last called, of sites where anything was; site 0: all for which there was no room."},
    {"select", prints_select, METH_VARARGS,
     "select(workers, numbers, services) -> (Prints of these alone, each under another number, numbered afresh; of each the number after its last, or 0)."},
    {"rounded", prints_rounded, METH_VARARGS, "rounded(one, other): whether rounding may have made one of two prints of the other: 1: but in one place at the most, as a flipped bit; 2: in several; 0: it may not, or they are not here."},
    {"contents", prints_contents, METH_VARARGS,
     "contents(one, other): by input: at how many contents those who said these two are apart as those of two numeric classes are; below CONTENTS_MIN nobody knows yet; 0: they are not."},
    {"match", (PyCFunction)(void (*)(void))prints_match, METH_VARARGS | METH_KEYWORDS,
     "match(workers, since, by_input, step=None, rtol=-1, rows_max=4096, lost=None, worn=None): side by side."},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef prints_members[] = {
    {"first", T_ULONGLONG, offsetof(Prints, prints.first), READONLY, "The number of the oldest print that is here."},
    {"end", T_ULONGLONG, offsetof(Prints, prints.end), READONLY, "The number that the next one gets."},
    {"refused", T_ULONGLONG, offsetof(Prints, prints.refused), READONLY, "Records that are none."},
    {"unlike_all", T_ULONGLONG, offsetof(Prints, prints.unlike_all), READONLY, "How many prints' groups had another output; of those that rounding may have made, one each time that they are told."},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot prints_slots[] = {
    {Py_tp_new, prints_new},
    {Py_tp_dealloc, prints_dealloc},
    {Py_tp_methods, prints_methods},
    {Py_tp_members, prints_members},
    {Py_tp_doc, "Prints(bytes_max): what workers said of their tensors, the newest of it."},
    {0, NULL},
};
PyType_Spec prints_spec = {"brickd.shm._reader.Prints", sizeof(Prints), 0, Py_TPFLAGS_DEFAULT, prints_slots};
