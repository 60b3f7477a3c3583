/* python/py_fingerprints.c - brickd.shm._reader.Fingerprints: the newest fingerprints of workers, by number and by
 * group.
 *
 * Every method holds the lock while it reads or changes the window, and creates no object under the lock.
 */
#include "py_fingerprints.h"

#include "../core/births.h"

#include <stdlib.h>
#include <sys/random.h>

static Fingerprints *fingerprints_made(PyTypeObject *type, Py_ssize_t bytes_max, int shares)
{
    uint64_t key;
    Fingerprints *self = (Fingerprints *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->opened = pthread_mutex_init(&self->mutex, NULL) == 0;
    if (self->opened && getrandom(&key, sizeof key, 0) == (ssize_t)sizeof key
        && brick_windows_init(&self->all, (size_t)bytes_max, key, shares))
        return self;
    Py_DECREF(self);
    PyErr_NoMemory();
    return NULL;
}

static PyObject *fingerprints_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"bytes_max", "shares", NULL};
    Py_ssize_t bytes_max;
    int shares = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "n|p:Fingerprints", names, &bytes_max, &shares))
        return NULL;
    if (bytes_max < 0)
        return PyErr_Format(PyExc_ValueError, "the bound of bytes is %zd, expected 0 or more", bytes_max);
    return (PyObject *)fingerprints_made(type, bytes_max, shares);
}

struct brick_fingerprints *window_of_all(Fingerprints *p)
{
    if (!p->all.shares)
        return &p->all.windows[0].window;
    PyErr_SetString(PyExc_ValueError, "services have separate windows: make a copy first");
    return NULL;
}

static void fingerprints_dealloc(PyObject *self)
{
    brick_windows_free(&((Fingerprints *)self)->all);
    if (((Fingerprints *)self)->opened)
        pthread_mutex_destroy(&((Fingerprints *)self)->mutex);
    plain_dealloc(self);
}

/* ---- adding ------------------------------------------------------------- */

/* The result of one call of add(), and what it was asked to do. */
struct added {
    Py_ssize_t bytes;
    struct brick_record *weights; /* NULL: there were none so far */
    size_t weights_count;
    uint64_t left_out[BRICK_TIERS];
    int no_memory;
    unsigned leaves_out; /* a bit for each tier whose records are only counted, not added */
};

/* Copies the record of a weight to a->weights. Returns 0 if its site is unknown or if there is no memory. */
static int add_weight(struct brick_fingerprints *p, const struct brick_origin *by, const struct brick_record *slots,
                      size_t left, struct added *a)
{
    const struct brick_checked *c = (const struct brick_checked *)(const void *)slots;
    const struct brick_tensor_sums *sums = (const struct brick_tensor_sums *)(const void *)&slots[2];
    if (by->named && (c->site >= by->sites_count || by->sites[c->site] == 0))
        return 0;
    if (sums->dtype == 0) { /* refuse a tensor that was not read, because all such tensors would look equal */
        p->refused++;
        return 1;
    }
    if (a->weights == NULL && (a->weights = malloc(left * sizeof *slots)) == NULL) {
        a->no_memory = 1;
        return 0;
    }
    memcpy(a->weights + a->weights_count, slots, c->slots * sizeof *slots);
    a->weights_count += c->slots;
    return 1;
}

static void add_all(struct brick_windows *all, const struct brick_origin *by, const char *bytes, Py_ssize_t length,
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
        const enum brick_tier tier = c->kind == BRICK_KIND_CHECKED ? brick_tier_of_flags(c->flags) : BRICK_TIER_TENSORS;
        if ((a->leaves_out >> tier & 1) != 0 && c->slots == BRICK_CHECKED_SLOTS(c->inputs) && c->slots <= left) {
            a->left_out[tier] += tier == BRICK_TIER_ROWS ? (c->inputs + 1u) / 2 : 1;
            at += c->slots;
            a->bytes = (Py_ssize_t)(at * sizeof *slots);
            continue;
        }
        struct brick_service_window *of = brick_windows_made(all, by->service, tier);
        struct brick_fingerprints *p = of != NULL ? &of->window : NULL;
        const enum brick_added added = p == NULL ? BRICK_ADDED_NO_MEMORY
                                       : weight  ? BRICK_ADDED
                                                 : brick_fingerprints_add(p, by, slots, left);
        a->no_memory |= added == BRICK_ADDED_NO_MEMORY;
        if (added == BRICK_ADDED_NOT) /* after an invalid record, the start of the next one cannot be known */
            break;
        if (added != BRICK_ADDED || (weight && !add_weight(p, by, slots, left, a)))
            return;
        at += c->slots;
        a->bytes = (Py_ssize_t)(at * sizeof *slots);
    }
    a->bytes = length;
}

