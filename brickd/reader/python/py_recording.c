/* python/py_recording.c - brickd.shm._reader.Recording: writes a recording. */
#include "../core/recording_writer.h"
#include "py_types.h"

#include <errno.h>
#include <fcntl.h>
#include <structmember.h>
#include <sys/stat.h>
#include <unistd.h>

#define AHEAD (4ll << 20) /* by default, this many bytes of the file are allocated at a time */
#define LIMIT_MAX (1ll << 62)

typedef struct {
    PyObject_HEAD
    struct brick_recorder recorder;
    uint32_t writing; /* whether a thread is writing now */
    int begun;
} Recording;

/* Returns 0 with an exception if the recorder cannot write to this file. */
static int fit(int fd)
{
    struct stat status;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fstat(fd, &status) != 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        return 0;
    }
    if (!S_ISREG(status.st_mode))
        PyErr_SetString(PyExc_ValueError, "a recording needs a regular file, but this is another kind of file");
    else if (status.st_size != 0)
        PyErr_Format(PyExc_ValueError, "a recording needs an empty file, but this file has %lld bytes",
                     (long long)status.st_size);
    else if ((flags & O_ACCMODE) != O_RDWR || (flags & O_APPEND) != 0)
        PyErr_SetString(PyExc_ValueError, "a recording needs a file opened with O_RDWR and without O_APPEND");
    else
        return 1;
    return 0;
}

static PyObject *recording_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"fd", "limit_bytes", "id", "made_ns", "number", "ahead_bytes", "spare_bytes", NULL};
    int fd;
    long long limit, ahead = AHEAD, spare = 0;
    Py_buffer id;
    unsigned long long made_ns;
    unsigned int number = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "iLy*K|ILL:Recording", names, &fd, &limit, &id, &made_ns, &number,
                                     &ahead, &spare))
        return NULL;
    struct brick_title title = {.number = number, .made_ns = made_ns};
    Recording *self = NULL;
    if (id.len != sizeof title.id)
        PyErr_Format(PyExc_ValueError, "an id must have %zu bytes, not %zd", sizeof title.id, id.len);
    else if (limit < 0 || limit > LIMIT_MAX || ahead < 0 || ahead > LIMIT_MAX || spare < 0 || spare > LIMIT_MAX)
        PyErr_Format(PyExc_ValueError, "limit_bytes, ahead_bytes and spare_bytes must be 0 to %lld, not %lld, %lld and %lld",
                     LIMIT_MAX, limit, ahead, spare);
    else if (fit(fd))
        self = (Recording *)type->tp_alloc(type, 0);
    if (id.len == sizeof title.id)
        memcpy(title.id, id.buf, sizeof title.id);
    PyBuffer_Release(&id);
    if (self == NULL)
        return NULL;
    struct brick_recorder *r = &self->recorder;
    r->limit = (uint64_t)limit;
    r->ahead = (uint64_t)ahead;
    r->spare = (uint64_t)spare;
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0), error;
    Py_BEGIN_ALLOW_THREADS
    self->begun = own >= 0 && brick_recorder_begin(r, own, &title);
    error = errno;
    Py_END_ALLOW_THREADS
    if (self->begun)
        return (PyObject *)self;
    if (own >= 0)
        close(own);
    Py_DECREF(self);
    errno = error;
    return PyErr_SetFromErrno(PyExc_OSError);
}

static void recording_dealloc(PyObject *self)
{
    if (((Recording *)self)->begun)
        brick_recorder_free(&((Recording *)self)->recorder);
    plain_dealloc(self);
}

/* ---- writing: one thread, without the interpreter lock ------------------- */

static int enter(Recording *self)
{
    if (brick_claim32(&self->writing, 0, 1))
        return 1;
    PyErr_SetString(PyExc_RuntimeError, "another thread is writing this recording: only one may write at a time");
    return 0;
}

static void leave(Recording *self) { brick_store_release32(&self->writing, 0); }

static PyObject *outcome(int whole, int error)
{
    if (whole)
        Py_RETURN_NONE;
    errno = error;
    return PyErr_SetFromErrno(PyExc_OSError);
}

/* Writes a chunk, and releases its body. `expected` is the problem with the body, or NULL. */
static PyObject *appended(PyObject *self, unsigned int kind, unsigned long long at_ns, Py_buffer *body, const char *expected)
{
    Recording *recording = (Recording *)self;
    int whole = 0, error = 0;
    if (expected != NULL)
        PyErr_Format(PyExc_ValueError, "a chunk of kind %u with %zd bytes: expected %s, and at most %llu bytes", kind,
                     body->len, expected, (unsigned long long)BRICK_BODY_MAX);
    int entered = expected == NULL && enter(recording);
    if (entered) {
        Py_BEGIN_ALLOW_THREADS
        whole = brick_recorder_append(&recording->recorder, kind, at_ns, body->buf, (uint64_t)body->len);
        error = errno;
        Py_END_ALLOW_THREADS
        leave(recording);
    }
    PyBuffer_Release(body);
    return entered ? outcome(whole, error) : NULL;
}

