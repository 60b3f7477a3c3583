/* python/fn_drain.c - functions of brickd.shm._reader: `drain` makes a pass over many segments, `tails` returns what
 * must be written to the segments after the pass, and `rest` waits until the next pass is useful.
 *
 * While a pass reads a segment, it holds the lock of that segment, but not the interpreter lock. Python objects are
 * created after the pass.
 */
#include "py_drain.h"

#include <poll.h>

/* The result of one pass over one segment. */
struct outcome {
    struct brick_record *records;
    size_t count;
    int refused; /* whether this pass refused the segment */
    uint64_t read; /* the number of bytes read */
    struct drain_numbers seen;
};

/* Each thread keeps one, because allocating this memory for each pass would take longer than the pass itself. */
static _Thread_local struct brick_scratch scratch;

static struct outcome pass(Drain *self)
{
    struct brick_drain *d = &self->drain;
    pthread_mutex_lock(&self->mutex);
    const uint64_t fetched = d->reader.fetched;
    int before = d->refused, whole = brick_drain_pass(d, &scratch);
    struct outcome o = {.records = d->events.records, .count = d->events.count, .refused = !whole && !before};
    d->events.records = NULL; /* the caller frees it, so that a large pass keeps no memory */
    d->events.count = d->events.room = 0;
    o.seen = (struct drain_numbers){
        .activity = d->activity,
        .spans = d->details.spans,
        .rejected = d->details.rejected + d->events.rejected,
        .skipped = d->details.skipped + d->events.skipped,
        .gaps = d->events.gaps,
        .checked = d->events.whole,
        .fill = d->fill,
        .held = d->held,
        .breaks = d->breaks,
        .complete = (char)d->complete,
        .ended = (char)d->ended,
        .resident = brick_drain_resident(d),
    };
    o.read = d->reader.fetched - fetched;
    pthread_mutex_unlock(&self->mutex);
    return o;
}

static PyObject *result_of(Py_ssize_t index, const Drain *d, const struct outcome *o)
{
    /* The reason can be read without the lock: a refusal is final, so its reason does not change any more. */
    const char *records = o->count > 0 ? (const char *)o->records : NULL;
    return Py_BuildValue("(ny#z)", index, records, (Py_ssize_t)(o->count * sizeof *o->records),
                         o->refused ? d->drain.reader.reason : NULL);
}

static PyObject *drains_of(PyObject *module, PyObject *segments)
{
    PyTypeObject *type = ((struct reader_state *)PyModule_GetState(module))->drain;
    PyObject *drains = PySequence_Tuple(segments);
    for (Py_ssize_t i = 0; drains != NULL && i < PyTuple_GET_SIZE(drains); i++) {
        if (!Py_IS_TYPE(PyTuple_GET_ITEM(drains, i), type)) {
            PyErr_Format(PyExc_TypeError, "item %zd is a %s, expected a Drain", i,
                         Py_TYPE(PyTuple_GET_ITEM(drains, i))->tp_name);
            Py_CLEAR(drains);
        }
    }
    return drains;
}

static double waiting(Drain *self)
{
    pthread_mutex_lock(&self->mutex);
    double fill = brick_drain_waiting(&self->drain, &scratch);
    pthread_mutex_unlock(&self->mutex);
    return fill;
}

/* Waits until one of two descriptors is readable, or any ring is full enough to drain, or `looks` intervals are over.
 * Checks the rings after each interval, without the interpreter lock. Returns for each descriptor whether it is
 * readable. */
PyObject *reader_rest(PyObject *module, PyObject *args)
{
    PyObject *segments;
    struct pollfd fds[2] = {{.events = POLLIN}, {.events = POLLIN}};
    int interval_ms, looks;
    double enough;
    if (!PyArg_ParseTuple(args, "O(ii)iid:rest", &segments, &fds[0].fd, &fds[1].fd, &interval_ms, &looks, &enough))
        return NULL;
    PyObject *drains = drains_of(module, segments);
    if (drains == NULL)
        return NULL;
    int full = 0;
    Py_BEGIN_ALLOW_THREADS
    while (!full && poll(fds, 2, interval_ms) == 0 && --looks > 0)
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(drains) && !full; i++) {
            double fill = waiting((Drain *)PyTuple_GET_ITEM(drains, i));
            full = fill > 0 && fill >= enough;
        }
    Py_END_ALLOW_THREADS
    Py_DECREF(drains);
    return Py_BuildValue("(NN)", PyBool_FromLong(fds[0].revents), PyBool_FromLong(fds[1].revents));
}

PyObject *reader_drain(PyObject *module, PyObject *args)
{
    PyObject *segments, *results = NULL;
    Py_ssize_t first = 0;
    unsigned long long bytes = UINT64_MAX, read = 0;
    if (!PyArg_ParseTuple(args, "O|nK:drain", &segments, &first, &bytes))
        return NULL;
    if (first < 0)
        return PyErr_Format(PyExc_ValueError, "first is %zd, expected 0 or more", first);
    PyObject *drains = drains_of(module, segments);
    const Py_ssize_t all = drains != NULL ? PyTuple_GET_SIZE(drains) : 0, from = first < all ? first : all;
    struct outcome *outcomes = PyMem_Calloc((size_t)(all - from) + 1, sizeof *outcomes);
    if (drains == NULL || outcomes == NULL) {
        if (drains != NULL)
            PyErr_NoMemory();
        goto done;
    }
    Py_ssize_t end = from;
    Py_BEGIN_ALLOW_THREADS
    for (; end < all && read < bytes; end++) {
        outcomes[end - from] = pass((Drain *)PyTuple_GET_ITEM(drains, end));
        read += outcomes[end - from].read;
    }
    Py_END_ALLOW_THREADS
    results = PyList_New(0);
    for (Py_ssize_t i = from; i < end; i++) {
        Drain *d = (Drain *)PyTuple_GET_ITEM(drains, i);
        struct outcome *o = &outcomes[i - from];
        d->seen = o->seen;
        d->read += o->read;
        if (results != NULL && (o->count > 0 || o->refused))
            list_append(&results, result_of(i, d, o));
        free(o->records);
    }
    first = end;
done:
    PyMem_Free(outcomes);
    Py_XDECREF(drains);
    return results != NULL ? Py_BuildValue("(nKN)", first, read, results) : NULL;
}

PyObject *reader_tails(PyObject *module, PyObject *args)
{
    PyObject *segments;
    int events;
    if (!PyArg_ParseTuple(args, "Op:tails", &segments, &events))
        return NULL;
    PyObject *drains = drains_of(module, segments), *writes = drains != NULL ? PyList_New(0) : NULL;
    for (Py_ssize_t i = 0; writes != NULL && i < PyTuple_GET_SIZE(drains); i++)
        drain_tails((Drain *)PyTuple_GET_ITEM(drains, i), events, &writes);
    Py_XDECREF(drains);
    return writes;
}
