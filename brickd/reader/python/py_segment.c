/* python/py_segment.c - brickd.shm._reader.SegmentCopier: copies parts of an open file with a valid header.
 *
 * Each method makes new copies; large copies are made without the interpreter lock. An inconsistency raises a
 * ValueError with the reason.
 */
#include "brick_removed.h"
#include "../core/segment_copy.h"
#include "py_types.h"

#include <structmember.h>
#include <sys/stat.h>

typedef struct {
    PyObject_HEAD
    struct brick_reader reader;
} Segment;

static PyObject *refused(const Segment *s)
{
    PyErr_SetString(PyExc_ValueError, s->reader.reason);
    return NULL;
}

static PyObject *segment_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"fd", NULL};
    int fd;
    struct stat status;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "i:Segment", names, &fd))
        return NULL;
    if (fstat(fd, &status) != 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    Segment *s = (Segment *)type->tp_alloc(type, 0);
    if (s == NULL)
        return NULL;
    s->reader.source = brick_source_of(fd);
    if (brick_reader_open(&s->reader, (uint64_t)status.st_size))
        return (PyObject *)s;
    refused(s);
    Py_DECREF(s);
    return NULL;
}

static PyObject *segment_header(PyObject *self, PyObject *unused)
{
    return unpacked("header", &((Segment *)self)->reader.header);
}

static PyObject *segment_process(PyObject *self, PyObject *unused)
{
    struct brick_process process;
    if (!brick_reader_process(&((Segment *)self)->reader, &process))
        return refused((Segment *)self);
    return unpacked("process", &process);
}

static PyObject *segment_control(PyObject *self, PyObject *unused)
{
    struct brick_reader *r = &((Segment *)self)->reader;
    struct brick_control control;
    if (!r->source.read(&r->source, r->layout.control, &control, sizeof control))
        return PyErr_SetFromErrno(PyExc_OSError);
    return unpacked("control", &control);
}

/* The struct that was converted last, and its dict. If the next struct has equal bytes, the same dict is used again.
 * This saves time, because the lines of all unused lanes are equal. */
struct shown {
    const char *record;
    size_t size;
    const void *bytes;
    PyObject *dict;
};

/* Returns the dict of a struct as a borrowed reference, or NULL with an exception. */
static PyObject *show(struct shown *last, const void *bytes)
{
    if (last->dict == NULL || memcmp(last->bytes, bytes, last->size) != 0) {
        Py_XSETREF(last->dict, unpacked(last->record, bytes));
        last->bytes = bytes;
    }
    return last->dict;
}

/* Reads all lane lines. Also reads all consumer lines, unless `consumers` is NULL. The caller frees them with
 * PyMem_Free. Returns 0 with an exception on failure. */
static int read_lines(Segment *s, struct brick_lane **lanes, struct brick_consumer **consumers)
{
    const size_t count = s->reader.header.lanes;
    *lanes = PyMem_Calloc(count, sizeof **lanes);
    if (consumers != NULL)
        *consumers = PyMem_Calloc(count, sizeof **consumers);
    if (*lanes == NULL || (consumers != NULL && *consumers == NULL))
        PyErr_NoMemory();
    else if (brick_reader_lanes(&s->reader, *lanes, consumers != NULL ? *consumers : NULL))
        return 1;
    else
        refused(s);
    PyMem_Free(*lanes);
    if (consumers != NULL)
        PyMem_Free(*consumers);
    return 0;
}

static PyObject *segment_lanes(PyObject *self, PyObject *unused)
{
    Segment *s = (Segment *)self;
    struct shown lane = {"lane", sizeof(struct brick_lane), NULL, NULL};
    struct shown consumer = {"consumer", sizeof(struct brick_consumer), NULL, NULL};
    struct brick_lane *lanes;
    struct brick_consumer *consumers;
    if (!read_lines(s, &lanes, &consumers))
        return NULL;
    PyObject *rows = PyList_New(0);
    for (uint32_t n = 0; rows != NULL && n < s->reader.header.lanes; n++) {
        if (lanes[n].opened == 0)
            continue;
        const int shown = show(&lane, &lanes[n]) != NULL && show(&consumer, &consumers[n]) != NULL;
        list_append(&rows, shown ? Py_BuildValue("(IOO)", n, lane.dict, consumer.dict) : NULL);
    }
    Py_XDECREF(lane.dict);
    Py_XDECREF(consumer.dict);
    PyMem_Free(lanes);
    PyMem_Free(consumers);
    return rows;
}

