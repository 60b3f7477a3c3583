/* python/struct_dict.c - converts shared structs to dictionaries. A layout table describes the fields of a struct. Also
 * makes lists of rows. */
#include "py_types.h"

uint32_t code_size(char code)
{
    return code == 'Q' || code == 'd' ? 8 : code == 'H' ? 2 : code == 'B' ? 1 : 4;
}

/* Shared structs are little-endian. So are all machines that read them (see BRICK_ENDIAN). */
static PyObject *number(const uint8_t *at, char code)
{
    uint64_t whole = 0;
    double real;
    memcpy(&whole, at, code_size(code));
    memcpy(&real, &whole, sizeof real);
    return code == 'd'   ? PyFloat_FromDouble(real)
           : code == 'i' ? PyLong_FromLong((int32_t)whole)
                         : PyLong_FromUnsignedLongLong(whole);
}

PyObject *number_tuple(const void *elements, char code, uint32_t count)
{
    PyObject *tuple = PyTuple_New(count);
    for (uint32_t i = 0; tuple != NULL && i < count; i++) {
        PyObject *each = number((const uint8_t *)elements + i * code_size(code), code);
        if (each == NULL)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, each);
    }
    return tuple;
}

int list_put(PyObject **list, size_t index, PyObject *item)
{
    if (item == NULL)
        Py_CLEAR(*list);
    else
        PyList_SET_ITEM(*list, (Py_ssize_t)index, item);
    return item != NULL;
}

int list_append(PyObject **list, PyObject *item)
{
    const int appended = item != NULL && PyList_Append(*list, item) == 0;
    if (!appended)
        Py_CLEAR(*list);
    Py_XDECREF(item);
    return appended;
}

static PyObject *value_of(const uint8_t *at, const struct brick_field *f)
{
    const uint32_t count = f->size / code_size(f->code);
    if (f->code == 'B')
        return PyBytes_FromStringAndSize((const char *)at, f->size);
    if (count == 1)
        return number(at, f->code);
    return number_tuple(at, f->code, count);
}

PyObject *unpacked_by(const struct brick_field *table, size_t count, const char *record, const void *bytes)
{
    PyObject *fields = PyDict_New();
    for (size_t i = 0; fields != NULL && i < count; i++) {
        const struct brick_field *f = &table[i];
        if (strcmp(f->record, record) != 0 || strncmp(f->name, "reserved", 8) == 0)
            continue;
        PyObject *v = value_of((const uint8_t *)bytes + f->offset, f);
        if (v == NULL || PyDict_SetItemString(fields, f->name, v) != 0)
            Py_CLEAR(fields);
        Py_XDECREF(v);
    }
    return fields;
}

PyObject *unpacked(const char *record, const void *bytes)
{
    return unpacked_by(brick_fields, BRICK_FIELD_COUNT, record, bytes);
}
