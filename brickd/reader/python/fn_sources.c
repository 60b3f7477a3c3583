/* python/fn_sources.c - separates the pieces of kernel sources and of canaries' results from other events, hashes a
 * source, and finds the texts of steps.
 *
 * A writer sends the pieces of a source one after the other. Consecutive pieces become one row, so that Python code has
 * only a few rows to join. Of all other records, only the length is read.
 */
#include "py_types.h"

#include "../core/record_walk.h"

#define SLOT_BYTES ((Py_ssize_t)sizeof(struct brick_record))

struct run {
    const struct brick_source_piece *first;
    Py_ssize_t count;
};

static int is_piece(const struct brick_record *r)
{
    return (r->kind == BRICK_KIND_SOURCE || r->kind == BRICK_KIND_CANARY) && r->slots == 1;
}

/* Returns the longest run of consecutive pieces that begins at `at`. All belong to the same part (name, path or text)
 * of the same source. */
static struct run run_at(const struct brick_record *slots, Py_ssize_t at, Py_ssize_t count)
{
    const struct brick_source_piece *pieces = (const struct brick_source_piece *)(const void *)slots;
    const struct brick_source_piece *first = &pieces[at];
    Py_ssize_t n = 1;
    while (at + n < count && is_piece(&slots[at + n]) && pieces[at + n].kind == first->kind
           && pieces[at + n].hash == first->hash
           && pieces[at + n].piece == first->piece + (uint32_t)n && (pieces[at + n].piece ^ first->piece) >> 30 == 0)
        n++;
    return (struct run){first, n};
}

/* Returns the row of a run: (hash, piece, text). */
static PyObject *row_of(const struct run *run)
{
    PyObject *text = PyBytes_FromStringAndSize(NULL, run->count * BRICK_SOURCE_PIECE);
    if (text == NULL)
        return NULL;
    for (Py_ssize_t n = 0; n < run->count; n++)
        memcpy(PyBytes_AS_STRING(text) + n * BRICK_SOURCE_PIECE, run->first[n].text, BRICK_SOURCE_PIECE);
    return Py_BuildValue("(KIN)", (unsigned long long)run->first->hash, (unsigned int)run->first->piece, text);
}

/* Returns the end of the record at `at`. If the record claims to have no slots, or more than are left, this is the end
 * of all slots. */
static Py_ssize_t end_of(const struct brick_record *slots, Py_ssize_t at, Py_ssize_t count)
{
    const Py_ssize_t taken = slots[at].slots;
    return taken == 0 || taken > count - at ? count : at + taken;
}

struct runs {
    PyObject *sources, *canaries; /* lists of rows; NULL after a failure */
};

/* Appends the runs of pieces to `runs`, by kind, unless `runs` is NULL, and copies all other slots to `others` unless `others` is
 * NULL. Returns the number of other slots. On failure, clears a list and sets an exception. */
static Py_ssize_t part(const struct brick_record *slots, Py_ssize_t count, struct runs *runs, char *others)
{
    Py_ssize_t rest = 0;
    for (Py_ssize_t at = 0, next; at < count; at = next) {
        if (is_piece(&slots[at])) {
            const struct run run = run_at(slots, at, count);
            PyObject **of = runs == NULL ? NULL : run.first->kind == BRICK_KIND_CANARY ? &runs->canaries : &runs->sources;
            if (of != NULL && !list_append(of, row_of(&run)))
                return rest;
            next = at + run.count;
            continue;
        }
        next = end_of(slots, at, count);
        if (others != NULL)
            memcpy(others + rest * SLOT_BYTES, &slots[at], (size_t)((next - at) * SLOT_BYTES));
        rest += next - at;
    }
    return rest;
}

PyObject *reader_pieces(PyObject *module, PyObject *events)
{
    Py_buffer buffer;
    if (PyObject_GetBuffer(events, &buffer, PyBUF_SIMPLE) != 0)
        return NULL;
    const struct brick_record *slots = buffer.buf;
    const Py_ssize_t count = buffer.len / SLOT_BYTES, rest = part(slots, count, NULL, NULL);
    struct runs runs = {PyList_New(0), PyList_New(0)};
    PyObject *others = rest == count ? Py_NewRef(events) : PyBytes_FromStringAndSize(NULL, rest * SLOT_BYTES);
    const int is_made = runs.sources != NULL && runs.canaries != NULL && others != NULL;
    if (is_made && rest < count)
        part(slots, count, &runs, PyBytes_AS_STRING(others));
    PyBuffer_Release(&buffer);
    const int is_whole = is_made && runs.sources != NULL && runs.canaries != NULL;
    PyObject *result = is_whole ? PyTuple_Pack(3, others, runs.sources, runs.canaries) : NULL;
    Py_XDECREF(others);
    Py_XDECREF(runs.sources);
    Py_XDECREF(runs.canaries);
    return result;
}

PyObject *reader_step_texts(PyObject *module, PyObject *events)
{
    Py_buffer buffer;
    if (PyObject_GetBuffer(events, &buffer, PyBUF_SIMPLE) != 0)
        return NULL;
    const struct brick_record *slots = buffer.buf;
    const Py_ssize_t count = buffer.len / SLOT_BYTES;
    PyObject *texts = PyList_New(0);
    for (Py_ssize_t at = 0; texts != NULL && at < count; at = end_of(slots, at, count)) {
        const struct brick_step_text *r = (const struct brick_step_text *)(const void *)&slots[at];
        if (r->kind == BRICK_KIND_STEP_TEXT && brick_step_text_possible(r))
            list_append(&texts, PyBytes_FromStringAndSize((const char *)r->text, (Py_ssize_t)r->length));
    }
    PyBuffer_Release(&buffer);
    return texts;
}

PyObject *reader_source_hash(PyObject *module, PyObject *text)
{
    Py_buffer buffer;
    if (PyObject_GetBuffer(text, &buffer, PyBUF_SIMPLE) != 0)
        return NULL;
    const uint8_t *bytes = buffer.buf;
    uint64_t h = UINT64_C(0xCBF29CE484222325);
    for (Py_ssize_t i = 0; i < buffer.len; i++)
        h = (h ^ bytes[i]) * UINT64_C(0x100000001B3);
    PyBuffer_Release(&buffer);
    return PyLong_FromUnsignedLongLong(h);
}
