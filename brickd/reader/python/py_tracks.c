/* python/py_tracks.c - brickd.shm._reader.SpanTracks: the tracks of one lane in a Perfetto trace. */
#include "../core/perfetto_events.h"
#include "py_types.h"

typedef struct {
    PyObject_HEAD
    struct brick_tracks tracks;
} SpanTracks;

static PyObject *tracks_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {NULL};
    return PyArg_ParseTupleAndKeywords(args, keywords, ":SpanTracks", names) ? type->tp_alloc(type, 0) : NULL;
}

static void tracks_dealloc(PyObject *self)
{
    brick_tracks_free(&((SpanTracks *)self)->tracks);
    plain_dealloc(self);
}

static PyObject *tracks_place(PyObject *self, PyObject *argument)
{
    struct brick_tracks *tracks = &((SpanTracks *)self)->tracks;
    Py_buffer rows;
    if (PyObject_GetBuffer(argument, &rows, PyBUF_WRITABLE) != 0)
        return NULL;
    const size_t size = sizeof(struct brick_span_row), count = (size_t)rows.len / size;
    const int valid = (size_t)rows.len % size == 0 && (uintptr_t)rows.buf % 8 == 0;
    int tied = 0;
    const int done = valid && brick_tracks_place(tracks, rows.buf, count, &tied)
                     && (!tied || brick_rows_sort(rows.buf, count));
    if (!valid)
        PyErr_Format(PyExc_ValueError, "%zd bytes of rows, expected a multiple of %zu, aligned to 8", rows.len, size);
    PyBuffer_Release(&rows);
    if (valid && !done)
        return PyErr_NoMemory();
    return done ? PyLong_FromUnsignedLong(tracks->count) : NULL;
}

static PyObject *tracks_events(PyObject *self, PyObject *args)
{
    struct brick_tracks *tracks = &((SpanTracks *)self)->tracks;
    struct brick_event_form form;
    Py_buffer rows, names, name_offsets, events, event_offsets, sequences, into;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*Iw*:events", &rows, &names, &name_offsets, &events, &event_offsets, &sequences,
                          &form.steps, &into))
        return NULL;
    size_t done = 0, used = 0;
    uint64_t untracked = 0;
    const size_t size = sizeof(struct brick_span_row);
    int valid = pieces_of(&names, &name_offsets, &form.names) && pieces_of(&events, &event_offsets, &form.events);
    if (valid && ((size_t)rows.len % size != 0 || (uintptr_t)rows.buf % 8 != 0 || (size_t)sequences.len % sizeof(uint32_t) != 0)) {
        PyErr_Format(PyExc_ValueError, "%zd bytes of rows and %zd of sequences, expected multiples of %zu and 4", rows.len,
                     sequences.len, size);
        valid = 0;
    }
    if (valid) {
        form.sequences = sequences.buf;
        form.sequence_count = (size_t)sequences.len / sizeof(uint32_t);
        Py_BEGIN_ALLOW_THREADS
        done = brick_perfetto_events(tracks, rows.buf, (size_t)rows.len / size, &form, into.buf, (size_t)into.len, &used,
                                     &untracked);
        Py_END_ALLOW_THREADS
    }
    Py_buffer *const all[] = {&rows, &names, &name_offsets, &events, &event_offsets, &sequences, &into};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        PyBuffer_Release(all[i]);
    if (valid && done == SIZE_MAX)
        return PyErr_NoMemory();
    return valid ? Py_BuildValue("(nnK)", (Py_ssize_t)done, (Py_ssize_t)used, (unsigned long long)untracked) : NULL;
}

static PyMethodDef tracks_methods[] = {
    {"place", tracks_place, METH_O,
     "Set the track of each row, sort the rows if they must be written in another order, and return the number of "
     "tracks."},
    {"events", tracks_events, METH_VARARGS,
     "Write the packets of rows that have tracks; return (rows done, bytes used, rows without a track)."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot tracks_slots[] = {
    {Py_tp_new, tracks_new},
    {Py_tp_dealloc, tracks_dealloc},
    {Py_tp_methods, tracks_methods},
    {Py_tp_doc, "SpanTracks(): the tracks of one lane; on each track, spans only nest."},
    {0, NULL},
};
PyType_Spec tracks_spec = {"brickd.shm._reader.SpanTracks", sizeof(SpanTracks), 0, Py_TPFLAGS_DEFAULT, tracks_slots};