static PyObject *recording_append(PyObject *self, PyObject *args)
{
    unsigned int kind;
    unsigned long long at_ns;
    Py_buffer body;
    if (!PyArg_ParseTuple(args, "IKy*:append", &kind, &at_ns, &body))
        return NULL;
    int fits = kind != 0 && kind != BRICK_CHUNK_END && kind != BRICK_CHUNK_RECORDS && body.len <= (Py_ssize_t)BRICK_BODY_MAX;
    return appended(self, kind, at_ns, &body, fits ? NULL : "a kind that can be appended");
}

static PyObject *recording_append_records(PyObject *self, PyObject *args)
{
    unsigned long long at_ns;
    Py_buffer body;
    if (!PyArg_ParseTuple(args, "Ky*:append_records", &at_ns, &body))
        return NULL;
    int fits = body.len > 0 && body.len % BRICK_BLOCK == 0 && body.len <= (Py_ssize_t)BRICK_BODY_MAX;
    return appended(self, BRICK_CHUNK_RECORDS, at_ns, &body, fits ? NULL : "a head and slots of 64 bytes each");
}

static PyObject *recording_write(PyObject *self, PyObject *args)
{
    Recording *recording = (Recording *)self;
    PyObject *from;
    unsigned long long end;
    int whole, error;
    if (!PyArg_ParseTuple(args, "OK:write", &from, &end))
        return NULL;
    struct brick_spool *spool = spool_of(from, Py_TYPE(self), "a Spool");
    if (spool == NULL || !enter(recording))
        return NULL;
    if (!spool_enter(spool)) {
        leave(recording);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    uint64_t ready = brick_spool_ready(spool);
    whole = brick_recorder_write(&recording->recorder, spool, end < ready ? end : ready);
    error = errno;
    Py_END_ALLOW_THREADS
    spool_leave(spool);
    leave(recording);
    return outcome(whole, error);
}

static PyObject *recording_close(PyObject *self, PyObject *unused)
{
    Recording *recording = (Recording *)self;
    int whole, error;
    if (!enter(recording))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    whole = brick_recorder_end(&recording->recorder);
    error = errno;
    Py_END_ALLOW_THREADS
    leave(recording);
    return outcome(whole, error);
}

/* ---- numbers: for any thread, at any time -------------------------------- */

static PyObject *recording_number(PyObject *self, void *offset)
{
    const char *recorder = (const char *)&((Recording *)self)->recorder;
    const uint64_t *number = (const uint64_t *)(const void *)(recorder + (uintptr_t)offset);
    return PyLong_FromUnsignedLongLong(brick_load_relaxed(number));
}

static PyObject *recording_left(PyObject *self, void *unused)
{
    return PyLong_FromUnsignedLongLong(brick_recorder_left(&((Recording *)self)->recorder));
}

static PyMethodDef recording_methods[] = {
    {"append", recording_append, METH_VARARGS, "Write a chunk; OSError: the chunk was refused and counted."},
    {"append_records", recording_append_records, METH_VARARGS,
     "Write the body of a RECORDS chunk of another file; OSError: the chunk was refused and counted."},
    {"write", recording_write, METH_VARARGS,
     "Write the spool's records up to the mark, but leave the last spare_bytes of the file free; OSError: the rest "
     "stays in the spool."},
    {"close", recording_close, METH_NOARGS, "Write the END chunk, and truncate the file to its true length."},
    {NULL, NULL, 0, NULL},
};
#define NUMBER(name, field, text)                                                                                          \
    {name, recording_number, NULL, text, (void *)offsetof(struct brick_recorder, field)}
static PyGetSetDef recording_numbers[] = {
    NUMBER("bytes", at, "How many bytes are written."),
    NUMBER("chunks", number, "How many chunks are written."),
    NUMBER("slots", slots, "How many ring slots are written."),
    {"left_bytes", recording_left, NULL, "The length of the longest body that the limit still allows.", NULL},
    NUMBER("refused_chunks", refused_chunks, "How many chunks got no room."),
    NUMBER("refused_slots", refused_slots, "The number of slots that spools refused while this file was written."),
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot recording_slots[] = {
    {Py_tp_new, recording_new},
    {Py_tp_dealloc, recording_dealloc},
    {Py_tp_methods, recording_methods},
    {Py_tp_getset, recording_numbers},
    {Py_tp_doc, "Recording(fd, limit_bytes, id, made_ns, number=0, ahead_bytes=4 MiB, spare_bytes=0): a recording that is "
                "being written, by one thread at a time."},
    {0, NULL},
};
PyType_Spec recording_spec = {"brickd.shm._reader.Recording", sizeof(Recording), 0, Py_TPFLAGS_DEFAULT, recording_slots};
