/* python/module.c - brickd.shm._reader: the reader's face in CPython. */
#include "../core/fold.h"
#include "../core/match.h"
#include "../core/fingerprint_window.h"
#include "../core/recording_format.h"
#include "../core/tolerance.h"
#include "brick_removed.h"
#include "py_types.h"

#include <time.h>

#define TEXT(x) #x
#define VERSION(major, minor) TEXT(major) "." TEXT(minor)
#define FORMAT VERSION(BRICK_MAJOR, BRICK_MINOR)

void plain_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *rows_of(const struct brick_field *table, size_t first, size_t end)
{
    PyObject *rows = PyList_New(0);
    for (size_t i = first; rows != NULL && i < end; i++) {
        const struct brick_field *f = &table[i];
        char code[2] = {f->code, 0};
        PyObject *row = Py_BuildValue("(ssIIs)", f->record, f->name, f->offset, f->size / code_size(f->code), code);
        if (row == NULL || PyList_Append(rows, row) != 0)
            Py_CLEAR(rows);
        Py_XDECREF(row);
    }
    return rows;
}

static PyObject *reader_layout(PyObject *module, PyObject *unused)
{
    return rows_of(brick_fields, 0, BRICK_FROZEN_COUNT);
}

static PyObject *reader_later(PyObject *module, PyObject *unused)
{
    return rows_of(brick_fields, BRICK_FROZEN_COUNT, BRICK_FIELD_COUNT);
}

static PyObject *reader_removed_layout(PyObject *module, PyObject *unused)
{
    return rows_of(brick_removed_fields, 0, BRICK_REMOVED_FIELD_COUNT);
}

/* ---- clocks ------------------------------------------------------------ */

static uint64_t ticks_of(uint32_t clock)
{
#if defined(__x86_64__)
    if (clock == BRICK_CLOCK_TSC)
        return __builtin_ia32_rdtsc();
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
    {"layout", reader_layout, METH_NOARGS, "[(struct, field, offset, count, code)] of every shared struct, as the major froze it."},
    {"later", reader_later, METH_NOARGS, "The same of what minors have added: kinds of records, names for what was reserved."},
    {"clock_pair", reader_clock_pair, METH_O, "clock_pair(kind) -> (ticks, CLOCK_MONOTONIC_RAW ns), taken together."},
    {"rest", reader_rest, METH_VARARGS,
     "rest(drains, (fd, fd), interval_ms, looks) -> whether anything moved; sooner back when a descriptor is readable."},
    {"drain", reader_drain, METH_O,
     "drain(segments) -> [(index, event records or None, why it is refused from now on or None)] where there is any."},
    {"drain_some", reader_drain_some, METH_VARARGS,
     "drain_some(segments, first, bytes) -> (the one it did not come to, bytes read, as drain says it): from the first one "
     "on, until so many bytes were read."},
    {"tails", reader_tails, METH_VARARGS,
     "tails(segments, events) -> [(fd, offset, bytes)], to be written in this order."},
    {"watch", reader_watch, METH_O, "watch(directory) -> inotify descriptor, told of each file that comes or goes."},
    {"write_all", reader_write_all, METH_O,
     "write_all([(fd, offset, bytes)]) -> {fd: errno} where it failed; a file's writes that follow that one are not made."},
    {"recording_title", reader_title, METH_O,
     "recording_title(bytes) -> (major, minor, made_ns, id, number, key); ValueError says why it is none."},
    {"find_chunk", reader_find_chunk, METH_VARARGS,
     "find_chunk(key, blocks) -> (offset, kind, length, number, at_ns, body_sum) of the first head in there, or None."},
    {"recording_sum", reader_sum, METH_VARARGS, "recording_sum(key, blocks) -> the checksum of a body."},
    {"recorded_from", reader_records, METH_O, "recorded_from(body) -> (worker, lane, ring, inside, first) of RECORDS."},
    {"walk", reader_walk, METH_VARARGS,
     "walk(slots, at, wanted) -> the slot of the first record at `wanted` or behind it; None: that is not known."},
    {"checked", reader_checked, METH_VARARGS,
     "checked(slots, at, last) -> (whole checksums, slot of one that was cut or their count, last number, missing, rejected)."},
    {"tensor_error", reader_tensor_error, METH_VARARGS,
     "tensor_error(one, other) -> the other's relative error, or None; each is what follows the head of a checksum's"
     " record without inputs."},
    {"weights_of", reader_weights_of, METH_VARARGS,
     "weights_of(records, sites, tensors) -> numbers of their tensors, or -1."},
    {"weights_held", reader_weights_held, METH_VARARGS,
     "weights_held(records, numbers, said, unused, most) -> numbers of what they hold, or 0: what none had has one now, up "
     "to so many."},
    {"weights_put", reader_weights_put, METH_VARARGS,
     "weights_put(records, tensors, contents, uses, generations, ticks, now, first_ticks, firsts, named) -> (news, refused,"
     " contents that somebody held last)."},
    {"removed_layout", reader_removed_layout, METH_NOARGS, "As layout, of the records of removed segments."},
    {"removed", reader_removed, METH_O, "removed(content) -> [fields of a record of a removed segment, or None of what is none]."},
    {"is_removed", reader_is_removed, METH_O, "is_removed(name) -> whether a file of this name holds such records."},
    {"append_removed", reader_append_removed, METH_VARARGS,
     "append_removed(prefix, record) -> whether it is in the file, so that its segment may be removed."},
    {"pieces", reader_pieces, METH_O,
     "pieces(events) -> (the others, [(hash, piece, text)] of those of sources: what follows one another in one)."},
    {"source_hash", reader_source_hash, METH_O, "source_hash(text) -> by what the source with this text is known."},
    {"recording_end", reader_end, METH_O,
     "recording_end(body) -> (chunks, refused_chunks, refused_bytes, refused_slots) of END."},
    {NULL, NULL, 0, NULL},
};