static PyObject *segment_removed(PyObject *self, PyObject *args)
{
    struct brick_reader *r = &((Segment *)self)->reader;
    unsigned int reason;
    unsigned long long now_ns;
    struct brick_process process;
    struct brick_removed record;
    if (!PyArg_ParseTuple(args, "IK:removed", &reason, &now_ns))
        return NULL;
    if (!brick_reader_process(r, &process))
        return refused((Segment *)self);
    struct brick_lane *lines;
    if (!read_lines((Segment *)self, &lines, NULL))
        return NULL;
    brick_removed_begin(&record, &r->header, &process, reason, now_ns);
    for (uint32_t n = 0; n < r->header.lanes; n++)
        brick_removed_add(&record, &lines[n]);
    PyMem_Free(lines);
    return PyBytes_FromStringAndSize((const char *)&record, sizeof record);
}

static PyObject *segment_sums(PyObject *self, PyObject *unused)
{
    Segment *s = (Segment *)self;
    struct brick_lane *lines;
    if (!read_lines(s, &lines, NULL))
        return NULL;
    unsigned long long activity = 0, summarized = 0;
    uint64_t dropped[BRICK_KINDS] = {0};
    for (uint32_t n = 0; n < s->reader.header.lanes; n++) {
        activity += lines[n].begun + lines[n].summarized + lines[n].event_attempts;
        summarized += lines[n].summarized;
        for (uint32_t kind = 0; kind < BRICK_KINDS; kind++)
            dropped[kind] += lines[n].event_dropped[kind];
    }
    PyMem_Free(lines);
    PyObject *kinds = number_tuple(dropped, 'Q', BRICK_KINDS);
    return kinds != NULL ? Py_BuildValue("(KKN)", activity, summarized, kinds) : NULL;
}

/* Sets `rows` to how many rows of each table must be read, which is never more than the table has room for. Returns 0
 * with an exception on failure. */
static int count_rows(Segment *s, uint32_t rows[BRICK_TABLES])
{
    struct brick_process process;
    if (!brick_reader_process(&s->reader, &process)) {
        refused(s);
        return 0;
    }
    const uint64_t claimed[] = {process.names, process.paths, process.sites};
    for (enum brick_table table = 0; table < BRICK_TABLES; table++)
        rows[table] = brick_reader_rows(&s->reader, table, claimed[table]);
    return 1;
}

static PyObject *segment_extent(PyObject *self, PyObject *unused)
{
    Segment *s = (Segment *)self;
    uint32_t rows[BRICK_TABLES], lanes = 0, blocks = 0, last = UINT32_MAX;
    if (!count_rows(s, rows))
        return NULL;
    struct brick_lane *lines;
    struct brick_consumer *tails;
    if (!read_lines(s, &lines, &tails))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    for (uint32_t n = 0; n < s->reader.header.lanes; n++)
        if (lines[n].opened != 0) {
            lanes += last == UINT32_MAX || memcmp(&lines[last], &lines[n], sizeof *lines) != 0
                     || memcmp(&tails[last], &tails[n], sizeof *tails) != 0;
            last = n;
            blocks += brick_reader_blocks(&s->reader, n, rows[BRICK_PATHS]);
        }
    Py_END_ALLOW_THREADS
    PyMem_Free(lines);
    PyMem_Free(tails);
    return Py_BuildValue("(IIIIII)", s->reader.header.lanes, lanes, rows[BRICK_NAMES], rows[BRICK_PATHS], rows[BRICK_SITES],
                         blocks);
}

static PyObject *name_row(const void *table, uint32_t n, uint32_t count)
{
    const struct brick_name *name = (const struct brick_name *)table + n;
    if ((name->word & BRICK_NAME_READY) == 0 || (name->word & BRICK_NAME_VOID) != 0)
        return Py_NewRef(Py_None);
    PyObject *text = PyUnicode_DecodeUTF8((const char *)name->text, name->word & BRICK_NAME_LENGTH, "replace");
    return text != NULL ? Py_BuildValue("(NI)", text, name->category < count ? name->category : 0) : NULL;
}

