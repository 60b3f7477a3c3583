/* python/py_drain.c - brickd.shm._reader.Drain: one consumer of a segment.
 *
 * Every method holds the lock of its segment while it copies. No method creates a Python object under the lock: this
 * may run the garbage collector and other code, while a pass of another thread waits for the lock.
 */
#include "py_drain.h"

#include <stdlib.h>
#include <structmember.h>
#include <sys/stat.h>

/* In Python, a cursor is the tuple (span, event position, records, sequence, spans_lost). */
enum { CURSOR_NUMBERS = 5 };
BRICK_ASSERT(sizeof(struct brick_cursor) == CURSOR_NUMBERS * sizeof(uint64_t), "a cursor has only numbers");

static int resume(Drain *d, PyObject *cursors)
{
    PyObject *rows = PySequence_Tuple(cursors);
    if (rows == NULL)
        return 0;
    int whole = 1;
    for (Py_ssize_t n = 0; whole && n < PyTuple_GET_SIZE(rows); n++) {
        uint64_t values[CURSOR_NUMBERS];
        PyObject *row = PySequence_Tuple(PyTuple_GET_ITEM(rows, n));
        whole = row != NULL && PyTuple_GET_SIZE(row) == CURSOR_NUMBERS;
        if (row != NULL && !whole)
            PyErr_Format(PyExc_ValueError, "the cursor of lane %zd has %zd numbers, expected %d", n, PyTuple_GET_SIZE(row),
                         CURSOR_NUMBERS);
        for (Py_ssize_t i = 0; whole && i < CURSOR_NUMBERS; i++) {
            values[i] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(row, i));
            whole = values[i] != (uint64_t)-1 || PyErr_Occurred() == NULL;
        }
        Py_XDECREF(row);
        if (!whole)
            break;
        struct brick_cursor cursor;
        memcpy(&cursor, values, sizeof cursor);
        whole = brick_drain_resume(&d->drain, &cursor);
        if (!whole)
            PyErr_Format(PyExc_ValueError, "cursors for %zd lanes, expected at most %u", PyTuple_GET_SIZE(rows),
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
    d->drain.reader.source = brick_source_of(fd);
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
    Py_XDECREF(d->spool);
    if (d->opened)
        pthread_mutex_destroy(&d->mutex);
    plain_dealloc(self);
}

static PyObject *drain_salvage(PyObject *self, PyObject *unused)
{
    Drain *d = (Drain *)self;
    take_lock(&d->mutex);
    d->drain.salvage = 1;
    pthread_mutex_unlock(&d->mutex);
    Py_RETURN_NONE;
}

static PyObject *drain_forget_details(PyObject *self, PyObject *unused)
{
    Drain *d = (Drain *)self;
    take_lock(&d->mutex);
    brick_details_free(&d->drain.details);
    d->seen.resident = brick_drain_resident(&d->drain);
    pthread_mutex_unlock(&d->mutex);
    Py_RETURN_NONE;
}

static PyObject *drain_record_into(PyObject *self, PyObject *args)
{
    Drain *d = (Drain *)self;
    PyObject *to, *before;
    unsigned int worker = 0;
    if (!PyArg_ParseTuple(args, "O|I:record_into", &to, &worker))
        return NULL;
    struct brick_spool *spool = NULL;
    if (to != Py_None && (spool = spool_of(to, Py_TYPE(self), "a Spool or None")) == NULL)
        return NULL;
    take_lock(&d->mutex);
    d->drain.track = (struct brick_track){.spool = spool, .worker = worker};
    before = d->spool;
    d->spool = spool != NULL ? Py_NewRef(to) : NULL;
    pthread_mutex_unlock(&d->mutex);
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

/* ---- results of reading ----------------------------------------------------- */

static PyObject *drain_cursors(PyObject *self, PyObject *unused)
{
    Drain *d = (Drain *)self;
    struct brick_cursor *copy = PyMem_Calloc(d->drain.reader.header.lanes, sizeof *copy);
    if (copy == NULL)
        return PyErr_NoMemory();
    take_lock(&d->mutex);
    uint32_t count = brick_drain_lanes(&d->drain);
    for (uint32_t n = 0; n < count; n++)
        copy[n] = d->drain.lanes[n].cursor;
    pthread_mutex_unlock(&d->mutex);
    static const struct brick_cursor beginning;
    PyObject *rows = PyList_New(count), *like = NULL; /* all cursors that are zeros share one tuple */
    for (uint32_t n = 0; rows != NULL && n < count; n++) {
        const int begins = memcmp(&copy[n], &beginning, sizeof beginning) == 0;
        PyObject *row = begins && like != NULL ? Py_NewRef(like) : number_tuple(&copy[n], 'Q', CURSOR_NUMBERS);
        list_put(&rows, n, row);
        if (begins)
            like = row; /* a borrowed reference: the list owns it */
    }
    PyMem_Free(copy);
    return rows;
}

void drain_tails(Drain *d, int events, PyObject **writes)
{
    take_lock(&d->mutex);
    uint32_t lanes = brick_drain_lanes(&d->drain), count = 0, first = 0;
    struct brick_consumer *halfway = malloc((lanes + UINT64_C(1)) * 2 * sizeof *halfway), *whole = halfway + lanes;
    if (halfway != NULL)
        count = brick_drain_tails(&d->drain, events, &first, halfway, whole);
    pthread_mutex_unlock(&d->mutex);
    if (halfway == NULL) {
        Py_CLEAR(*writes);
        PyErr_NoMemory();
        return;
    }
    Py_ssize_t bytes = (Py_ssize_t)(count * sizeof *whole);
    unsigned long long offset = d->drain.reader.layout.consumers + first * sizeof *whole;
    const struct brick_consumer *lines[] = {halfway, whole};
    for (size_t i = 0; i < 2 && count > 0 && *writes != NULL; i++)
        list_append(writes, Py_BuildValue("(iKy#)", d->drain.reader.source.fd, offset,
                                          (const char *)(lines[i] + first), bytes));
    free(halfway);
}

static PyObject *drain_longest(PyObject *self, PyObject *unused)
{
    Drain *d = (Drain *)self;
    const struct brick_details *from = &d->drain.details;
    struct longest {
        uint64_t path, duration, start, step, elements;
    } *copy;
    size_t count = 0;
    take_lock(&d->mutex);
    copy = calloc(from->end + UINT64_C(1), sizeof *copy);
    for (uint32_t path = 0; copy != NULL && path < from->end; path++) {
        const struct brick_longest *each = from->by_path[path];
        if (each != NULL)
            copy[count++] = (struct longest){path, each->duration, each->start, each->step, each->elements};
    }
    pthread_mutex_unlock(&d->mutex);
    if (copy == NULL)
        return PyErr_NoMemory();
    PyObject *rows = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; rows != NULL && i < count; i++)
        list_put(&rows, i, number_tuple(&copy[i], 'Q', sizeof *copy / sizeof(uint64_t)));
    free(copy);
    return rows;
}

static PyObject *drain_recent(PyObject *self, PyObject *unused)
{
    Drain *d = (Drain *)self;
    struct brick_span copy[BRICK_RECENT];
    take_lock(&d->mutex);
    uint32_t count = d->drain.details.kept;
    memcpy(copy, d->drain.details.recent, count * sizeof *copy);
    pthread_mutex_unlock(&d->mutex);
    return PyBytes_FromStringAndSize((const char *)copy, (Py_ssize_t)(count * sizeof *copy));
}

static PyObject *drain_take_checked(PyObject *self, PyObject *unused)
{
    Drain *d = (Drain *)self;
    struct brick_events *e = &d->drain.events;
    take_lock(&d->mutex);
    struct brick_record *slots = e->checked;
    size_t count = e->whole;
    e->checked = NULL;
    e->slots = e->whole = e->slots_room = e->owed = 0;
    pthread_mutex_unlock(&d->mutex);
    PyObject *bytes = PyBytes_FromStringAndSize((const char *)slots, (Py_ssize_t)(count * sizeof *slots));
    free(slots);
    return bytes;
}

static PyMethodDef drain_methods[] = {
    {"cursors", drain_cursors, METH_NOARGS, "[(span, event, events, sequence, spans_lost)] by lane."},
    {"salvage", drain_salvage, METH_NOARGS,
     "For a dead worker: let the next pass also read a complete record above each head."},
    {"forget_details", drain_forget_details, METH_NOARGS, "Free the memory of the longest and the newest spans."},
    {"record_into", drain_record_into, METH_VARARGS,
     "Copy the slots of later passes to a spool for a recording; None: stop copying."},
    {"take_checked", drain_take_checked, METH_NOARGS, "Take the slots of the complete checksums of the last pass."},
    {"longest", drain_longest, METH_NOARGS, "[(path, duration, start, step, elements)] of each path's longest span."},
    {"recent", drain_recent, METH_NOARGS, "The newest span records, oldest first."},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef drain_members[] = {
    {"activity", T_ULONGLONG, offsetof(Drain, seen.activity), READONLY,
     "A number that changes whenever something is recorded."},
    {"spans", T_ULONGLONG, offsetof(Drain, seen.spans), READONLY, "The number of span records taken."},
    {"rejected", T_ULONGLONG, offsetof(Drain, seen.rejected), READONLY, "Invalid records."},
    {"skipped", T_ULONGLONG, offsetof(Drain, seen.skipped), READONLY, "The number of records of unknown kinds."},
    {"gaps", T_ULONGLONG, offsetof(Drain, seen.gaps), READONLY, "The number of dropped events."},
    {"checked", T_ULONGLONG, offsetof(Drain, seen.checked), READONLY,
     "The number of slots of complete checksums of the last pass."},
    {"fill", T_DOUBLE, offsetof(Drain, seen.fill), READONLY,
     "How full the fullest ring was before the last pass; 1 is full."},
    {"held", T_DOUBLE, offsetof(Drain, seen.held), READONLY,
     "The largest share of any event ring that was read, but is not free yet."},
    {"read", T_ULONGLONG, offsetof(Drain, read), READONLY, "The bytes read by all passes."},
    {"resident", T_ULONGLONG, offsetof(Drain, seen.resident), READONLY, "The bytes of memory used between two passes."},
    {"breaks", T_UINT, offsetof(Drain, seen.breaks), READONLY,
     "How many lanes had lost events before the first pass read them."},
    {"complete", T_BOOL, offsetof(Drain, seen.complete), READONLY,
     "Whether the last pass read every ring up to its head."},
    {"ended", T_BOOL, offsetof(Drain, seen.ended), READONLY, "Whether the worker ended cleanly."},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot drain_slots[] = {
    {Py_tp_new, drain_new},
    {Py_tp_dealloc, drain_dealloc},
    {Py_tp_methods, drain_methods},
    {Py_tp_members, drain_members},
    {Py_tp_doc, "Drain(fd, cursors=None): one consumer of a segment; ValueError gives the reason."},
    {0, NULL},
};
PyType_Spec drain_spec = {"brickd.shm._reader.Drain", sizeof(Drain), 0, Py_TPFLAGS_DEFAULT, drain_slots};