/* A type of the module's; a new reference. */
static PyTypeObject *type_add(PyObject *module, PyType_Spec *spec)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (type != NULL && PyModule_AddType(module, (PyTypeObject *)type) != 0)
        Py_CLEAR(type);
    return (PyTypeObject *)type;
}

/* Each kind of record as KIND_NAME; KINDS has them all: number, name, struct, whether it is an event. */
static int kinds_add(PyObject *module)
{
    static const struct {
        const char *constant, *name, *record;
        int number, event;
    } kinds[] = {
#define SPAN_KIND(NAME, number, name, record) {"KIND_" #NAME, #name, #record, number, 0},
#define EVENT_KIND(NAME, number, name, record) {"KIND_" #NAME, #name, #record, number, 1},
        BRICK_SPAN_KINDS(SPAN_KIND) BRICK_EVENT_KINDS(EVENT_KIND)
    };
    const Py_ssize_t count = (Py_ssize_t)(sizeof kinds / sizeof *kinds);
    PyObject *rows = PyTuple_New(count);
    int failed = rows == NULL;
    for (Py_ssize_t i = 0; !failed && i < count; i++) {
        PyObject *row = Py_BuildValue("issO", kinds[i].number, kinds[i].name, kinds[i].record,
                                      kinds[i].event ? Py_True : Py_False);
        failed = row == NULL || PyTuple_SetItem(rows, i, row) != 0
                 || PyModule_AddIntConstant(module, kinds[i].constant, kinds[i].number) != 0;
    }
    failed = failed || PyModule_AddObjectRef(module, "KINDS", rows) != 0;
    Py_XDECREF(rows);
    return failed ? -1 : 0;
}

