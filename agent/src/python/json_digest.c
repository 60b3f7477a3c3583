/* python/json_digest.c - digests of JSON values, for the params of a checksum.
 *
 * Owns which values have the same digest. Must not know checksums. Invariants: the order of an object's members has no
 * effect; a deep value raises an exception and does not overflow the stack.
 */
#include "json_digest.h"

#include "brick_hash.h"

#include <string.h>

static uint64_t mixed(uint64_t digest, uint64_t next) { return brick_splitmix64(digest ^ next); }

static uint64_t digest_of_bytes(uint64_t digest, const void *bytes, size_t length)
{
    const uint8_t *at = (const uint8_t *)bytes;
    digest = mixed(digest, length);
    for (size_t n = 0; n < length; n += 8) {
        uint64_t word = 0;
        memcpy(&word, at + n, length - n < 8 ? length - n : 8);
        digest = mixed(digest, word);
    }
    return digest;
}

static int digest_of_text(PyObject *value, uint64_t digest, uint64_t *result)
{
    Py_ssize_t length;
    const char *text = PyUnicode_AsUTF8AndSize(value, &length);
    if (text == NULL)
        return -1;
    *result = digest_of_bytes(digest, text, (size_t)length);
    return 0;
}

/* The order of the members has no effect on the digest. */
static int digest_of_members(PyObject *members, uint64_t *digest)
{
    PyObject *items = PyDict_Items(members); /* the items of the dict itself: a subclass may override methods */
    uint64_t sum = 0, key = 0, value = 0;
    int wrong = items == NULL ? -1 : 0;
    for (Py_ssize_t n = 0; wrong == 0 && n < PyList_GET_SIZE(items); n++) {
        PyObject *item = PyList_GET_ITEM(items, n);
        wrong = core_digest_json(PyTuple_GET_ITEM(item, 0), &key) || core_digest_json(PyTuple_GET_ITEM(item, 1), &value) ? -1 : 0;
        sum += mixed(mixed(0, key), value);
    }
    Py_XDECREF(items);
    *digest = mixed(mixed('{', sum), 0);
    return wrong;
}

static int digest_of_rows(PyObject *rows, uint64_t *digest)
{
    PyObject *held = PySequence_Tuple(rows); /* a list may change during the loop */
    int wrong = held == NULL ? -1 : 0;
    *digest = '[';
    for (Py_ssize_t n = 0; wrong == 0 && n < PyTuple_GET_SIZE(held); n++) {
        uint64_t row = 0;
        wrong = core_digest_json(PyTuple_GET_ITEM(held, n), &row);
        *digest = mixed(*digest, row);
    }
    Py_XDECREF(held);
    return wrong;
}

static int digest_of_number(PyObject *value, uint64_t *digest)
{
    if (PyFloat_Check(value)) {
        const double real = PyFloat_AS_DOUBLE(value);
        *digest = digest_of_bytes('f', &real, sizeof real);
        return 0;
    }
    PyObject *index = PyNumber_Index(value), *text = index != NULL ? PyNumber_ToBase(index, 16) : NULL;
    const int wrong = text == NULL ? -1 : digest_of_text(text, 'i', digest);
    Py_XDECREF(index);
    Py_XDECREF(text);
    return wrong;
}

int core_digest_json(PyObject *value, uint64_t *digest)
{
    int wrong = 0;
    if (value == Py_None || PyBool_Check(value)) {
        *digest = mixed('n', value == Py_None ? 0 : value == Py_False ? 1 : 2);
    } else if (PyUnicode_Check(value)) {
        wrong = digest_of_text(value, 's', digest);
    } else if (PyFloat_Check(value) || PyIndex_Check(value)) {
        wrong = digest_of_number(value, digest);
    } else if (Py_EnterRecursiveCall(" in the params of a checksum") != 0) {
        wrong = -1;
    } else {
        if (PyList_Check(value) || PyTuple_Check(value)) {
            wrong = digest_of_rows(value, digest);
        } else if (PyDict_Check(value)) {
            wrong = digest_of_members(value, digest);
        } else {
            PyErr_Format(PyExc_TypeError, "brick_agent: params contain a %s, expected types of JSON", Py_TYPE(value)->tp_name);
            wrong = -1;
        }
        Py_LeaveRecursiveCall();
    }
    return wrong;
}

uint64_t core_digest_type(PyObject *value)
{
    const char *name = Py_TYPE(value)->tp_name;
    return digest_of_bytes('?', name, strlen(name));
}