static PyObject *number_list(const uint64_t *from, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list != NULL && i < count; i++)
        list_put(&list, i, PyLong_FromUnsignedLongLong(from[i]));
    return list;
}

static PyObject *fingerprints_add(PyObject *self, PyObject *args)
{
    Fingerprints *p = (Fingerprints *)self;
    Py_buffer sites, names, records;
    unsigned int worker, service;
    unsigned long long shard;
    unsigned int leaves_out = 0;
    int named;
    if (!PyArg_ParseTuple(args, "IIKy*y*y*p|I:add", &worker, &service, &shard, &sites, &names, &records, &named, &leaves_out))
        return NULL;
    const struct brick_origin by = {
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
    struct added a = {.leaves_out = leaves_out};
    if (worker >= WORKERS_MAX) {
        PyErr_Format(PyExc_ValueError, "the worker's number must be below %d, not %u", WORKERS_MAX, worker);
    } else {
        take_lock(&p->mutex);
        add_all(&p->all, &by, records.buf, records.len, &a);
        for (int tier = 0; tier < BRICK_TIERS; tier++)
            p->left_out[tier] += a.left_out[tier];
        pthread_mutex_unlock(&p->mutex);
        result = a.no_memory ? PyErr_NoMemory()
                             : Py_BuildValue("(ny#)", a.bytes, a.weights != NULL ? (const char *)a.weights : "",
                                             (Py_ssize_t)(a.weights_count * sizeof *a.weights));
    }
    free(a.weights);
    PyBuffer_Release(&sites);
    PyBuffer_Release(&names);
    PyBuffer_Release(&records);
    return result;
}

/* ---- looking ------------------------------------------------------------ */

static PyObject *fingerprints_unlike(PyObject *self, PyObject *unused)
{
    Fingerprints *p = (Fingerprints *)self;
    uint64_t waiting[BRICK_UNLIKE_MAX + BRICK_WINDOWS_MAX + BRICK_TIERS]; /* each window returns at least one */
    size_t count = 0;
    take_lock(&p->mutex);
    for (size_t n = 0; n < p->all.count; n++) {
        struct brick_service_window *of = &p->all.windows[n];
        const uint32_t share = BRICK_UNLIKE_MAX / (uint32_t)p->all.count;
        size_t taken = brick_fingerprints_take_unlike(&of->window, waiting + count, share > 0 ? share : 1);
        for (; taken > 0; taken--, count++)
            waiting[count] = brick_windows_number(of, waiting[count]);
    }
    pthread_mutex_unlock(&p->mutex);
    return number_list(waiting, count);
}

static PyObject *fingerprints_read(PyObject *self, PyObject *number)
{
    Fingerprints *p = (Fingerprints *)self;
    struct brick_record slots[BRICK_CHECKED_SLOTS_MAX];
    struct brick_kept_fingerprint fingerprint;
    const uint64_t n = PyLong_AsUnsignedLongLong(number);
    if (n == (uint64_t)-1 && PyErr_Occurred())
        return NULL;
    uint64_t there;
    take_lock(&p->mutex);
    const struct brick_fingerprints *window = brick_windows_hold(&p->all, n, &there);
    if (window != NULL) {
        fingerprint = *brick_fingerprints_at(window, there);
        brick_fingerprints_slots(window, &fingerprint, slots);
    }
    pthread_mutex_unlock(&p->mutex);
    if (window == NULL)
        Py_RETURN_NONE;
    return Py_BuildValue("(IKy#)", fingerprint.worker, (unsigned long long)brick_fingerprint_site(&fingerprint),
                         (const char *)slots, (Py_ssize_t)(fingerprint.slots * sizeof *slots));
}

struct current {
    uint64_t output, number;
    uint32_t worker, count;
};

static PyObject *fingerprints_group(PyObject *self, PyObject *number)
{
    Fingerprints *p = (Fingerprints *)self;
    const uint64_t n = PyLong_AsUnsignedLongLong(number);
    if (n == (uint64_t)-1 && PyErr_Occurred())
        return NULL;
    struct current *copy = NULL;
    size_t count = 0, room = 0;
    int whole = 1;
    uint64_t there;
    take_lock(&p->mutex);
    const struct brick_fingerprints *window = brick_windows_hold(&p->all, n, &there);
    const uint64_t first = window != NULL ? brick_fingerprints_current(window, brick_fingerprints_at(window, there)) : 0;
    for (uint64_t at = first; window != NULL && whole && at != window->end; count++) {
        const struct brick_kept_fingerprint *fingerprint = brick_fingerprints_at(window, at);
        if (count == room) {
            room = room > 0 ? 2 * room : 64;
            struct current *more = realloc(copy, room * sizeof *more);
            whole = more != NULL;
            copy = whole ? more : copy;
        }
        if (whole)
            copy[count] = (struct current){fingerprint->output, n - there + at, fingerprint->worker, fingerprint->count};
        at = brick_fingerprints_next(window, at);
        at = at != first ? at : window->end;
    }
    pthread_mutex_unlock(&p->mutex);
    PyObject *rows = whole ? PyList_New((Py_ssize_t)count) : PyErr_NoMemory();
    for (size_t i = 0; rows != NULL && i < count; i++)
        list_put(&rows, i, Py_BuildValue("(IKIK)", copy[i].worker, (unsigned long long)copy[i].output,
                                         (unsigned int)copy[i].count, (unsigned long long)copy[i].number));
    free(copy);
    return rows;
}

static PyObject *fingerprints_counts(PyObject *self, PyObject *unused)
{
    Fingerprints *p = (Fingerprints *)self;
    size_t count = 0, put = 0;
    take_lock(&p->mutex);
    for (size_t n = 0; n < p->all.count; n++)
        count += p->all.windows[n].window.changed_count;
    struct brick_site_count *copy = malloc((count + 1) * sizeof *copy);
    for (size_t n = 0; copy != NULL && n < p->all.count; n++) {
        struct brick_fingerprints *window = &p->all.windows[n].window;
        const size_t changed = window->changed_count;
        brick_fingerprints_take_counts(window, copy + put);
        put += changed;
    }
    pthread_mutex_unlock(&p->mutex);
    PyObject *rows = copy != NULL ? PyList_New((Py_ssize_t)count) : PyErr_NoMemory();
    for (size_t i = 0; rows != NULL && i < count; i++) {
        const struct brick_site_count *c = &copy[i];
        list_put(&rows, i, Py_BuildValue("(IKKKKKKK)", c->service, (unsigned long long)c->site,
                                         (unsigned long long)c->fingerprints, (unsigned long long)c->bare,
                                         (unsigned long long)c->met, (unsigned long long)c->unlike,
                                         (unsigned long long)c->gone, (unsigned long long)c->stateful));
    }
    free(copy);
    return rows;
}

static PyObject *fingerprints_births(PyObject *self, PyObject *unused)
{
    Fingerprints *p = (Fingerprints *)self;
    struct brick_births *rows = malloc(BRICK_BIRTHS_ROWS_MAX * sizeof *rows);
    size_t count = 0;
    int whole = rows != NULL;
    take_lock(&p->mutex);
    for (size_t n = 0; whole && n < p->all.count; n++) {
        const size_t more = brick_births_rows(&p->all.windows[n].window, rows + count, BRICK_BIRTHS_ROWS_MAX / p->all.count);
        whole = more != SIZE_MAX;
        count += whole ? more : 0;
    }
    pthread_mutex_unlock(&p->mutex);
    PyObject *list = whole ? PyList_New((Py_ssize_t)count) : PyErr_NoMemory();
    for (size_t i = 0; list != NULL && i < count; i++) {
        const struct brick_births *b = &rows[i];
        list_put(&list, i, Py_BuildValue("(IKII(II)(II)(II))", b->service, (unsigned long long)b->site, b->worker,
                                         b->fingerprints, b->first[0], b->times[0], b->first[1], b->times[1],
                                         b->first[2], b->times[2]));
    }
    free(rows);
    return list;
}

static int service_of(PyObject *number, uint32_t *service)
{
    const unsigned long value = PyLong_AsUnsignedLong(number);
    if (value == (unsigned long)-1 && PyErr_Occurred())
        return 0;
    if (value > UINT32_MAX) {
        PyErr_Format(PyExc_ValueError, "the service's number must be below 2^32, not %lu", value);
        return 0;
    }
    *service = (uint32_t)value;
    return 1;
}

static PyObject *fingerprints_forget(PyObject *self, PyObject *number)
{
    Fingerprints *p = (Fingerprints *)self;
    uint32_t service;
    if (!service_of(number, &service))
        return NULL;
    take_lock(&p->mutex);
    int done = 1;
    for (int tier = 0; tier < BRICK_TIERS; tier++) {
        struct brick_service_window *of = brick_windows_of(&p->all, service, (enum brick_tier)tier);
        done &= of == NULL || brick_fingerprints_forget(&of->window, service);
    }
    pthread_mutex_unlock(&p->mutex);
    return done ? Py_NewRef(Py_None) : PyErr_NoMemory();
}

uint64_t *numbers_in(PyObject *sequence, uint64_t below, size_t *count)
{
    PyObject *tuple = PySequence_Tuple(sequence);
    if (tuple == NULL)
        return NULL;
    *count = (size_t)PyTuple_GET_SIZE(tuple);
    uint64_t *values = malloc((*count + 1) * sizeof *values);
    if (values == NULL)
        PyErr_NoMemory();
    for (size_t i = 0; values != NULL && i < *count; i++) {
        values[i] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(tuple, (Py_ssize_t)i));
        const int failed = values[i] == (uint64_t)-1 && PyErr_Occurred() != NULL;
        if (!failed && values[i] < below)
            continue;
        if (!failed)
            PyErr_Format(PyExc_ValueError, "item %zu is %llu, expected a number below %llu", i,
                         (unsigned long long)values[i], (unsigned long long)below);
        free(values);
        values = NULL;
    }
    Py_DECREF(tuple);
    return values;
}

