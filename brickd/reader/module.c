/* module.c - brickd._reader: the reader's face in CPython.
 *
 * A Segment is an open file whose header has been believed; each of its methods
 * takes fresh copies, with the interpreter lock released where they are large.
 * What does not add up is a ValueError whose text is the reason.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "copy.h"
#include "fold.h"

#include <math.h>
#include <sys/stat.h>
#include <time.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#define TEXT(x) #x
#define VERSION(major, minor) TEXT(major) "." TEXT(minor)
#define FORMAT VERSION(BRICK_MAJOR, BRICK_MINOR)

/* ---- structs as dictionaries ------------------------------------------- */

static PyObject *number(const uint8_t *at, char code)
{
    double real;
    switch (code) {
    case 'Q': {
        uint64_t v;
        memcpy(&v, at, sizeof v);
        return PyLong_FromUnsignedLongLong(v);
    }
    case 'I': {
        uint32_t v;
        memcpy(&v, at, sizeof v);
        return PyLong_FromUnsignedLong(v);
    }
    case 'i': {
        int32_t v;
        memcpy(&v, at, sizeof v);
        return PyLong_FromLong(v);
    }
    case 'H': {
        uint16_t v;
        memcpy(&v, at, sizeof v);
        return PyLong_FromUnsignedLong(v);
    }
    default:
        memcpy(&real, at, sizeof real);
        return PyFloat_FromDouble(real);
    }
}

static uint32_t code_size(char code)
{
    return code == 'Q' || code == 'd' ? 8 : code == 'H' ? 2 : code == 'B' ? 1 : 4;
}

static PyObject *value_of(const uint8_t *at, const struct brick_field *f)
{
    uint32_t size = code_size(f->code), count = f->size / size;
    if (f->code == 'B')
        return PyBytes_FromStringAndSize((const char *)at, f->size);
    if (count == 1)
        return number(at, f->code);
    PyObject *values = PyTuple_New(count);
    for (uint32_t i = 0; values != NULL && i < count; i++) {
        PyObject *v = number(at + i * size, f->code);
        if (v == NULL)
            Py_CLEAR(values);
        else
            PyTuple_SET_ITEM(values, i, v);
    }
    return values;
}

/* Every field but the reserved ones. */
static PyObject *unpacked(const char *record, const void *bytes)
{
    PyObject *fields = PyDict_New();
    for (size_t i = 0; fields != NULL && i < BRICK_FIELD_COUNT; i++) {
        const struct brick_field *f = &brick_fields[i];
        if (strcmp(f->record, record) != 0 || strncmp(f->name, "reserved", 8) == 0)
            continue;
        PyObject *v = value_of((const uint8_t *)bytes + f->offset, f);
        if (v == NULL || PyDict_SetItemString(fields, f->name, v) != 0)
            Py_CLEAR(fields);
        Py_XDECREF(v);
    }
    return fields;
}

static PyObject *reader_layout(PyObject *module, PyObject *unused)
{
    PyObject *rows = PyList_New(0);
    for (size_t i = 0; rows != NULL && i < BRICK_FIELD_COUNT; i++) {
        const struct brick_field *f = &brick_fields[i];
        char code[2] = {f->code, 0};
        PyObject *row = Py_BuildValue("(ssIIs)", f->record, f->name, f->offset, f->size / code_size(f->code), code);
        if (row == NULL || PyList_Append(rows, row) != 0)
            Py_CLEAR(rows);
        Py_XDECREF(row);
    }
    return rows;
}

/* ---- Segment ----------------------------------------------------------- */

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
    s->reader.source = (struct brick_source){.read = brick_read_fd, .fd = fd};
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

/* [(number, lane, consumer)] of the lanes that were ever used. */
static PyObject *segment_lanes(PyObject *self, PyObject *unused)
{
    struct brick_reader *r = &((Segment *)self)->reader;
    uint32_t count = r->header.lanes;
    PyObject *rows = NULL;
    struct brick_lane *lanes = PyMem_Calloc(count, sizeof *lanes);
    struct brick_consumer *consumers = PyMem_Calloc(count, sizeof *consumers);
    if (lanes == NULL || consumers == NULL)
        PyErr_NoMemory();
    else if (!brick_reader_lanes(r, lanes, consumers))
        refused((Segment *)self);
    else
        rows = PyList_New(0);
    for (uint32_t n = 0; rows != NULL && n < count; n++) {
        if (lanes[n].opened == 0)
            continue;
        PyObject *lane = unpacked("lane", &lanes[n]), *consumer = unpacked("consumer", &consumers[n]);
        PyObject *row = lane != NULL && consumer != NULL ? Py_BuildValue("(IOO)", n, lane, consumer) : NULL;
        if (row == NULL || PyList_Append(rows, row) != 0)
            Py_CLEAR(rows);
        Py_XDECREF(row);
        Py_XDECREF(lane);
        Py_XDECREF(consumer);
    }
    PyMem_Free(lanes);
    PyMem_Free(consumers);
    return rows;
}

