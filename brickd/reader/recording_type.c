/* recording_type.c - brickd._reader.Recording: a recording that is being written. */
#include "recording_type.h"

#include <errno.h>
#include <fcntl.h>
#include <structmember.h>
#include <sys/stat.h>
#include <unistd.h>

/* So much room is taken at once, and mapped. */
#define AHEAD (4ll << 20)
#define LIMIT_MAX (1ll << 62)

/* 0, with an exception: a file of another kind cannot be written as one thinks. */
static int fit(int fd)
{
    struct stat status;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fstat(fd, &status) != 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        return 0;
    }
    if (!S_ISREG(status.st_mode))
        PyErr_SetString(PyExc_ValueError, "a recording is written to a regular file, and this is none");
    else if (status.st_size != 0)
        PyErr_Format(PyExc_ValueError, "a recording is written to an empty file, and this one has %lld bytes",
                     (long long)status.st_size);
    else if ((flags & O_ACCMODE) != O_RDWR || (flags & O_APPEND) != 0)
        PyErr_SetString(PyExc_ValueError, "a recording is written to a file opened O_RDWR, without O_APPEND");
    else
        return 1;
    return 0;
}

static PyObject *recording_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"fd", "limit_bytes", "id", "made_ns", "number", "ahead_bytes", NULL};
    int fd;
    long long limit, ahead = AHEAD;
    Py_buffer id;
    unsigned long long made_ns;
    unsigned int number = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "iLy*K|IL:Recording", names, &fd, &limit, &id, &made_ns, &number,
                                     &ahead))
        return NULL;
    struct brick_title title = {.number = number, .made_ns = made_ns};
    Recording *self = NULL;
    if (id.len != sizeof title.id)
        PyErr_Format(PyExc_ValueError, "an id has %zu bytes, not %zd", sizeof title.id, id.len);
    else if (limit < 0 || limit > LIMIT_MAX || ahead < 0 || ahead > LIMIT_MAX)
        PyErr_Format(PyExc_ValueError, "limit and room ahead are 0 to %lld bytes, not %lld and %lld", LIMIT_MAX, limit,
                     ahead);
    else if (fit(fd))
        self = (Recording *)type->tp_alloc(type, 0);
    if (id.len == sizeof title.id)
        memcpy(title.id, id.buf, sizeof title.id);
    PyBuffer_Release(&id);
    if (self == NULL)
        return NULL;
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0), error;
    Py_BEGIN_ALLOW_THREADS
    self->begun = own >= 0 && brick_recorder_begin(&self->recorder, own, &title, (uint64_t)limit, (uint64_t)ahead);
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

struct brick_recorder *recorder_of(PyObject *recording, PyTypeObject *sibling)
{
    const struct reader_state *state = PyType_GetModuleState(sibling);
    if (state == NULL)
        return NULL;
    if (Py_IS_TYPE(recording, state->recording))
        return &((Recording *)recording)->recorder;
    PyErr_Format(PyExc_TypeError, "a %s, wanted a Recording or None", Py_TYPE(recording)->tp_name);
    return NULL;
}

static void recording_dealloc(PyObject *self)
{
    if (((Recording *)self)->begun)
        brick_recorder_free(&((Recording *)self)->recorder);
    plain_dealloc(self);
}

static PyObject *recording_append(PyObject *self, PyObject *args)
{
    unsigned int kind;
    unsigned long long at_ns;
    Py_buffer body;
    int whole, error;
    if (!PyArg_ParseTuple(args, "IKy*:append", &kind, &at_ns, &body))
        return NULL;
    if (kind == 0 || kind == BRICK_CHUNK_END || kind == BRICK_CHUNK_RECORDS || body.len > (Py_ssize_t)BRICK_BODY_MAX) {
        PyErr_Format(PyExc_ValueError, "a chunk of kind %u with %zd bytes: at most %llu, and of a kind that is appended",
                     kind, body.len, (unsigned long long)BRICK_BODY_MAX);
        PyBuffer_Release(&body);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    whole = brick_recorder_append(&((Recording *)self)->recorder, kind, at_ns, body.buf, (uint64_t)body.len);
    error = errno;
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&body);
    if (whole)
        Py_RETURN_NONE;
    errno = error;
    return PyErr_SetFromErrno(PyExc_OSError);
}