int is_tier(int tier)
{
    if (tier >= 0 && tier < BRICK_TIERS)
        return 1;
    PyErr_Format(PyExc_ValueError, "the tier is %d, expected 0 to %d", tier, BRICK_TIERS - 1);
    return 0;
}

uint32_t *workers_in(PyObject *sequence, size_t *count)
{
    uint64_t *wide = numbers_in(sequence, WORKERS_MAX, count);
    uint32_t *workers = wide != NULL ? malloc((*count + 1) * sizeof *workers) : NULL;
    if (wide != NULL && workers == NULL)
        PyErr_NoMemory();
    for (size_t i = 0; workers != NULL && i < *count; i++)
        workers[i] = (uint32_t)wide[i];
    free(wide);
    return workers;
}

static PyObject *fingerprints_mute(PyObject *self, PyObject *sequence)
{
    Fingerprints *p = (Fingerprints *)self;
    size_t count;
    uint32_t *workers = workers_in(sequence, &count);
    if (workers == NULL)
        return NULL;
    take_lock(&p->mutex);
    for (size_t n = 0; n < p->all.count; n++)
        brick_fingerprints_mute(&p->all.windows[n].window, workers, count);
    pthread_mutex_unlock(&p->mutex);
    free(workers);
    Py_RETURN_NONE;
}

