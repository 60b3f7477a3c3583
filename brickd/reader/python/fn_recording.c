/* python/fn_recording.c - functions of brickd.shm._reader that parse the format of recordings. */
#include "../core/record_walk.h"
#include "../core/recording_format.h"
#include "py_types.h"

PyObject *reader_title(PyObject *module, PyObject *bytes)
{
    struct brick_title title;
    char reason[200];
    Py_buffer buffer;
    if (PyObject_GetBuffer(bytes, &buffer, PyBUF_SIMPLE) != 0)
        return NULL;
    int whole = brick_title_judge(buffer.buf, (uint64_t)buffer.len, &title, reason, sizeof reason);
    PyBuffer_Release(&buffer);
    if (!whole) {
        PyErr_SetString(PyExc_ValueError, reason);
        return NULL;
    }
    struct brick_key key = brick_title_key(&title);
    return Py_BuildValue("(HHKy#Iy#)", title.major, title.minor, (unsigned long long)title.made_ns, (char *)title.id,
                         (Py_ssize_t)sizeof title.id, title.number, (char *)&key, (Py_ssize_t)sizeof key);
}

/* Parses two arguments: a key, and the bytes of some blocks. Returns 0 with an exception on failure. */
static int keyed(PyObject *args, const char *format, struct brick_key *key, Py_buffer *blocks)
{
    const char *words;
    Py_ssize_t length;
    if (!PyArg_ParseTuple(args, format, &words, &length, blocks))
        return 0;
    if (length == sizeof *key && blocks->len % BRICK_BLOCK == 0) {
        memcpy(key, words, sizeof *key);
        return 1;
    }
    PyErr_Format(PyExc_ValueError,
                 "the key has %zd bytes, expected %zu; the blocks have %zd bytes, expected a multiple of %u", length,
                 sizeof *key, blocks->len, BRICK_BLOCK);
    PyBuffer_Release(blocks);
    return 0;
}

PyObject *reader_find_chunk(PyObject *module, PyObject *args)
{
    struct brick_key key;
    struct brick_chunk head;
    Py_buffer blocks;
    if (!keyed(args, "y#y*:find_chunk", &key, &blocks))
        return NULL;
    Py_ssize_t at = 0;
    Py_BEGIN_ALLOW_THREADS
    for (; at < blocks.len; at += BRICK_BLOCK) {
        memcpy(&head, (const char *)blocks.buf + at, sizeof head);
        if (brick_chunk_whole(&head, &key))
            break;
    }
    Py_END_ALLOW_THREADS
    int found = at < blocks.len;
    PyBuffer_Release(&blocks);
    if (!found)
        Py_RETURN_NONE;
    return Py_BuildValue("(nIKKKK)", at, head.kind, (unsigned long long)head.length, (unsigned long long)head.number,
                         (unsigned long long)head.at_ns, (unsigned long long)head.body_sum);
}

PyObject *reader_sum(PyObject *module, PyObject *args)
{
    struct brick_key key;
    struct brick_sum sum;
    Py_buffer blocks;
    if (!keyed(args, "y#y*:sum", &key, &blocks))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    brick_sum_begin(&sum, &key);
    brick_sum_add(&sum, blocks.buf, (uint64_t)blocks.len / BRICK_BLOCK);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&blocks);
    return PyLong_FromUnsignedLongLong(brick_sum_end(&sum));
}

/* Copies the struct at the start of a body. Returns 0 with an exception if the body is too short. */
static int begins(PyObject *body, void *record, size_t size)
{
    Py_buffer buffer;
    if (PyObject_GetBuffer(body, &buffer, PyBUF_SIMPLE) != 0)
        return 0;
    int long_enough = buffer.len >= (Py_ssize_t)size;
    if (long_enough)
        memcpy(record, buffer.buf, size);
    else
        PyErr_Format(PyExc_ValueError, "a body of %zd bytes, expected at least %zu", buffer.len, size);
    PyBuffer_Release(&buffer);
    return long_enough;
}

PyObject *reader_records(PyObject *module, PyObject *body)
{
    struct brick_records records;
    if (!begins(body, &records, sizeof records))
        return NULL;
    return Py_BuildValue("(IIIIK)", records.worker, records.lane, records.ring, records.inside,
                         (unsigned long long)records.first);
}

/* Parses three arguments: slots, the number of a slot, which may be the number after the last slot, and another number.
 * Returns 0 with an exception on failure. */
static int slots_of(PyObject *args, const char *format, Py_buffer *slots, unsigned long long *at, unsigned long long *other)
{
    if (!PyArg_ParseTuple(args, format, slots, at, other))
        return 0;
    const unsigned long long count = (unsigned long long)slots->len / sizeof(struct brick_record);
    if (slots->len % (Py_ssize_t)sizeof(struct brick_record) == 0 && *at <= count)
        return 1;
    PyErr_Format(PyExc_ValueError,
                 "slot %llu of %zd bytes: expected complete slots of %zu bytes, and a slot number up to their count",
                 *at, slots->len, sizeof(struct brick_record));
    PyBuffer_Release(slots);
    return 0;
}

PyObject *reader_walk(PyObject *module, PyObject *args)
{
    Py_buffer slots;
    unsigned long long at, from;
    if (!slots_of(args, "y*KK:walk", &slots, &at, &from))
        return NULL;
    const uint64_t count = (uint64_t)slots.len / sizeof(struct brick_record);
    const uint64_t next = brick_walk(slots.buf, at, from < count ? from : count);
    PyBuffer_Release(&slots);
    if (next == UINT64_MAX)
        Py_RETURN_NONE;
    return PyLong_FromUnsignedLongLong(next);
}

PyObject *reader_checked(PyObject *module, PyObject *args)
{
    Py_buffer slots;
    unsigned long long at, last;
    if (!slots_of(args, "y*KK:checked", &slots, &at, &last))
        return NULL;
    const uint64_t count = (uint64_t)slots.len / sizeof(struct brick_record);
    struct brick_walked w = {.last = last};
    PyObject *found = PyBytes_FromStringAndSize(NULL, slots.len - (Py_ssize_t)(at * sizeof(struct brick_record)));
    if (found != NULL) {
        brick_walk_checked(slots.buf, at, count, (struct brick_record *)(void *)PyBytes_AS_STRING(found), &w);
        _PyBytes_Resize(&found, (Py_ssize_t)(w.slots * sizeof(struct brick_record)));
    }
    PyBuffer_Release(&slots);
    return found == NULL ? NULL
                         : Py_BuildValue("(NKKKK)", found, (unsigned long long)w.cut, (unsigned long long)w.last,
                                         (unsigned long long)w.missing, (unsigned long long)w.rejected);
}

PyObject *reader_end(PyObject *module, PyObject *body)
{
    struct brick_end end;
    if (!begins(body, &end, sizeof end))
        return NULL;
    return Py_BuildValue("(KKKK)", (unsigned long long)end.chunks, (unsigned long long)end.refused_chunks,
                         (unsigned long long)end.refused_bytes, (unsigned long long)end.refused_slots);
}