static int reader_exec(PyObject *module)
{
    struct reader_state *state = PyModule_GetState(module);
    PyTypeObject *segment = type_add(module, &segment_spec), *fold = type_add(module, &fold_spec);
    PyTypeObject *summaries = type_add(module, &summaries_spec), *recording = type_add(module, &recording_spec);
    state->drain = type_add(module, &drain_spec);
    state->packed = type_add(module, &packed_spec);
    state->prints = type_add(module, &prints_spec);
    state->spool = type_add(module, &spool_spec);
    Py_XDECREF(segment);
    Py_XDECREF(fold);
    Py_XDECREF(summaries);
    Py_XDECREF(recording);
    if (segment == NULL || fold == NULL || summaries == NULL || recording == NULL || state->drain == NULL
        || state->packed == NULL || state->prints == NULL || state->spool == NULL)
        return -1;
    if (kinds_add(module) != 0 || PyModule_AddStringConstant(module, "FORMAT", FORMAT) != 0
        || PyModule_AddStringConstant(module, "PREFIX", BRICK_PREFIX) != 0
        || PyModule_AddStringConstant(module, "DIRECTORY", BRICK_DIRECTORY) != 0
        || PyModule_AddStringConstant(module, "REMOVED_NAME", BRICK_REMOVED_NAME) != 0
        || PyModule_AddIntConstant(module, "REMOVED_BYTES", (long)sizeof(struct brick_removed)) != 0
        || PyModule_AddIntConstant(module, "REMOVED_MAX", BRICK_REMOVED_MAX) != 0
        || PyModule_AddIntConstant(module, "REMOVED_READ_MAX", BRICK_REMOVED_READ_MAX) != 0
        || PyModule_AddIntConstant(module, "REMOVED_ROOM", BRICK_REMOVED_ROOM) != 0
        || PyModule_AddIntConstant(module, "REMOVED_ENDED", BRICK_REMOVED_ENDED) != 0
        || PyModule_AddIntConstant(module, "REMOVED_PRUNED", BRICK_REMOVED_PRUNED) != 0
        || PyModule_AddIntConstant(module, "LOCK_WORKER", BRICK_LOCK_WORKER) != 0
        || PyModule_AddIntConstant(module, "LOCK_CONSUMER", BRICK_LOCK_CONSUMER) != 0
        || PyModule_AddIntConstant(module, "CLOCK_TSC", BRICK_CLOCK_TSC) != 0
        || PyModule_AddIntConstant(module, "CLOCK_MONOTONIC", BRICK_CLOCK_MONOTONIC) != 0
        || PyModule_AddIntConstant(module, "CONTROL", BRICK_PAGE) != 0
        || PyModule_AddIntConstant(module, "RATE_NONE", BRICK_RATE_NONE) != 0
        || PyModule_AddIntConstant(module, "RATE_ALL", BRICK_RATE_ALL) != 0
        || PyModule_AddIntConstant(module, "CONTROL_OFF", BRICK_CONTROL_OFF) != 0
        || PyModule_AddIntConstant(module, "CONTROL_SPANS", BRICK_CONTROL_SPANS) != 0
        || PyModule_AddIntConstant(module, "SOURCE_PIECE", BRICK_SOURCE_PIECE) != 0
        || PyModule_AddIntConstant(module, "SOURCE_MAX", BRICK_SOURCE_MAX) != 0
        || PyModule_AddIntConstant(module, "SOURCE_LABEL", BRICK_SOURCE_LABEL) != 0
        || PyModule_AddIntConstant(module, "SOURCE_TEXT", BRICK_SOURCE_TEXT) != 0
        || PyModule_AddIntConstant(module, "SOURCE_END", BRICK_SOURCE_END) != 0
        || PyModule_AddIntConstant(module, "CHECKED_POSITION", BRICK_CHECKED_POSITION) != 0
        || PyModule_AddIntConstant(module, "CHECKED_WEIGHT", BRICK_CHECKED_WEIGHT) != 0
        || PyModule_AddIntConstant(module, "CHECKED_MORE", BRICK_CHECKED_MORE) != 0
        || PyModule_AddIntConstant(module, "CHECKED_STATELESS", BRICK_CHECKED_STATELESS) != 0
        || PyModule_AddIntConstant(module, "CONTENTS_MIN", BRICK_CONTENTS_MIN) != 0
        || PyModule_AddIntConstant(module, "ROUNDED_NOT", BRICK_ROUNDED_NOT) != 0
        || PyModule_AddIntConstant(module, "ROUNDED_ONCE", BRICK_ROUNDED_ONCE) != 0
        || PyModule_AddIntConstant(module, "SITE_STATEFUL", (long)BRICK_SITE_STATEFUL) != 0
        || PyModule_AddIntConstant(module, "CHECKED_STATEFUL", BRICK_CHECKED_STATEFUL) != 0
        || PyModule_AddIntConstant(module, "CHECKED_STEP", BRICK_CHECKED_STEP) != 0
        || PyModule_AddIntConstant(module, "SITE_OFF", BRICK_SITE_OFF) != 0
        || PyModule_AddIntConstant(module, "UNIT_TICKS", BRICK_UNIT_TICKS) != 0
        || PyModule_AddIntConstant(module, "UNIT_NS", BRICK_UNIT_NS) != 0
        || PyModule_AddIntConstant(module, "UNIT_DEFERRED", BRICK_UNIT_DEFERRED) != 0
        || PyModule_AddIntConstant(module, "UNIT_BOUND", BRICK_UNIT_BOUND) != 0
        || PyModule_AddIntConstant(module, "UNIT_LAUNCHED", BRICK_UNIT_LAUNCHED) != 0
        || PyModule_AddIntConstant(module, "UNIT_SHAPED", BRICK_UNIT_SHAPED) != 0
        || PyModule_AddIntConstant(module, "UNIT_H2D", BRICK_UNIT_H2D) != 0
        || PyModule_AddIntConstant(module, "UNIT_D2H", BRICK_UNIT_D2H) != 0
        || PyModule_AddIntConstant(module, "UNIT_D2D", BRICK_UNIT_D2D) != 0
        || PyModule_AddIntConstant(module, "UNIT_RETURNED", BRICK_UNIT_RETURNED) != 0
        || PyModule_AddIntConstant(module, "UNIT_NEEDS", BRICK_UNIT_NEEDS) != 0
        || PyModule_AddIntConstant(module, "UNIT_DEFINED", BRICK_UNIT_DEFINED) != 0
        || PyModule_AddIntConstant(module, "UNIT_ENDED", BRICK_UNIT_ENDED) != 0
        || PyModule_AddIntConstant(module, "UNITS", BRICK_UNITS) != 0
        || PyModule_AddIntConstant(module, "PART_OUTER", BRICK_PART_OUTER) != 0
        || PyModule_AddIntConstant(module, "PART_NS", BRICK_PART_NS) != 0
        || PyModule_AddIntConstant(module, "LANES_MAX", BRICK_LANES_MAX) != 0
        || PyModule_AddIntConstant(module, "SITES_MAX", BRICK_SITES_MAX) != 0
        || PyModule_AddIntConstant(module, "SLOTS_MAX", BRICK_SLOTS_MAX) != 0
        || PyModule_AddIntConstant(module, "NUMBERS_MAX", BRICK_NUMBERS_MAX) != 0
        || PyModule_AddIntConstant(module, "RECORDING_MAJOR", BRICK_RECORDING_MAJOR) != 0
        || PyModule_AddIntConstant(module, "RECORDING_FIRST", (long)BRICK_RECORDING_FIRST) != 0
        || PyModule_AddIntConstant(module, "BLOCK_BYTES", BRICK_BLOCK) != 0
        || PyModule_AddIntConstant(module, "CHUNK_BYTES_MAX", (long)BRICK_BODY_MAX) != 0
        || PyModule_AddIntConstant(module, "CHUNK_END", BRICK_CHUNK_END) != 0
        || PyModule_AddIntConstant(module, "CHUNK_RECORDS", BRICK_CHUNK_RECORDS) != 0
        || PyModule_AddIntConstant(module, "CHUNK_WORKERS", BRICK_CHUNK_WORKERS) != 0
        || PyModule_AddIntConstant(module, "CHUNK_SNAPSHOT", BRICK_CHUNK_SNAPSHOT) != 0
        || PyModule_AddIntConstant(module, "CHUNK_EVENTS", BRICK_CHUNK_EVENTS) != 0
        || PyModule_AddIntConstant(module, "CHUNK_BEGINNING", BRICK_CHUNK_BEGINNING) != 0
        || PyModule_AddIntConstant(module, "CHUNK_TABLES", BRICK_CHUNK_TABLES) != 0
        || PyModule_AddIntConstant(module, "CHUNK_ENDING", BRICK_CHUNK_ENDING) != 0
        || PyModule_AddIntConstant(module, "CHUNK_WEIGHTS", BRICK_CHUNK_WEIGHTS) != 0
        || PyModule_AddIntConstant(module, "CHUNK_SOURCE", BRICK_CHUNK_SOURCE) != 0
        || PyModule_AddIntConstant(module, "CHUNK_KINDS", BRICK_CHUNK_KINDS) != 0
        || PyModule_AddIntConstant(module, "SUMMARY_BYTES", (long)sizeof(struct brick_summary)) != 0)
        return -1;
    return 0;
}

