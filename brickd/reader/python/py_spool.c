/* python/py_spool.c - brickd.shm._reader.Spool: the memory that holds records after they are drained and until they are
 * written to a recording. */
#include "../core/record_queue.h"
#include "py_types.h"

/* The default size, which has room for a million records per second during a quarter of a second. */
#define BYTES (16ll << 20)
#define BYTES_MAX (1ll << 40)

typedef struct {
    PyObject_HEAD
    struct brick_spool spool;
    int begun;
} Spool;

static struct brick_spool *inner(PyObject *self) { return &((Spool *)self)->spool; }

static PyObject *spool_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"bytes", "values", "redacts", NULL};
    long long bytes = BYTES;
    int values = 1, redacts = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|Lpp:Spool", names, &bytes, &values, &redacts))
        return NULL;
    if (bytes < (long long)BRICK_SPOOL_LEAST || bytes > BYTES_MAX)
        return PyErr_Format(PyExc_ValueError, "a spool has %llu to %lld bytes, not %lld",
                            (unsigned long long)BRICK_SPOOL_LEAST, BYTES_MAX, bytes);
    Spool *self = (Spool *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    const enum brick_left left = redacts ? BRICK_LEFT_EQUAL : values ? BRICK_LEFT_ALL : BRICK_LEFT_KEYED;
    self->begun = brick_spool_begin(&self->spool, (uint64_t)bytes, left);
    if (self->begun)
        return (PyObject *)self;
    PyErr_SetFromErrno(PyExc_OSError);
    Py_DECREF(self);
    return NULL;
}

static void spool_dealloc(PyObject *self)
{
    if (((Spool *)self)->begun)
        brick_spool_free(inner(self));
    plain_dealloc(self);
}

struct brick_spool *spool_of(PyObject *spool, PyTypeObject *sibling, const char *wanted)
{
    const struct reader_state *state = PyType_GetModuleState(sibling);
    if (state == NULL)
        return NULL;
    if (Py_IS_TYPE(spool, state->spool))
        return inner(spool);
    PyErr_Format(PyExc_TypeError, "got an object of type %s, expected %s", Py_TYPE(spool)->tp_name, wanted);
    return NULL;
}

int spool_enter(struct brick_spool *spool)
{
    if (brick_claim32(&spool->consuming, 0, 1))
        return 1;
    PyErr_SetString(PyExc_RuntimeError, "another thread is taking records from this spool: only one may do so at a time");
    return 0;
}

void spool_leave(struct brick_spool *spool) { brick_store_release32(&spool->consuming, 0); }

/* ---- contents --------------------------------------------------------------- */

static PyObject *workers(const struct brick_spool *s, uint64_t end)
{
    PyObject *found = PySet_New(NULL);
    uint64_t at = s->tail, last = UINT64_MAX;
    for (struct brick_chunk *piece; found != NULL && (piece = brick_spool_look(s, &at, end)) != NULL;) {
        uint32_t worker = ((const struct brick_records *)(const void *)(piece + 1))->worker;
        if (worker == last)
            continue;
        PyObject *number = PyLong_FromUnsignedLong(worker);
        if (number == NULL || PySet_Add(found, number) != 0)
            Py_CLEAR(found);
        Py_XDECREF(number);
        last = worker;
    }
    return found;
}

static PyObject *spool_ready(PyObject *self, PyObject *unused)
{
    struct brick_spool *s = inner(self);
    if (!spool_enter(s))
        return NULL;
    uint64_t end = brick_spool_ready(s);
    PyObject *found = workers(s, end);
    spool_leave(s);
    return found != NULL ? Py_BuildValue("(KN)", (unsigned long long)end, found) : NULL;
}

static PyObject *spool_clear(PyObject *self, PyObject *unused)
{
    if (!spool_enter(inner(self)))
        return NULL;
    brick_spool_clear(inner(self));
    spool_leave(inner(self));
    Py_RETURN_NONE;
}

/* Frees the spool's memory. The spool keeps its producer and consumer locks, so that nothing uses it again. */
static PyObject *spool_end(PyObject *self, PyObject *unused)
{
    Spool *spool = (Spool *)self;
    if (!spool_enter(&spool->spool))
        return NULL;
    if (!brick_spool_enter(&spool->spool)) {
        spool_leave(&spool->spool);
        PyErr_SetString(PyExc_RuntimeError, "a drain writes into this spool: detach all drains first");
        return NULL;
    }
    brick_spool_free(&spool->spool);
    spool->begun = 0;
    Py_RETURN_NONE;
}

