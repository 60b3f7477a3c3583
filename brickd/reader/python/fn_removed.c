/* python/fn_removed.c - validates and appends the records of removed segments. */
#include "brick_removed.h"
#include "py_types.h"

PyObject *reader_removed(PyObject *module, PyObject *content)
{
    Py_buffer bytes;
    if (PyObject_GetBuffer(content, &bytes, PyBUF_SIMPLE) != 0)
        return NULL;
    PyObject *rows = PyList_New(0);
    for (Py_ssize_t at = 0; rows != NULL && at < bytes.len; at += (Py_ssize_t)sizeof(struct brick_removed)) {
        struct brick_removed record = {.magic = 0};
        if (bytes.len - at >= (Py_ssize_t)sizeof record)
            memcpy(&record, (const char *)bytes.buf + at, sizeof record);
        list_append(&rows, brick_removed_is_whole(&record)
                               ? unpacked_by(brick_removed_fields, BRICK_REMOVED_FIELD_COUNT, "removed", &record)
                               : Py_NewRef(Py_None));
    }
    PyBuffer_Release(&bytes);
    return rows;
}

PyObject *reader_is_removed(PyObject *module, PyObject *name)
{
    PyObject *bytes = NULL;
    if (!PyUnicode_FSConverter(name, &bytes))
        return NULL;
    int is = brick_removed_is_name(PyBytes_AS_STRING(bytes));
    Py_DECREF(bytes);
    return PyBool_FromLong(is);
}

PyObject *reader_append_removed(PyObject *module, PyObject *args)
{
    PyObject *prefix = NULL;
    Py_buffer bytes;
    struct brick_removed record;
    if (!PyArg_ParseTuple(args, "O&y*:append_removed", PyUnicode_FSConverter, &prefix, &bytes))
        return NULL;
    PyObject *appended = NULL;
    if (bytes.len == (Py_ssize_t)sizeof record) {
        memcpy(&record, bytes.buf, sizeof record);
        appended = PyBool_FromLong(brick_removed_append(PyBytes_AS_STRING(prefix), &record));
    } else {
        PyErr_Format(PyExc_ValueError, "%zd bytes, expected %zu", bytes.len, sizeof record);
    }
    PyBuffer_Release(&bytes);
    Py_DECREF(prefix);
    return appended;
}
