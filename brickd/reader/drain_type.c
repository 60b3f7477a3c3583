/* drain_type.c - brickd._reader.Drain, and drain(): one pass over many of them.
 *
 * A pass runs without the interpreter lock and holds the lock of the segment
 * that it is at; every method holds it while it takes its copy, and makes no
 * object meanwhile. The numbers in the attributes are those of the pass that
 * drain() last came back from.
 */
#include "drain.h"
#include "types.h"

#include <pthread.h>
#include <structmember.h>
#include <sys/stat.h>

typedef struct {
    PyObject_HEAD
    struct brick_drain drain;
    pthread_mutex_t mutex;
    int opened; /* the mutex is there */
    struct numbers {
        unsigned long long activity, spans, rejected, skipped, gaps;
        double fill, held;
        unsigned int breaks;
        char complete, ended;
    } seen;
} Drain;

static void lock(Drain *d)
{
    if (pthread_mutex_trylock(&d->mutex) == 0)
        return;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&d->mutex);
    Py_END_ALLOW_THREADS
}

static void unlock(Drain *d) { pthread_mutex_unlock(&d->mutex); }

static int resume(Drain *d, PyObject *cursors)
{
    PyObject *rows = PySequence_Tuple(cursors);
    if (rows == NULL)
        return 0;
    int whole = 1;
    for (Py_ssize_t n = 0; whole && n < PyTuple_GET_SIZE(rows); n++) {
        uint64_t values[5];
        PyObject *row = PySequence_Tuple(PyTuple_GET_ITEM(rows, n));
        whole = row != NULL && PyTuple_GET_SIZE(row) == 5;
        if (row != NULL && !whole)
            PyErr_Format(PyExc_ValueError, "the cursor of lane %zd has %zd numbers, not 5", n, PyTuple_GET_SIZE(row));
        for (Py_ssize_t i = 0; whole && i < 5; i++) {
            values[i] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(row, i));
            whole = values[i] != (uint64_t)-1 || PyErr_Occurred() == NULL;
        }
        Py_XDECREF(row);
        if (!whole)
            break;
        struct brick_cursor cursor = {.span = values[0], .event = {values[1], values[2], values[3]}, .spans_lost = values[4]};
        whole = brick_drain_resume(&d->drain, &cursor);
        if (!whole)
            PyErr_Format(PyExc_ValueError, "cursors for %zd lanes, the segment has %u", PyTuple_GET_SIZE(rows),
                         d->drain.reader.header.lanes);
    }
    Py_DECREF(rows);
    return whole;
}

static PyObject *drain_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"fd", "cursors", NULL};
    int fd;
    PyObject *cursors = Py_None;
    struct stat status;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "i|O:Drain", names, &fd, &cursors))
        return NULL;
    if (fstat(fd, &status) != 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    Drain *d = (Drain *)type->tp_alloc(type, 0);
    if (d == NULL)
        return NULL;
    d->opened = pthread_mutex_init(&d->mutex, NULL) == 0;
    d->drain.reader.source = (struct brick_source){.read = brick_read_fd, .fd = fd};
    d->seen.complete = 1;
    if (!d->opened)
        PyErr_NoMemory();
    else if (!brick_drain_open(&d->drain, (uint64_t)status.st_size))
        PyErr_SetString(PyExc_ValueError, d->drain.reader.reason);
    else if (cursors == Py_None || resume(d, cursors))
        return (PyObject *)d;
    Py_DECREF(d);
    return NULL;
}

static void drain_dealloc(PyObject *self)
{
    Drain *d = (Drain *)self;
    brick_drain_free(&d->drain);
    if (d->opened)
        pthread_mutex_destroy(&d->mutex);
    plain_dealloc(self);
}

/* ---- passes ------------------------------------------------------------ */

/* What one pass over one segment came to. */
struct outcome {
    struct brick_record *records;
    size_t count;
    int refused; /* now, not before */
    struct numbers seen;
};

/* Of this thread, for as long as it lives: memory that came and went with each tick would cost more than a tick. */
static _Thread_local struct brick_record chunk[BRICK_CHUNK] __attribute__((aligned(64)));

static struct outcome pass(Drain *self)
{
    struct brick_drain *d = &self->drain;
    pthread_mutex_lock(&self->mutex);
    int before = d->refused, whole = brick_drain_pass(d, chunk);
    struct outcome o = {.records = d->events.records, .count = d->events.count, .refused = !whole && !before};
    d->events.records = NULL; /* a pass with many would leave its memory to all that come */
    d->events.count = d->events.room = 0;
    o.seen = (struct numbers){.activity = d->activity,
                              .spans = d->details.spans,
                              .rejected = d->details.rejected + d->events.rejected,
                              .skipped = d->details.skipped + d->events.skipped,
                              .gaps = d->events.gaps,
                              .fill = d->fill,
                              .held = d->held,
                              .breaks = d->breaks,
                              .complete = (char)d->complete,
                              .ended = d->lines->process.reserved[BRICK_PROCESS_ENDED] != 0};
    pthread_mutex_unlock(&self->mutex);
    return o;
}