static PyObject *recording_close(PyObject *self, PyObject *unused)
{
    int whole, error;
    Py_BEGIN_ALLOW_THREADS
    whole = brick_recorder_end(&((Recording *)self)->recorder);
    error = errno;
    Py_END_ALLOW_THREADS
    if (whole)
        Py_RETURN_NONE;
    errno = error;
    return PyErr_SetFromErrno(PyExc_OSError);
}

/* ---- what came of it --------------------------------------------------- */

static uint64_t left(const struct brick_recorder *r)
{
    uint64_t used = r->at + sizeof(struct brick_chunk) + BRICK_END_BYTES;
    return !r->ended && !r->broken && used < r->limit ? (r->limit - used) & ~(uint64_t)(BRICK_BLOCK - 1) : 0;
}

/* The numbers as they stood at one moment. */
static struct brick_recorder numbers(PyObject *self)
{
    struct brick_recorder *r = &((Recording *)self)->recorder, copy;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&r->mutex);
    memcpy(&copy, r, sizeof copy);
    pthread_mutex_unlock(&r->mutex);
    Py_END_ALLOW_THREADS
    return copy;
}

enum number { BYTES, CHUNKS, LEFT, REFUSED_CHUNKS, REFUSED_BYTES, REFUSED_SLOTS };

static PyObject *recording_number(PyObject *self, void *which)
{
    const struct brick_recorder r = numbers(self);
    switch ((enum number)(uintptr_t)which) {
    case BYTES: return PyLong_FromUnsignedLongLong(r.at);
    case CHUNKS: return PyLong_FromUnsignedLongLong(r.number);
    case LEFT: return PyLong_FromUnsignedLongLong(left(&r));
    case REFUSED_CHUNKS: return PyLong_FromUnsignedLongLong(r.refused_chunks);
    case REFUSED_BYTES: return PyLong_FromUnsignedLongLong(r.refused_bytes);
    case REFUSED_SLOTS: return PyLong_FromUnsignedLongLong(r.refused_slots);
    }
    Py_UNREACHABLE();
}

static PyObject *recording_trouble(PyObject *self, void *unused)
{
    const struct brick_recorder r = numbers(self);
    const char *why = r.error == 0 ? "" : r.broken ? "somebody cut the file while it was written" : strerror(r.error);
    return PyUnicode_FromString(why);
}

static PyMethodDef recording_methods[] = {
    {"append", recording_append, METH_VARARGS,
     "append(kind, at_ns, body): one whole chunk; OSError: it was not recorded, and is counted."},
    {"close", recording_close, METH_NOARGS, "Mark the end, and cut the file to its true length."},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef recording_numbers[] = {
    {"bytes", recording_number, NULL, "Bytes that are written.", (void *)BYTES},
    {"chunks", recording_number, NULL, "Chunks that are written.", (void *)CHUNKS},
    {"left_bytes", recording_number, NULL, "The longest body that the limit allows now.", (void *)LEFT},
    {"refused_chunks", recording_number, NULL, "Chunks that were not recorded.", (void *)REFUSED_CHUNKS},
    {"refused_bytes", recording_number, NULL, "Bytes of their bodies.", (void *)REFUSED_BYTES},
    {"refused_slots", recording_number, NULL, "Slots of rings that were not recorded.", (void *)REFUSED_SLOTS},
    {"trouble", recording_trouble, NULL, "Why something was not recorded, the last time; or nothing.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot recording_slots[] = {
    {Py_tp_new, recording_new},
    {Py_tp_dealloc, recording_dealloc},
    {Py_tp_methods, recording_methods},
    {Py_tp_getset, recording_numbers},
    {Py_tp_doc, "Recording(fd, limit_bytes, id, made_ns, number=0, ahead_bytes=4 MiB): a recording that is being written."},
    {0, NULL},
};
PyType_Spec recording_spec = {"brickd._reader.Recording", sizeof(Recording), 0, Py_TPFLAGS_DEFAULT, recording_slots};