static PyObject *fingerprints_select(PyObject *self, PyObject *args)
{
    Fingerprints *p = (Fingerprints *)self, *other = NULL;
    PyObject *sequences[3], *result = NULL;
    uint32_t *taken[3] = {NULL};
    size_t counts[3] = {0};
    if (!PyArg_ParseTuple(args, "OOO:select", &sequences[0], &sequences[1], &sequences[2]))
        return NULL;
    int whole = 1;
    for (size_t i = 0; whole && i < 3; i++)
        whole = (taken[i] = workers_in(sequences[i], &counts[i])) != NULL;
    if (whole && (counts[1] != counts[0] || counts[2] != counts[0])) {
        PyErr_Format(PyExc_ValueError, "%zu workers, but %zu numbers and %zu services", counts[0], counts[1], counts[2]);
    } else if (whole && (other = fingerprints_made(Py_TYPE(self), PY_SSIZE_T_MAX, 0)) != NULL) {
        uint64_t *ends = calloc(counts[0] + 1, sizeof *ends);
        const struct brick_renumbered r = {taken[0], taken[1], taken[2], counts[0], ends};
        /* The copy takes long. The interpreter lock is released, so only threads that use the fingerprints wait. */
        Py_BEGIN_ALLOW_THREADS
        pthread_mutex_lock(&p->mutex);
        whole = ends != NULL;
        for (size_t n = 0; whole && n < p->all.count; n++)
            whole = brick_fingerprints_copy(&other->all.windows[0].window, &p->all.windows[n].window, &r);
        pthread_mutex_unlock(&p->mutex);
        Py_END_ALLOW_THREADS
        PyObject *list = whole ? number_list(ends, counts[0]) : PyErr_NoMemory();
        result = list != NULL ? Py_BuildValue("(ON)", other, list) : NULL;
        free(ends);
        Py_DECREF(other);
    }
    for (size_t i = 0; i < 3; i++)
        free(taken[i]);
    return result;
}