static PyObject *result_of(Py_ssize_t index, const Drain *d, const struct outcome *o)
{
    PyObject *records = o->count > 0 ? PyBytes_FromStringAndSize((const char *)o->records,
                                                                 (Py_ssize_t)(o->count * sizeof *o->records))
                                     : Py_NewRef(Py_None);
    /* A refused one stays so: nobody changes its reason any more. */
    PyObject *reason = o->refused ? PyUnicode_DecodeUTF8(d->drain.reader.reason, (Py_ssize_t)strlen(d->drain.reader.reason),
                                                         "replace")
                                  : Py_NewRef(Py_None);
    return records != NULL && reason != NULL ? Py_BuildValue("(nNN)", index, records, reason) : NULL;
}

PyObject *reader_drain(PyObject *module, PyObject *segments)
{
    PyTypeObject *type = ((struct reader_state *)PyModule_GetState(module))->drain;
    PyObject *held = PySequence_Tuple(segments), *results = NULL;
    Py_ssize_t count = held != NULL ? PyTuple_GET_SIZE(held) : 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!Py_IS_TYPE(PyTuple_GET_ITEM(held, i), type)) {
            PyErr_Format(PyExc_TypeError, "item %zd is a %s, wanted a Drain", i, Py_TYPE(PyTuple_GET_ITEM(held, i))->tp_name);
            Py_CLEAR(held);
            return NULL;
        }
    }
    struct outcome *outcomes = PyMem_Calloc((size_t)count + 1, sizeof *outcomes);
    if (held == NULL || outcomes == NULL) {
        if (held != NULL)
            PyErr_NoMemory();
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < count; i++)
        outcomes[i] = pass((Drain *)PyTuple_GET_ITEM(held, i));
    Py_END_ALLOW_THREADS
    results = PyList_New(0);
    for (Py_ssize_t i = 0; i < count; i++) {
        Drain *d = (Drain *)PyTuple_GET_ITEM(held, i);
        d->seen = outcomes[i].seen;
        if (results != NULL && (outcomes[i].count > 0 || outcomes[i].refused)) {
            PyObject *row = result_of(i, d, &outcomes[i]);
            if (row == NULL || PyList_Append(results, row) != 0)
                Py_CLEAR(results);
            Py_XDECREF(row);
        }
        free(outcomes[i].records);
    }
done:
    PyMem_Free(outcomes);
    Py_XDECREF(held);
    return results;
}

static PyObject *drain_salvage(PyObject *self, PyObject *unused)
{
    lock((Drain *)self);
    ((Drain *)self)->drain.salvage = 1;
    unlock((Drain *)self);
    Py_RETURN_NONE;
}

/* ---- what was read ----------------------------------------------------- */

static PyObject *drain_cursors(PyObject *self, PyObject *unused)
{
    Drain *d = (Drain *)self;
    struct brick_cursor *copy = PyMem_Calloc(d->drain.reader.header.lanes, sizeof *copy);
    if (copy == NULL)
        return PyErr_NoMemory();
    lock(d);
    uint32_t count = brick_drain_lanes(&d->drain);
    for (uint32_t n = 0; n < count; n++)
        copy[n] = d->drain.lanes[n].cursor;
    unlock(d);
    PyObject *rows = PyList_New(count);
    for (uint32_t n = 0; rows != NULL && n < count; n++) {
        const struct brick_cursor *c = &copy[n];
        PyObject *row = Py_BuildValue("(KKKKK)", (unsigned long long)c->span, (unsigned long long)c->event.position,
                                      (unsigned long long)c->event.records, (unsigned long long)c->event.sequence,
                                      (unsigned long long)c->spans_lost);
        if (row == NULL)
            Py_CLEAR(rows);
        else
            PyList_SET_ITEM(rows, n, row);
    }
    PyMem_Free(copy);
    return rows;
}

static PyObject *drain_tails(PyObject *self, PyObject *args)
{
    Drain *d = (Drain *)self;
    int events;
    if (!PyArg_ParseTuple(args, "p:tails", &events))
        return NULL;
    uint32_t lanes = d->drain.reader.header.lanes, first = 0;
    struct brick_consumer *halfway = PyMem_Calloc(lanes, 2 * sizeof *halfway), *whole = halfway + lanes;
    if (halfway == NULL)
        return PyErr_NoMemory();
    lock(d);
    uint32_t count = brick_drain_tails(&d->drain, events, &first, halfway, whole);
    unlock(d);
    Py_ssize_t bytes = (Py_ssize_t)(count * sizeof *whole);
    unsigned long long offset = d->drain.reader.layout.consumers + first * sizeof *whole;
    PyObject *writes = count == 0 ? PyList_New(0)
                                  : Py_BuildValue("[(Ky#)(Ky#)]", offset, (const char *)(halfway + first), bytes, offset,
                                                  (const char *)(whole + first), bytes);
    PyMem_Free(halfway);
    return writes;
}