static PyObject *path_row(const void *table, uint32_t n, uint32_t count)
{
    const uint64_t key = ((const uint64_t *)table)[n];
    const uint32_t parent = brick_key_parent(key);
    if ((key & BRICK_KEY_READY) == 0)
        return Py_NewRef(Py_None);
    return Py_BuildValue("(iIiI)", parent == BRICK_ROOT ? -1 : (int)parent, brick_key_name(key), (int)brick_key_layer(key),
                         brick_key_unit(key));
}

static PyObject *site_row(const void *table, uint32_t n, uint32_t count)
{
    const uint64_t key = ((const uint64_t *)table)[n];
    if ((key & BRICK_KEY_READY) == 0)
        return Py_NewRef(Py_None);
    return Py_BuildValue("(IiI)", brick_key_name(key), (int)brick_key_layer(key), brick_key_unit(key));
}

static PyObject *rows_of(Segment *s, enum brick_table table, const void *bytes, size_t size, uint32_t count)
{
    static PyObject *(*const row_of[BRICK_TABLES])(const void *, uint32_t, uint32_t) = {name_row, path_row, site_row};
    struct table_rows *made = &((struct reader_state *)PyType_GetModuleState(Py_TYPE(s)))->tables[table];
    if (made->bytes == NULL || (size_t)PyBytes_GET_SIZE(made->bytes) != size
        || memcmp(PyBytes_AS_STRING(made->bytes), bytes, size) != 0) {
        PyObject *copy = PyBytes_FromStringAndSize(bytes, (Py_ssize_t)size), *rows = PyList_New(count);
        for (uint32_t n = 0; rows != NULL && n < count; n++)
            list_put(&rows, n, row_of[table](bytes, n, count));
        if (copy == NULL || rows == NULL) {
            Py_XDECREF(copy);
            Py_XDECREF(rows);
            return NULL;
        }
        Py_XSETREF(made->bytes, copy);
        Py_XSETREF(made->rows, rows);
    }
    return PyList_GetSlice(made->rows, 0, PyList_GET_SIZE(made->rows));
}

static PyObject *read_table(PyObject *self, enum brick_table table)
{
    Segment *s = (Segment *)self;
    struct brick_reader *r = &s->reader;
    uint32_t rows[BRICK_TABLES];
    if (!count_rows(s, rows))
        return NULL;
    const size_t size = table == BRICK_NAMES ? sizeof(struct brick_name) : sizeof(uint64_t);
    void *copy = PyMem_Calloc(rows[table] + 1, size);
    if (copy == NULL)
        return PyErr_NoMemory();
    const int whole = table == BRICK_NAMES ? brick_reader_names(r, copy, rows[table])
                                           : brick_reader_keys(r, table, copy, rows[table], r->header.names);
    PyObject *list = whole ? rows_of(s, table, copy, rows[table] * size, rows[table]) : refused(s);
    PyMem_Free(copy);
    return list;
}

static PyObject *segment_names(PyObject *self, PyObject *unused) { return read_table(self, BRICK_NAMES); }

static PyObject *segment_paths(PyObject *self, PyObject *unused) { return read_table(self, BRICK_PATHS); }

static PyObject *segment_sites(PyObject *self, PyObject *unused) { return read_table(self, BRICK_SITES); }

