/* python/module.c - the module brickd.shm._reader. */
#include "../core/fold.h"
#include "../core/match.h"
#include "../core/recording_format.h"
#include "../core/row_pairs.h"
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
        list_append(&rows, Py_BuildValue("(ssIIs)", f->record, f->name, f->offset, f->size / code_size(f->code), code));
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

/* Reads both clocks several times, and returns the pair (ticks, ns) that took the least time to read. */
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

/* Signatures are in brickd/shm/_reader.pyi. */
static PyMethodDef reader_methods[] = {
    {"layout", reader_layout, METH_NOARGS,
     "[(struct, field, offset, count, code)] of all fields of the major version."},
    {"later", reader_later, METH_NOARGS,
     "[(struct, field, offset, count, code)] of the fields that minor versions added."},
    {"clock_pair", reader_clock_pair, METH_O, "(ticks, CLOCK_MONOTONIC_RAW ns), read at the same moment."},
    {"rest", reader_rest, METH_VARARGS,
     "Wait until an fd is readable or a ring is full enough; return whether each fd is readable."},
    {"drain", reader_drain, METH_VARARGS,
     "Drain segments, beginning with number `first`, until this number of bytes is read: (number of the next "
     "segment, bytes read, [(number, event records or None, reason for its refusal or None)])."},
    {"tails", reader_tails, METH_VARARGS, "[(fd, offset, bytes)]: what to write into the segments, in this order."},
    {"watch", reader_watch, METH_O, "An inotify descriptor for created and removed files."},
    {"write_all", reader_write_all, METH_O,
     "Make these writes; return {fd: errno} of the failed ones, after which writes to the same file are skipped."},
    {"recording_title", reader_title, METH_O, "(major, minor, made_ns, id, number, key); ValueError gives the reason."},
    {"find_chunk", reader_find_chunk, METH_VARARGS,
     "(offset, kind, length, number, at_ns, body_sum) of the first valid head of a chunk, or None."},
    {"recording_sum", reader_sum, METH_VARARGS, "The checksum of a body."},
    {"recorded_from", reader_records, METH_O, "(worker, lane, ring, inside, first) of the body of a RECORDS chunk."},
    {"walk", reader_walk, METH_VARARGS,
     "The number of the slot where the first record at `from` or after it begins, or None if this is not known."},
    {"checked", reader_checked, METH_VARARGS,
     "(slots of the complete checksums, slot where an incomplete one begins or else the number of slots, last "
     "sequence, missing, rejected)."},
    {"span_rows", reader_span_rows, METH_VARARGS,
     "Make rows of the spans in slots; return (number of rows, last sequence, records lost since the last row, "
     "missing, rejected, of other kinds)."},
    {"deferred_slots", reader_deferred_slots, METH_VARARGS,
     "(records of deferred work, last sequence, missing, rejected) of event slots."},
    {"span_lines", reader_span_lines, METH_VARARGS, "Write rows as lines of text; return (rows done, bytes used)."},
    {"tensor_error", reader_tensor_error, METH_VARARGS,
     "The relative error of the second tensor, or None if unknown; both are records of a checksum without inputs, "
     "except the first slot."},
    {"rows_unsteady", reader_rows_unsteady, METH_O, "Whether a site with these pairs of workers is unsteady (row_pairs.h)."},
    {"weights_of", reader_weights_of, METH_VARARGS, "The number of each record's tensor, or -1."},
    {"weights_held", reader_weights_held, METH_VARARGS,
     "The number of each record's content; a new content gets a number if there are fewer than `most`, else 0."},
    {"weights_put", reader_weights_put, METH_VARARGS,
     "Store the records; return (number of changes, number of refused records, contents that are no longer used)."},
    {"removed_layout", reader_removed_layout, METH_NOARGS, "Like layout, for the records of removed segments."},
    {"removed", reader_removed, METH_O, "[fields of a record of a removed segment, or None]."},
    {"is_removed", reader_is_removed, METH_O, "Whether a file of this name has records of removed segments."},
    {"append_removed", reader_append_removed, METH_VARARGS,
     "Append a record of a removed segment; return whether it was written."},
    {"pieces", reader_pieces, METH_O,
     "(all other events, [(hash, number of the first piece, text)] of consecutive pieces of a source)."},
    {"source_hash", reader_source_hash, METH_O, "The hash of a source."},
    {"step_texts", reader_step_texts, METH_O, "The texts of steps among events, as bytes."},
    {"recording_end", reader_end, METH_O,
     "(chunks, refused_chunks, refused_bytes, refused_slots) of the body of an END chunk."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject *type_add(PyObject *module, PyType_Spec *spec)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (type != NULL && PyModule_AddType(module, (PyTypeObject *)type) != 0)
        Py_CLEAR(type);
    return (PyTypeObject *)type;
}

/* Adds to the module a constant KIND_NAME for each kind of record, and a tuple KINDS of all kinds: (number, name,
 * struct, whether it is an event). */
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

static const struct constant {
    const char *name;
    long value;
} constants[] = {
    {"REMOVED_BYTES", (long)sizeof(struct brick_removed)},
    {"REMOVED_MAX", BRICK_REMOVED_MAX},
    {"REMOVED_READ_MAX", BRICK_REMOVED_READ_MAX},
    {"REMOVED_ROOM", BRICK_REMOVED_ROOM},
    {"REMOVED_ENDED", BRICK_REMOVED_ENDED},
    {"REMOVED_PRUNED", BRICK_REMOVED_PRUNED},
    {"LOCK_WORKER", BRICK_LOCK_WORKER},
    {"LOCK_CONSUMER", BRICK_LOCK_CONSUMER},
    {"CLOCK_TSC", BRICK_CLOCK_TSC},
    {"CLOCK_MONOTONIC", BRICK_CLOCK_MONOTONIC},
    {"CONTROL", BRICK_PAGE},
    {"RATE_NONE", BRICK_RATE_NONE},
    {"RATE_ALL", BRICK_RATE_ALL},
    {"EPOCH_SECONDS", BRICK_EPOCH_SECONDS},
    {"EPOCH_HOLDS", BRICK_EPOCH_HOLDS},
    {"CONTROL_OFF", BRICK_CONTROL_OFF},
    {"CONTROL_SPANS", BRICK_CONTROL_SPANS},
    {"SOURCE_PIECE", BRICK_SOURCE_PIECE},
    {"SOURCE_MAX", BRICK_SOURCE_MAX},
    {"SOURCE_LABEL", BRICK_SOURCE_LABEL},
    {"CANARY_MAX", BRICK_CANARY_MAX},
    {"SOURCE_TEXT", BRICK_SOURCE_TEXT},
    {"SOURCE_END", BRICK_SOURCE_END},
    {"CHECKED_POSITION", BRICK_CHECKED_POSITION},
    {"CHECKED_WEIGHT", BRICK_CHECKED_WEIGHT},
    {"CHECKED_MORE", BRICK_CHECKED_MORE},
    {"CHECKED_STATELESS", BRICK_CHECKED_STATELESS},
    {"CHECKED_HISTORY", BRICK_CHECKED_HISTORY},
    {"CHECKED_ROWS", BRICK_CHECKED_ROWS},
    {"SITE_PRESUMED", BRICK_SITE_PRESUMED},
    {"TIER_TENSORS", BRICK_TIER_TENSORS},
    {"TIER_ROWS", BRICK_TIER_ROWS},
    {"TIER_HISTORY", BRICK_TIER_HISTORY},
    {"ROW_WORKERS_MAX", BRICK_ROW_WORKERS_MAX},
    {"CONTENTS_MIN", BRICK_CONTENTS_MIN},
    {"ROUNDED_NOT", BRICK_ROUNDED_NOT},
    {"ROUNDED_ONCE", BRICK_ROUNDED_ONCE},
    {"SITE_STATEFUL", (long)BRICK_SITE_STATEFUL},
    {"SITE_HISTORY", (long)BRICK_SITE_HISTORY},
    {"SITE_ROWS", (long)BRICK_SITE_ROWS},
    {"CHECKED_STATEFUL", BRICK_CHECKED_STATEFUL},
    {"CHECKED_STEP", BRICK_CHECKED_STEP},
    {"SITE_OFF", BRICK_SITE_OFF},
    {"UNIT_TICKS", BRICK_UNIT_TICKS},
    {"UNIT_NS", BRICK_UNIT_NS},
    {"UNIT_DEFERRED", BRICK_UNIT_DEFERRED},
    {"UNIT_BOUND", BRICK_UNIT_BOUND},
    {"UNIT_LAUNCHED", BRICK_UNIT_LAUNCHED},
    {"UNIT_SHAPED", BRICK_UNIT_SHAPED},
    {"UNIT_H2D", BRICK_UNIT_H2D},
    {"UNIT_D2H", BRICK_UNIT_D2H},
    {"UNIT_D2D", BRICK_UNIT_D2D},
    {"UNIT_RETURNED", BRICK_UNIT_RETURNED},
    {"UNIT_NEEDS", BRICK_UNIT_NEEDS},
    {"UNIT_DEFINED", BRICK_UNIT_DEFINED},
    {"UNIT_ENDED", BRICK_UNIT_ENDED},
    {"UNIT_NODE", BRICK_UNIT_NODE},
    {"UNIT_TASK", BRICK_UNIT_TASK},
    {"UNIT_ROWS", BRICK_UNIT_ROWS},
    {"UNITS", BRICK_UNITS},
    {"PART_OUTER", BRICK_PART_OUTER},
    {"PART_NS", BRICK_PART_NS},
    {"LANES_MAX", BRICK_LANES_MAX},
    {"SITES_MAX", BRICK_SITES_MAX},
    {"NUMBERS_MAX", BRICK_NUMBERS_MAX},
    {"RECORDING_FIRST", (long)BRICK_RECORDING_FIRST},
    {"BLOCK_BYTES", BRICK_BLOCK},
    {"CHUNK_BYTES_MAX", (long)BRICK_BODY_MAX},
    {"CHUNK_END", BRICK_CHUNK_END},
    {"CHUNK_RECORDS", BRICK_CHUNK_RECORDS},
    {"CHUNK_WORKERS", BRICK_CHUNK_WORKERS},
    {"CHUNK_SNAPSHOT", BRICK_CHUNK_SNAPSHOT},
    {"CHUNK_EVENTS", BRICK_CHUNK_EVENTS},
    {"CHUNK_BEGINNING", BRICK_CHUNK_BEGINNING},
    {"CHUNK_TABLES", BRICK_CHUNK_TABLES},
    {"CHUNK_ENDING", BRICK_CHUNK_ENDING},
    {"CHUNK_WEIGHTS", BRICK_CHUNK_WEIGHTS},
    {"CHUNK_SOURCE", BRICK_CHUNK_SOURCE},
    {"CHUNK_KINDS", BRICK_CHUNK_KINDS},
    {"BUCKETS", BRICK_BUCKETS},
    {"BOUNDS", BRICK_BOUNDS},
    {"SUMMARY_BYTES", (long)sizeof(struct brick_summary)},
};

/* The types that no C code creates or checks. */
static PyType_Spec *const other_types[] = {&segment_spec, &fold_spec, &summaries_spec, &recording_spec, &fingerprints_spec,
                                          &tracks_spec,  &durations_spec};

static int reader_exec(PyObject *module)
{
    struct reader_state *state = PyModule_GetState(module);
    state->drain = type_add(module, &drain_spec);
    state->packed = type_add(module, &packed_spec);
    state->spool = type_add(module, &spool_spec);
    if (state->drain == NULL || state->packed == NULL || state->spool == NULL)
        return -1;
    for (size_t i = 0; i < sizeof other_types / sizeof *other_types; i++) {
        PyTypeObject *type = type_add(module, other_types[i]);
        if (type == NULL)
            return -1;
        Py_DECREF(type);
    }
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (PyModule_AddIntConstant(module, constants[i].name, constants[i].value) != 0)
            return -1;
    if (kinds_add(module) != 0 || PyModule_AddStringConstant(module, "FORMAT", FORMAT) != 0
        || PyModule_AddStringConstant(module, "PREFIX", BRICK_PREFIX) != 0
        || PyModule_AddStringConstant(module, "DIRECTORY", BRICK_DIRECTORY) != 0)
        return -1;
    return PyModule_AddStringConstant(module, "REMOVED_NAME", BRICK_REMOVED_NAME);
}

static int reader_traverse(PyObject *module, visitproc visit, void *arg)
{
    struct reader_state *state = PyModule_GetState(module);
    if (state != NULL) {
        Py_VISIT(state->drain);
        Py_VISIT(state->packed);
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
        Py_CLEAR(state->spool);
        for (int i = 0; i < BRICK_TABLES; i++) {
            Py_CLEAR(state->tables[i].bytes);
            Py_CLEAR(state->tables[i].rows);
        }
    }
    return 0;
}

static void reader_free(void *module)
{
    reader_clear(module);
    struct reader_state *state = PyModule_GetState(module);
    if (state != NULL)
        scratch_clear(state);
}

static PyModuleDef_Slot reader_slots[] = {
    {Py_mod_exec, reader_exec},
    {0, NULL},
};
static struct PyModuleDef reader_module = {
    PyModuleDef_HEAD_INIT, "brickd.shm._reader", "Copies segments and adds up their contents.", sizeof(struct reader_state),
    reader_methods, reader_slots, reader_traverse, reader_clear, reader_free,
};

PyMODINIT_FUNC PyInit__reader(void) { return PyModuleDef_Init(&reader_module); }