/* How many names and paths have been given out, never more than there is room for. */
static int counts(Segment *s, uint32_t *names, uint32_t *paths)
{
    struct brick_process process;
    if (!brick_reader_process(&s->reader, &process)) {
        refused(s);
        return 0;
    }
    *names = process.names < s->reader.header.names ? (uint32_t)process.names : s->reader.header.names;
    *paths = process.paths < s->reader.header.paths ? (uint32_t)process.paths : s->reader.header.paths;
    return 1;
}

/* [(text, category number)], None where a name is not ready. */
static PyObject *segment_names(PyObject *self, PyObject *unused)
{
    Segment *s = (Segment *)self;
    uint32_t names, paths;
    if (!counts(s, &names, &paths))
        return NULL;
    PyObject *rows = NULL;
    struct brick_name *copy = PyMem_Calloc(names + 1, sizeof *copy);
    if (copy == NULL)
        return PyErr_NoMemory();
    if (!brick_reader_names(&s->reader, copy, names))
        refused(s);
    else
        rows = PyList_New(names);
    for (uint32_t n = 0; rows != NULL && n < names; n++) {
        PyObject *row;
        if ((copy[n].word & BRICK_NAME_READY) == 0 || (copy[n].word & BRICK_NAME_VOID) != 0) {
            row = Py_NewRef(Py_None);
        } else {
            PyObject *text = PyUnicode_DecodeUTF8((const char *)copy[n].text, copy[n].word & BRICK_NAME_LENGTH, "replace");
            row = text != NULL ? Py_BuildValue("(NI)", text, copy[n].category < names ? copy[n].category : 0) : NULL;
        }
        if (row == NULL)
            Py_CLEAR(rows);
        else
            PyList_SET_ITEM(rows, n, row);
    }
    PyMem_Free(copy);
    return rows;
}

/* [(parent, name, layer, unit)]: parent -1 at a root, layer -1 without one; None where a path is not ready. */
static PyObject *segment_paths(PyObject *self, PyObject *unused)
{
    Segment *s = (Segment *)self;
    uint32_t names, paths;
    if (!counts(s, &names, &paths))
        return NULL;
    PyObject *rows = NULL;
    uint64_t *copy = PyMem_Calloc(paths + 1, sizeof *copy);
    if (copy == NULL)
        return PyErr_NoMemory();
    if (!brick_reader_paths(&s->reader, copy, paths, s->reader.header.names))
        refused(s);
    else
        rows = PyList_New(paths);
    for (uint32_t n = 0; rows != NULL && n < paths; n++) {
        uint32_t parent = brick_key_parent(copy[n]);
        PyObject *row = (copy[n] & BRICK_KEY_READY) == 0
                            ? Py_NewRef(Py_None)
                            : Py_BuildValue("(iIiI)", parent == BRICK_ROOT ? -1 : (int)parent, brick_key_name(copy[n]),
                                            (int)brick_key_layer(copy[n]), brick_key_unit(copy[n]));
        if (row == NULL)
            Py_CLEAR(rows);
        else
            PyList_SET_ITEM(rows, n, row);
    }
    PyMem_Free(copy);
    return rows;
}

