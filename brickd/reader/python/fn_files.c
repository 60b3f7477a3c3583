/* python/fn_files.c - inotify, which Python lacks, and many writes in one call without the interpreter lock. */
#include "py_types.h"

#include <errno.h>
#include <sys/inotify.h>
#include <unistd.h>

PyObject *reader_watch(PyObject *module, PyObject *directory)
{
    PyObject *path = NULL;
    if (!PyUnicode_FSConverter(directory, &path))
        return NULL;
    int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    const uint32_t events = IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_ONLYDIR;
    if (fd >= 0 && inotify_add_watch(fd, PyBytes_AS_STRING(path), events) < 0) {
        int error = errno;
        close(fd);
        errno = error;
        fd = -1;
    }
    Py_DECREF(path);
    return fd < 0 ? PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, directory) : PyLong_FromLong(fd);
}

struct piece {
    int fd, error;
    long long offset;
    const char *bytes;
    Py_ssize_t length;
};

static int write_whole(struct piece p)
{
    while (p.length > 0) {
        /* O12 in brick_shm.h: slots are copied before the first of the two writes of a tail, and the first write is
         * visible before the second one. */
        brick_fence_release();
        ssize_t put = pwrite(p.fd, p.bytes, (size_t)p.length, (off_t)p.offset);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return put == 0 ? EIO : errno;
        p.bytes += put;
        p.offset += put;
        p.length -= put;
    }
    return 0;
}

static int add_failed(PyObject *failed, const struct piece *p)
{
    PyObject *fd = PyLong_FromLong(p->fd), *error = PyLong_FromLong(p->error);
    int added = fd != NULL && error != NULL && PyDict_SetItem(failed, fd, error) == 0;
    Py_XDECREF(fd);
    Py_XDECREF(error);
    return added;
}

/* Makes many writes. If one fails, the following writes to the same file are skipped, but not those to other files. */
PyObject *reader_write_all(PyObject *module, PyObject *writes)
{
    PyObject *rows = PySequence_Tuple(writes), *result = NULL;
    if (rows == NULL)
        return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(rows);
    struct piece *pieces = PyMem_Calloc((size_t)count + 1, sizeof *pieces);
    if (pieces == NULL) {
        PyErr_NoMemory();
        goto end;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *bytes, *row = PyTuple_GET_ITEM(rows, i); /* a tuple, because no other thread can change it */
        if (!PyTuple_Check(row)) {
            PyErr_Format(PyExc_TypeError, "write %zd is a %s, expected a tuple", i, Py_TYPE(row)->tp_name);
            goto end;
        }
        if (!PyArg_ParseTuple(row, "iLS:write_all", &pieces[i].fd, &pieces[i].offset, &bytes))
            goto end;
        pieces[i].bytes = PyBytes_AS_STRING(bytes);
        pieces[i].length = PyBytes_GET_SIZE(bytes);
    }
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < count; i++) {
        int before = i > 0 && pieces[i].fd == pieces[i - 1].fd ? pieces[i - 1].error : 0;
        pieces[i].error = before ? before : write_whole(pieces[i]);
    }
    Py_END_ALLOW_THREADS
    result = PyDict_New();
    for (Py_ssize_t i = 0; result != NULL && i < count; i++)
        if (pieces[i].error && !add_failed(result, &pieces[i]))
            Py_CLEAR(result);
end:
    PyMem_Free(pieces);
    Py_DECREF(rows);
    return result;
}