static PyObject *fingerprints_extent(PyObject *self, PyObject *args)
{
    Fingerprints *p = (Fingerprints *)self;
    PyObject *number;
    uint32_t service;
    int tier;
    if (!PyArg_ParseTuple(args, "Oi:extent", &number, &tier) || !service_of(number, &service) || !is_tier(tier))
        return NULL;
    take_lock(&p->mutex);
    const struct brick_service_window *of = brick_windows_of(&p->all, service, (enum brick_tier)tier);
    const uint64_t window = of != NULL ? of->number : p->all.numbers;
    const uint64_t first = of != NULL ? of->window.first : 0, end = of != NULL ? of->window.end : 0;
    pthread_mutex_unlock(&p->mutex);
    return Py_BuildValue("(KKK)", (unsigned long long)window, (unsigned long long)first, (unsigned long long)end);
}

static PyObject *fingerprints_drop(PyObject *self, PyObject *number)
{
    Fingerprints *p = (Fingerprints *)self;
    uint32_t service;
    if (!service_of(number, &service))
        return NULL;
    take_lock(&p->mutex);
    brick_windows_drop(&p->all, service);
    pthread_mutex_unlock(&p->mutex);
    Py_RETURN_NONE;
}

static PyMethodDef fingerprints_methods[] = {
    {"add", fingerprints_add, METH_VARARGS,
     "Add records; return (bytes taken, records of weights). With `named`, stop before a record whose site or name has "
     "no digest."},
    {"read", fingerprints_read, METH_O,
     "(worker, the worker's number for the site, slots), or None if the fingerprint was evicted."},
    {"group", fingerprints_group, METH_O,
     "[(worker, output, times, number)] of the current fingerprints in the group of a fingerprint."},
    {"unlike", fingerprints_unlike, METH_NOARGS,
     "Numbers of fingerprints whose group also has another output: a few per site, each returned once."},
    {"forget", fingerprints_forget, METH_O, "Drop the counts of a service's sites, but keep its fingerprints."},
    {"extent", fingerprints_extent, METH_VARARGS,
     "(window, evicted, received): the number of the window for a service's fingerprints of a tier, and how many "
     "fingerprints it has evicted and received."},
    {"drop", fingerprints_drop, METH_O, "Drop the fingerprints of a service that has separate windows."},
    {"mute", fingerprints_mute, METH_O, "Remove the fingerprints of workers from all groups."},
    {"counts", fingerprints_counts, METH_NOARGS,
     "[(service, site, fingerprints, bare, met, unlike, gone, stateful)] of the sites that changed since the last "
     "call; site 0 stands for all sites that got no room."},
    {"births", fingerprints_births, METH_NOARGS,
     "[(service, site, worker, fingerprints, NaN, +Inf, -Inf)] at sites with births. Each of the last three is a pair: "
     "which fingerprint was born first, counted from 1, and how many were born."},
    {"select", fingerprints_select, METH_VARARGS,
     "Copy the fingerprints of these workers into one window, with new numbers. Return (the copy, for each worker the "
     "number after its last fingerprint, or 0)."},
    {"rounded", fingerprints_rounded, METH_VARARGS,
     "Whether rounding may explain the difference of two fingerprints. 1: yes, but it is in at most one place, like a "
     "flipped bit; 2: yes, it is in several places; 0: no, or one is evicted."},
    {"contents", fingerprints_contents, METH_VARARGS,
     "For how many contents the workers of these two fingerprints differ as two numeric classes do (match.h). Below "
     "CONTENTS_MIN: too few to decide; 0: not two classes."},
    {"row_pairs", fingerprints_row_pairs, METH_VARARGS,
     "[(one, other, rows, apart, far, unlike_own, newest, differs)] for pairs of a service's workers at a site of "
     "rows; the last five have a value for each worker (row_pairs.h)."},
    {"rows_apart", fingerprints_rows_apart, METH_VARARGS,
     "How many rows of a service in a tier cannot be compared, because other workers had them only in another context, "
     "or only with another lineage."},
    {"rows_repeated", fingerprints_rows_repeated, METH_VARARGS,
     "How many rows at a site of a service had the same output in several steps of a worker (row_census.h)."},
    {"match", (PyCFunction)(void (*)(void))fingerprints_match, METH_VARARGS | METH_KEYWORDS, "Compare workers."},
    {NULL, NULL, 0, NULL},
};
static PyObject *fingerprints_sum(PyObject *self, void *of)
{
    Fingerprints *p = (Fingerprints *)self;
    take_lock(&p->mutex);
    const uint64_t sum = brick_windows_sum(&p->all, (enum brick_windows_sum)(intptr_t)of);
    pthread_mutex_unlock(&p->mutex);
    return PyLong_FromUnsignedLongLong(sum);
}