static PyObject *segment_summaries(PyObject *self, PyObject *args)
{
    Segment *s = (Segment *)self;
    int only = -1;
    uint32_t names, paths;
    if (!PyArg_ParseTuple(args, "|i:summaries", &only) || !counts(s, &names, &paths))
        return NULL;
    uint32_t lanes = s->reader.header.lanes;
    if (only >= (int)lanes) {
        PyErr_Format(PyExc_IndexError, "lane %d of %u", only, lanes);
        return NULL;
    }
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(paths * sizeof(struct brick_summary)));
    struct brick_lane *lines = PyMem_Calloc(lanes, sizeof *lines);
    struct brick_consumer *consumers = PyMem_Calloc(lanes, sizeof *consumers);
    if (bytes == NULL || lines == NULL || consumers == NULL) {
        Py_XDECREF(bytes);
        PyMem_Free(lines);
        PyMem_Free(consumers);
        return PyErr_NoMemory();
    }
    struct brick_summary *into = (struct brick_summary *)(void *)PyBytes_AS_STRING(bytes);
    struct brick_doubt doubt = {0, 0};
    int whole;
    Py_BEGIN_ALLOW_THREADS
    memset(into, 0, paths * sizeof *into);
    whole = brick_reader_lanes(&s->reader, lines, consumers);
    for (uint32_t n = 0; whole && n < lanes; n++)
        if (lines[n].opened != 0 && (only < 0 || only == (int)n))
            whole = brick_reader_summaries(&s->reader, n, paths, into, &doubt);
    Py_END_ALLOW_THREADS
    PyMem_Free(lines);
    PyMem_Free(consumers);
    if (!whole) {
        Py_DECREF(bytes);
        return refused(s);
    }
    return Py_BuildValue("(NKK)", bytes, (unsigned long long)doubt.odd, (unsigned long long)doubt.moving);
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
    uint64_t slots = events ? s->reader.header.event_slots : s->reader.header.span_slots, first = 0;
    struct brick_record *copy = PyMem_Malloc(slots * sizeof *copy);
    if (copy == NULL)
        return PyErr_NoMemory();
    int64_t count;
    Py_BEGIN_ALLOW_THREADS
    count = brick_reader_ring(&s->reader, lane, events, copy, &first);
    Py_END_ALLOW_THREADS
    PyObject *result = count < 0 ? refused(s)
                                 : Py_BuildValue("(Ky#)", (unsigned long long)first, (const char *)copy,
                                                 (Py_ssize_t)((uint64_t)count * sizeof *copy));
    PyMem_Free(copy);
    return result;
}