static int reader_traverse(PyObject *module, visitproc visit, void *arg)
{
    struct reader_state *state = PyModule_GetState(module);
    if (state != NULL) {
        Py_VISIT(state->drain);
        Py_VISIT(state->packed);
        Py_VISIT(state->prints);
        Py_VISIT(state->spool);
        for (int i = 0; i < BRICK_TABLES; i++)
            Py_VISIT(state->tables[i].rows);
    }
    return 0;
}

static int reader_clear(PyObject *module)
{
    struct reader_state *state = PyModule_GetState(module);
    if (state != NULL) {
        Py_CLEAR(state->drain);
        Py_CLEAR(state->packed);
        Py_CLEAR(state->prints);
        Py_CLEAR(state->spool);
        for (int i = 0; i < BRICK_TABLES; i++) {
            Py_CLEAR(state->tables[i].said);
            Py_CLEAR(state->tables[i].rows);
        }
    }
    return 0;
}

static PyModuleDef_Slot reader_slots[] = {
    {Py_mod_exec, reader_exec},
    {0, NULL},
};
static struct PyModuleDef reader_module = {
    PyModuleDef_HEAD_INIT, "brickd.shm._reader", "Copies segments and adds up what they hold.", sizeof(struct reader_state),
    reader_methods, reader_slots, reader_traverse, reader_clear, NULL,
};

PyMODINIT_FUNC PyInit__reader(void) { return PyModuleDef_Init(&reader_module); }