/* Returns the redactor of the spool. If the spool has ended, returns NULL with an exception. */
static const struct brick_redactor *redactor(PyObject *self)
{
    if (((Spool *)self)->begun)
        return &inner(self)->redactor;
    PyErr_SetString(PyExc_RuntimeError, "this spool has ended, and its key is erased");
    return NULL;
}

static PyObject *redacted(PyObject *self, PyObject *number, uint64_t (*by)(const struct brick_redactor *, uint64_t))
{
    const unsigned long long value = PyLong_AsUnsignedLongLong(number);
    const struct brick_redactor *r = redactor(self);
    if (r == NULL || (value == (unsigned long long)-1 && PyErr_Occurred()))
        return NULL;
    return PyLong_FromUnsignedLongLong(by(r, value));
}

static PyObject *spool_key_name(PyObject *self, PyObject *name) { return redacted(self, name, brick_redacted_name); }

static PyObject *spool_step(PyObject *self, PyObject *step) { return redacted(self, step, brick_redacted_step); }

static PyObject *spool_tensors(PyObject *self, PyObject *slots)
{
    const Py_ssize_t size = (Py_ssize_t)(BRICK_TENSOR_SLOTS * sizeof(struct brick_record));
    const struct brick_redactor *by = redactor(self);
    Py_buffer buffer;
    if (by == NULL || PyObject_GetBuffer(slots, &buffer, PyBUF_SIMPLE) != 0)
        return NULL;
    PyObject *made = buffer.len % size == 0 ? PyBytes_FromStringAndSize(buffer.buf, buffer.len)
                                           : PyErr_Format(PyExc_ValueError, "%zd bytes, expected a multiple of %zd", buffer.len,
                                                          size);
    for (Py_ssize_t at = 0; made != NULL && at < buffer.len; at += size)
        brick_redact_tensor(by, PyBytes_AS_STRING(made) + at);
    PyBuffer_Release(&buffer);
    return made;
}

static PyObject *spool_refused(PyObject *self, void *unused)
{
    return PyLong_FromUnsignedLongLong(brick_load_relaxed(&inner(self)->refused_slots));
}

/* ---- waiting ----------------------------------------------------------------- */

static PyObject *spool_wake(PyObject *self, PyObject *unused)
{
    brick_spool_wake(inner(self));
    Py_RETURN_NONE;
}

static PyObject *spool_wait(PyObject *self, PyObject *milliseconds)
{
    long patience = PyLong_AsLong(milliseconds);
    if (patience == -1 && PyErr_Occurred())
        return NULL;
    if (patience < 0 || patience > INT32_MAX)
        return PyErr_Format(PyExc_ValueError, "the wait is %ld ms, expected 0 to %d", patience, INT32_MAX);
    Py_BEGIN_ALLOW_THREADS
    brick_spool_wait(inner(self), (int)patience);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyMethodDef spool_methods[] = {
    {"ready", spool_ready, METH_NOARGS, "(mark, numbers of the workers with records below the mark)."},
    {"clear", spool_clear, METH_NOARGS, "Discard all waiting pieces, and count their slots as refused."},
    {"end", spool_end, METH_NOARGS, "Free the memory and erase the key; the spool cannot be used afterwards."},
    {"key_name", spool_key_name, METH_O, "What the recording has in place of the name of a key of checksums."},
    {"step", spool_step, METH_O, "What the recording has in place of the number of a step, or of a named generation."},
    {"tensors", spool_tensors, METH_O,
     "What the recording has in place of these tensors; each tensor has three slots: shape, sums, sketch."},
    {"wake", spool_wake, METH_NOARGS, "Wake the thread that waits; any thread or signal handler may call this."},
    {"wait", spool_wait, METH_O, "Wait until the spool is woken, a quarter of it is used, or the time is over."},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef spool_numbers[] = {
    {"refused_slots", spool_refused, NULL, "How many ring slots got no room, and so are in no recording.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot spool_slots[] = {
    {Py_tp_new, spool_new},
    {Py_tp_dealloc, spool_dealloc},
    {Py_tp_methods, spool_methods},
    {Py_tp_getset, spool_numbers},
    {Py_tp_doc, "Spool(bytes=16 MiB, values=True, redacts=False): memory between drains and a recording, so that neither waits\n"
                "for the other. values=False: of tensors, records keep only the checksums. redacts=True: every "
                "record is redacted."},
    {0, NULL},
};
PyType_Spec spool_spec = {"brickd.shm._reader.Spool", sizeof(Spool), 0, Py_TPFLAGS_DEFAULT, spool_slots};