static PyObject *segment_summaries(PyObject *self, PyObject *args)
{
    Segment *s = (Segment *)self;
    int only = -1;
    uint32_t rows[BRICK_TABLES];
    if (!PyArg_ParseTuple(args, "|i:summaries", &only) || !count_rows(s, rows))
        return NULL;
    uint32_t lanes = s->reader.header.lanes, paths = rows[BRICK_PATHS];
    if (only >= (int)lanes) {
        PyErr_Format(PyExc_IndexError, "lane %d of %u", only, lanes);
        return NULL;
    }
    struct reader_state *state = PyType_GetModuleState(Py_TYPE(self));
    struct brick_lane *lines;
    struct brick_summary *into = scratch_take(state, paths * sizeof *into);
    if (into == NULL || !read_lines(s, &lines, NULL)) {
        scratch_give(state, into, paths * sizeof *into);
        return NULL;
    }
    struct brick_doubt doubt = {0, 0};
    int whole = 1;
    Py_BEGIN_ALLOW_THREADS
    memset(into, 0, paths * sizeof *into);
    for (uint32_t n = 0; whole && n < lanes; n++)
        if (lines[n].opened != 0 && (only < 0 || only == (int)n))
            whole = brick_reader_summaries(&s->reader, n, paths, into, &doubt);
    whole = whole && brick_reader_whole(&s->reader);
    Py_END_ALLOW_THREADS
    PyMem_Free(lines);
    PyObject *packed = whole ? packed_of(state, into, paths) : refused(s);
    scratch_give(state, into, paths * sizeof *into);
    return packed == NULL ? NULL
                          : Py_BuildValue("(NKK)", packed, (unsigned long long)doubt.odd, (unsigned long long)doubt.moving);
}

static PyObject *segment_ring(PyObject *self, PyObject *args)
{
    Segment *s = (Segment *)self;
    unsigned lane;
    int events;
    if (!PyArg_ParseTuple(args, "Ip:ring", &lane, &events))
        return NULL;
    if (lane >= s->reader.header.lanes) {
        PyErr_Format(PyExc_IndexError, "lane %u of %u", lane, s->reader.header.lanes);
        return NULL;
    }
    const uint64_t slots = events ? s->reader.header.event_slots : s->reader.header.span_slots;
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(slots * sizeof(struct brick_record)));
    if (bytes == NULL)
        return NULL;
    struct brick_record *copy = (struct brick_record *)(void *)PyBytes_AS_STRING(bytes);
    uint64_t first = 0;
    int64_t count;
    Py_BEGIN_ALLOW_THREADS
    count = brick_reader_ring(&s->reader, lane, events, copy, &first);
    Py_END_ALLOW_THREADS
    if (count < 0) {
        Py_DECREF(bytes);
        return refused(s);
    }
    if (_PyBytes_Resize(&bytes, (Py_ssize_t)((uint64_t)count * sizeof *copy)) != 0)
        return NULL;
    return Py_BuildValue("(KN)", (unsigned long long)first, bytes);
}

static PyMethodDef segment_methods[] = {
    {"header", segment_header, METH_NOARGS, "The fields of the header."},
    {"process", segment_process, METH_NOARGS, "The fields of the process line."},
    {"control", segment_control, METH_NOARGS, "The fields of the control page."},
    {"lanes", segment_lanes, METH_NOARGS, "[(number, lane line, consumer line)] of all lanes used so far."},
    {"removed", segment_removed, METH_VARARGS, "The record to append before the segment is removed."},
    {"sums", segment_sums, METH_NOARGS, "(activity, summarized, event_dropped by kind) of all lanes."},
    {"extent", segment_extent, METH_NOARGS,
     "How much a reading copies; holes do not count: (lines, lanes, names, paths, sites, blocks of summaries)."},
    {"names", segment_names, METH_NOARGS, "[(text, category), or None if the name is not ready]."},
    {"paths", segment_paths, METH_NOARGS,
     "[(parent or -1, name, layer or -1, unit), or None if the path is not ready]."},
    {"sites", segment_sites, METH_NOARGS, "[(name, layer or -1, unit), or None if the site is not ready]."},
    {"summaries", segment_summaries, METH_VARARGS,
     "(a Packed of the summaries, how many were left half-written, how many changed during each copy)."},
    {"ring", segment_ring, METH_VARARGS, "(position of the first slot, slots)."},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef segment_members[] = {
    {"fetched", T_ULONGLONG, offsetof(Segment, reader.fetched), READONLY, "How many bytes are read so far."},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot segment_slots[] = {
    {Py_tp_new, segment_new},
    {Py_tp_dealloc, plain_dealloc},
    {Py_tp_methods, segment_methods},
    {Py_tp_members, segment_members},
    {Py_tp_doc, "Segment(fd): a segment with a valid header; ValueError gives the reason."},
    {0, NULL},
};
PyType_Spec segment_spec = {"brickd.shm._reader.SegmentCopier", sizeof(Segment), 0, Py_TPFLAGS_DEFAULT, segment_slots};