static void plain_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef segment_methods[] = {
    {"header", segment_header, METH_NOARGS, "The fields of the header."},
    {"process", segment_process, METH_NOARGS, "The fields of the process line."},
    {"control", segment_control, METH_NOARGS, "The fields of the control page."},
    {"lanes", segment_lanes, METH_NOARGS, "[(number, lane line, consumer line)] of the lanes that were ever used."},
    {"names", segment_names, METH_NOARGS, "[(text, category) or None]."},
    {"paths", segment_paths, METH_NOARGS, "[(parent, name, layer, unit) or None]."},
    {"summaries", segment_summaries, METH_VARARGS, "summaries(lane=-1) -> (array of summary, odd, moving), added up over lanes."},
    {"ring", segment_ring, METH_VARARGS, "ring(lane, events) -> (number of the first slot, slots)."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot segment_slots[] = {
    {Py_tp_new, segment_new},
    {Py_tp_dealloc, plain_dealloc},
    {Py_tp_methods, segment_methods},
    {Py_tp_doc, "Segment(fd): a segment whose header was believed; ValueError says why not."},
    {0, NULL},
};
static PyType_Spec segment_spec = {"brickd._reader.Segment", sizeof(Segment), 0, Py_TPFLAGS_DEFAULT, segment_slots};

/* ---- Fold -------------------------------------------------------------- */

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
static PyObject *shares(const struct brick_summary *s, const int32_t *rows, Py_ssize_t paths, Py_ssize_t count,
                        double tick_ns)
{
    PyObject *result = PyDict_New();
    double(*sums)[3] = PyMem_Calloc((size_t)count + 1, sizeof *sums);
    if (sums == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t p = 0; sums != NULL && p < paths; p++) {
        if (rows[p] < 0 || s[p].count == 0)
            continue;
        sums[rows[p]][0] += (double)s[p].count;
        sums[rows[p]][1] += (double)s[p].total * tick_ns;
        sums[rows[p]][2] += brick_rest(s[p].total, s[p].child) * tick_ns;
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

static PyObject *fold_add(PyObject *self, PyObject *args)
{
    Fold *f = (Fold *)self;
    Py_buffer summaries, rows, outer;
    double tick_ns;
    if (!PyArg_ParseTuple(args, "y*y*y*d:add", &summaries, &rows, &outer, &tick_ns))
        return NULL;
    PyObject *result = NULL;
    Py_ssize_t paths = summaries.len / (Py_ssize_t)sizeof(struct brick_summary), most = -1;
    const struct brick_summary *s = summaries.buf;
    const int32_t *row = rows.buf;
    if (rows.len != paths * (Py_ssize_t)sizeof *row || outer.len != paths || !(tick_ns > 0) || !isfinite(tick_ns)) {
        PyErr_Format(PyExc_ValueError, "%zd paths need as many rows (int32) and outer flags (int8), and a tick above 0",
                     paths);
        goto done;
    }
    for (Py_ssize_t p = 0; p < paths; p++)
        most = row[p] > most ? row[p] : most;
    if (!fold_grow(f, most + 1))
        goto done;
    if (f->grid_ns == 0)
        f->grid_ns = tick_ns;
    for (Py_ssize_t p = 0; p < paths; p++)
        if (row[p] >= 0)
            brick_row_add(&f->rows[row[p]], &s[p], tick_ns, f->grid_ns, ((const int8_t *)outer.buf)[p]);
    result = shares(s, row, paths, most + 1, tick_ns);
done:
    PyBuffer_Release(&summaries);
    PyBuffer_Release(&rows);
    PyBuffer_Release(&outer);
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
     "add(summaries, rows, outer, tick_ns) -> {row: (count, total_ns, self_ns)} of what was added."},
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
static PyType_Spec fold_spec = {"brickd._reader.Fold", sizeof(Fold), 0, Py_TPFLAGS_DEFAULT, fold_slots};

/* ---- clocks ------------------------------------------------------------ */

static uint64_t ticks_of(uint32_t clock)
{
#if defined(__x86_64__)
    if (clock == BRICK_CLOCK_TSC)
        return __rdtsc();
#elif defined(__aarch64__)
    if (clock == BRICK_CLOCK_CNTVCT) {
        uint64_t v;
        __asm__ volatile("mrs %0, cntvct_el0" : "=r"(v));
        return v;
    }
#endif
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* (ticks, ns): of a few pairs the one whose two readings lay closest together. */
static PyObject *reader_clock_pair(PyObject *module, PyObject *kind)
{
    unsigned long clock = PyLong_AsUnsignedLong(kind);
    if (clock == (unsigned long)-1 && PyErr_Occurred())
        return NULL;
    uint64_t least = UINT64_MAX, ticks = 0, ns = 0;
    for (int i = 0; i < 9; i++) {
        uint64_t before = ticks_of((uint32_t)clock), now = ticks_of(BRICK_CLOCK_MONOTONIC);
        uint64_t after = ticks_of((uint32_t)clock);
        if (after - before < least) {
            least = after - before;
            ticks = before + least / 2;
            ns = now;
        }
    }
    if (clock == BRICK_CLOCK_MONOTONIC)
        ticks = ns;
    return Py_BuildValue("(KK)", (unsigned long long)ticks, (unsigned long long)ns);
}

/* ---- module ------------------------------------------------------------ */

static PyMethodDef reader_methods[] = {
    {"layout", reader_layout, METH_NOARGS, "[(struct, field, offset, count, code)] of every shared struct."},
    {"clock_pair", reader_clock_pair, METH_O, "clock_pair(kind) -> (ticks, CLOCK_MONOTONIC_RAW ns), taken together."},
    {NULL, NULL, 0, NULL},
};

static int reader_exec(PyObject *module)
{
    PyObject *segment = PyType_FromModuleAndSpec(module, &segment_spec, NULL);
    PyObject *fold = PyType_FromModuleAndSpec(module, &fold_spec, NULL);
    if (segment == NULL || fold == NULL || PyModule_AddType(module, (PyTypeObject *)segment) != 0
        || PyModule_AddType(module, (PyTypeObject *)fold) != 0)
        return -1;
    Py_DECREF(segment);
    Py_DECREF(fold);
    if (PyModule_AddStringConstant(module, "FORMAT", FORMAT) != 0
        || PyModule_AddStringConstant(module, "PREFIX", BRICK_PREFIX) != 0
        || PyModule_AddStringConstant(module, "DIRECTORY", BRICK_DIRECTORY) != 0
        || PyModule_AddIntConstant(module, "LOCK_WORKER", BRICK_LOCK_WORKER) != 0
        || PyModule_AddIntConstant(module, "LOCK_CONSUMER", BRICK_LOCK_CONSUMER) != 0
        || PyModule_AddIntConstant(module, "CLOCK_TSC", BRICK_CLOCK_TSC) != 0
        || PyModule_AddIntConstant(module, "CLOCK_MONOTONIC", BRICK_CLOCK_MONOTONIC) != 0
        || PyModule_AddIntConstant(module, "CONTROL_OFF", BRICK_CONTROL_OFF) != 0
        || PyModule_AddIntConstant(module, "CONTROL_SPANS", BRICK_CONTROL_SPANS) != 0
        || PyModule_AddIntConstant(module, "KIND_SPAN", BRICK_KIND_SPAN) != 0
        || PyModule_AddIntConstant(module, "SUMMARY_BYTES", (long)sizeof(struct brick_summary)) != 0)
        return -1;
    return 0;
}

static PyModuleDef_Slot reader_slots[] = {
    {Py_mod_exec, reader_exec},
    {0, NULL},
};
static struct PyModuleDef reader_module = {
    PyModuleDef_HEAD_INIT, "brickd._reader", "Copies segments and adds up what they hold.", 0, reader_methods,
    reader_slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__reader(void) { return PyModuleDef_Init(&reader_module); }