static PyObject *drain_details(PyObject *self, PyObject *unused)
{
    Drain *d = (Drain *)self;
    const struct brick_details *from = &d->drain.details;
    lock(d);
    uint32_t count = from->end;
    struct brick_summary *copy = calloc(count + UINT64_C(1), sizeof *copy);
    for (uint32_t path = 0; copy != NULL && path < count; path++)
        if (from->by_path[path] != NULL)
            copy[path] = from->by_path[path]->summary;
    unlock(d);
    if (copy == NULL)
        return PyErr_NoMemory();
    PyObject *bytes = PyBytes_FromStringAndSize((const char *)copy, (Py_ssize_t)(count * sizeof *copy));
    free(copy);
    return bytes;
}

static PyObject *drain_longest(PyObject *self, PyObject *unused)
{
    Drain *d = (Drain *)self;
    const struct brick_details *from = &d->drain.details;
    struct longest {
        uint64_t path, duration, start, step, elements;
    } *copy;
    size_t count = 0;
    lock(d);
    copy = calloc(from->end + UINT64_C(1), sizeof *copy);
    for (uint32_t path = 0; copy != NULL && path < from->end; path++) {
        const struct brick_detail *each = from->by_path[path];
        if (each != NULL)
            copy[count++] = (struct longest){path, each->summary.max, each->start, each->step, each->elements};
    }
    unlock(d);
    if (copy == NULL)
        return PyErr_NoMemory();
    PyObject *rows = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; rows != NULL && i < count; i++) {
        PyObject *row = Py_BuildValue("(KKKKK)", (unsigned long long)copy[i].path, (unsigned long long)copy[i].duration,
                                      (unsigned long long)copy[i].start, (unsigned long long)copy[i].step,
                                      (unsigned long long)copy[i].elements);
        if (row == NULL)
            Py_CLEAR(rows);
        else
            PyList_SET_ITEM(rows, (Py_ssize_t)i, row);
    }
    free(copy);
    return rows;
}

static PyObject *drain_recent(PyObject *self, PyObject *unused)
{
    Drain *d = (Drain *)self;
    struct brick_span copy[BRICK_RECENT];
    lock(d);
    uint32_t count = d->drain.details.kept;
    memcpy(copy, d->drain.details.recent, count * sizeof *copy);
    unlock(d);
    return PyBytes_FromStringAndSize((const char *)copy, (Py_ssize_t)(count * sizeof *copy));
}

static PyMethodDef drain_methods[] = {
    {"cursors", drain_cursors, METH_NOARGS, "[(span, event, events, sequence, spans_lost)] by lane."},
    {"tails", drain_tails, METH_VARARGS, "tails(events) -> [(offset, bytes)], to be written in this order."},
    {"salvage", drain_salvage, METH_NOARGS, "The worker is dead: the next complete pass takes what was whole but not given out."},
    {"details", drain_details, METH_NOARGS, "An array of summary by path, of the span records."},
    {"longest", drain_longest, METH_NOARGS, "[(path, duration, start, step, elements)] of each path's longest span."},
    {"recent", drain_recent, METH_NOARGS, "The newest span records, oldest first."},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef drain_members[] = {
    {"activity", T_ULONGLONG, offsetof(Drain, seen.activity), READONLY, "Changes whenever something was recorded."},
    {"spans", T_ULONGLONG, offsetof(Drain, seen.spans), READONLY, "Span records folded."},
    {"rejected", T_ULONGLONG, offsetof(Drain, seen.rejected), READONLY, "Records that could not be."},
    {"skipped", T_ULONGLONG, offsetof(Drain, seen.skipped), READONLY, "Records of unknown kinds."},
    {"gaps", T_ULONGLONG, offsetof(Drain, seen.gaps), READONLY, "Events whose numbers are missing: dropped by the writer."},
    {"fill", T_DOUBLE, offsetof(Drain, seen.fill), READONLY, "The largest share of a ring that the last pass consumed."},
    {"held", T_DOUBLE, offsetof(Drain, seen.held), READONLY, "The largest share of an event ring that waits for tails(True)."},
    {"breaks", T_UINT, offsetof(Drain, seen.breaks), READONLY, "Lanes before whose events others are known to nobody."},
    {"complete", T_BOOL, offsetof(Drain, seen.complete), READONLY, "Whether the last pass came to every head."},
    {"ended", T_BOOL, offsetof(Drain, seen.ended), READONLY, "Whether the worker came to its end by itself."},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot drain_slots[] = {
    {Py_tp_new, drain_new},
    {Py_tp_dealloc, drain_dealloc},
    {Py_tp_methods, drain_methods},
    {Py_tp_members, drain_members},
    {Py_tp_doc, "Drain(fd, cursors=None): one consumer's way through a segment; ValueError says why not."},
    {0, NULL},
};
PyType_Spec drain_spec = {"brickd._reader.Drain", sizeof(Drain), 0, Py_TPFLAGS_DEFAULT, drain_slots};
