/* python/struct_dict.c - the shared structs as dictionaries, by the table of their layout. */
#include "py_types.h"

static PyObject *number(const uint8_t *at, char code)
{
    double real;
    switch (code) {
    case 'Q': {
        uint64_t v;
        memcpy(&v, at, sizeof v);
        return PyLong_FromUnsignedLongLong(v);
    }
    case 'I': {
        uint32_t v;
        memcpy(&v, at, sizeof v);
        return PyLong_FromUnsignedLong(v);
    }
    case 'i': {
        int32_t v;
        memcpy(&v, at, sizeof v);
        return PyLong_FromLong(v);
    }
    case 'H': {
        uint16_t v;
        memcpy(&v, at, sizeof v);
        return PyLong_FromUnsignedLong(v);
    }
    default:
        memcpy(&real, at, sizeof real);
        return PyFloat_FromDouble(real);
    }
}

uint32_t code_size(char code)
{
    return code == 'Q' || code == 'd' ? 8 : code == 'H' ? 2 : code == 'B' ? 1 : 4;
}

static PyObject *value_of(const uint8_t *at, const struct brick_field *f)
{
    uint32_t size = code_size(f->code), count = f->size / size;
    if (f->code == 'B')
        return PyBytes_FromStringAndSize((const char *)at, f->size);
    if (count == 1)
        return number(at, f->code);
    PyObject *values = PyTuple_New(count);
    for (uint32_t i = 0; values != NULL && i < count; i++) {
        PyObject *v = number(at + i * size, f->code);
        if (v == NULL)
            Py_CLEAR(values);
        else
            PyTuple_SET_ITEM(values, i, v);
    }
    return values;
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