static PyObject *fingerprints_left_out(PyObject *self, void *unused)
{
    Fingerprints *p = (Fingerprints *)self;
    unsigned long long left_out[BRICK_TIERS];
    take_lock(&p->mutex);
    for (int tier = 0; tier < BRICK_TIERS; tier++)
        left_out[tier] = p->left_out[tier];
    pthread_mutex_unlock(&p->mutex);
    return Py_BuildValue("(KKK)", left_out[BRICK_TIER_TENSORS], left_out[BRICK_TIER_ROWS], left_out[BRICK_TIER_HISTORY]);
}

static PyGetSetDef fingerprints_sums[] = {
    {"left_out", fingerprints_left_out, NULL, "For each tier, how many fingerprints were only counted, not added.", NULL},
    {"first", fingerprints_sum, NULL,
     "How many fingerprints were evicted; if there is one window, also the number of the oldest fingerprint.",
     (void *)BRICK_SUM_FIRST},
    {"end", fingerprints_sum, NULL,
     "How many fingerprints were ever added; if there is one window, also the number of the next fingerprint.",
     (void *)BRICK_SUM_END},
    {"refused", fingerprints_sum, NULL, "How many records were invalid.", (void *)BRICK_SUM_REFUSED},
    {"unlike_all", fingerprints_sum, NULL,
     "How many fingerprints found another output in their group. If rounding may explain the difference, a site counts "
     "only once between two calls of unlike().",
     (void *)BRICK_SUM_UNLIKE},
    {"untracked", fingerprints_sum, NULL,
     "How many fingerprints got no row in the table of births, because it is full.",
     (void *)BRICK_SUM_UNTRACKED},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot fingerprints_slots[] = {
    {Py_tp_new, fingerprints_new},
    {Py_tp_dealloc, fingerprints_dealloc},
    {Py_tp_methods, fingerprints_methods},
    {Py_tp_getset, fingerprints_sums},
    {Py_tp_doc,
     "Fingerprints(bytes_max, shares=False): the newest fingerprints of workers. With shares, each service has one "
     "window for each tier that it sends, and all windows may use the same number of bytes."},
    {0, NULL},
};
PyType_Spec fingerprints_spec = {"brickd.shm._reader.Fingerprints", sizeof(Fingerprints), 0, Py_TPFLAGS_DEFAULT,
                                 fingerprints_slots};
