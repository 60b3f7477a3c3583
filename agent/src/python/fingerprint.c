/* python/fingerprint.c - fingerprint(), and what it gives: a named tuple. */
#include "core.h"

#define UNLOCKED_BYTES (1 << 20) /* from here on other threads of Python run meanwhile: some 50 us */

const char core_fingerprint_doc[] = PyDoc_STR(
"fingerprint(array, /, *, valid=None, key=0)\n--\n\n"
"What two tensors can be compared by without having both: a checksum of every byte, statistics, a sketch.\n\n"
"array: anything with the buffer protocol (numpy, array, bytes) or with __dlpack__ (torch and others) in this host's\n"
"memory: bool, integers of 8 to 64 bits, float8, float16, bfloat16, float32, float64 (those of ml_dtypes, too); of any\n"
"shape and strides. valid: how many rows, the first ones of dimension 0, count; all where not said. key: an integer from\n"
"0 to 2^128-1; only fingerprints of one key compare. Records nothing; raises where there is no fingerprint.\n\n"
"The memory is held meanwhile: it is neither freed nor resized. From 1 MiB on, other threads of Python run; one that\n"
"writes to the tensor leaves a fingerprint of neither state. brick_fingerprint.h has the definition.\n\n"
">>> from array import array\n"
">>> brick.fingerprint(array(\"f\", [1, 2, 3])).checksum\n"
"'78bae40d05ce2a1b'\n"
">>> a, b = array(\"f\", [3, 4, 5, 6]), array(\"f\", [3, 4, 5, 9])\n"
">>> brick.fingerprint(a).checksum == brick.fingerprint(b).checksum\n"
"False\n"
">>> brick.fingerprint(a, valid=3) == brick.fingerprint(b, valid=3)\n"
"True\n");

PyDoc_STRVAR(type_doc,
"What fingerprint() gives: a tuple with names.\n\n"
">>> got = brick.fingerprint(bytes([1, 2, 3]))\n"
">>> got.dtype, got.elements, got.min, got.max, got.mean\n"
"('uint8', 3, 1.0, 3.0, 2.0)\n");

static PyStructSequence_Field fields[] = {
    {"checksum", "of all bytes, their number and the dtype: 16 hexadecimal digits"},
    {"dtype", "of the elements, as numpy and torch call it"},
    {"elements", "how many count"},
    {"bytes", "how many they take"},
    {"min", "of the finite elements; 0 where there are none, as the next three"},
    {"max", "of the finite elements"},
    {"mean", "of the finite elements"},
    {"l2", "the square root of the sum of their squares"},
    {"nan", "how many are NaN"},
    {"pos_inf", "how many are +Inf"},
    {"neg_inf", "how many are -Inf"},
    {"sketch", "16 floats: that of a difference is the difference of the sketches"},
    {"fnv1a", "FNV-1a of the first 64 elements as float32: 16 hexadecimal digits"},
    {NULL, NULL},
};
static PyStructSequence_Desc description = {"brick_agent.Fingerprint", type_doc, fields, 13};

int core_add_fingerprint(PyObject *module)
{
    if (core_state.fingerprint_type == NULL)
        core_state.fingerprint_type = PyStructSequence_NewType(&description);
    return core_state.fingerprint_type == NULL
               ? -1
               : PyModule_AddObjectRef(module, "Fingerprint", (PyObject *)core_state.fingerprint_type);
}

/* ---- arguments ------------------------------------------------------------ */

/* An integer from 0 to most: 0, or -1 with an exception set. */
static int natural(PyObject *value, uint64_t most, const char *name, uint64_t *number)
{
    PyObject *index = PyNumber_Index(value);
    if (index == NULL)
        return -1;
    *number = PyLong_AsUnsignedLongLong(index);
    Py_DECREF(index);
    if (!PyErr_Occurred() && *number <= most)
        return 0;
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_OverflowError))
        return -1;
    PyErr_Format(PyExc_ValueError, "brick_agent: %s is %S, wanted an integer from 0 to %llu", name, value,
                 (unsigned long long)most);
    return -1;
}

static int to_key(PyObject *value, struct brick_fingerprint_key *key)
{
    PyObject *index = PyNumber_Index(value), *places = PyLong_FromLong(64);
    PyObject *upper = index != NULL && places != NULL ? PyNumber_Rshift(index, places) : NULL;
    if (upper != NULL) {
        key->words[0] = PyLong_AsUnsignedLongLongMask(index);
        key->words[1] = PyLong_AsUnsignedLongLong(upper); /* of a negative number: -1, which overflows */
    }
    Py_XDECREF(index);
    Py_XDECREF(places);
    Py_XDECREF(upper);
    if (!PyErr_Occurred())
        return 0;
    if (upper != NULL && PyErr_ExceptionMatches(PyExc_OverflowError))
        PyErr_Format(PyExc_ValueError, "brick_agent: key is %S, wanted an integer from 0 to 2^128-1", value);
    return -1;
}

int core_take_valid(PyObject *value, struct brick_tensor *t)
{
    if (value == Py_None)
        return 0;
    if (t->dims > 0)
        return natural(value, t->shape[0] > 0 ? (uint64_t)t->shape[0] : 0, "valid", &t->valid);
    PyErr_Format(PyExc_ValueError, "brick_agent: valid is %S, but a tensor of no dimension has no rows", value);
    return -1;
}

/* ---- result --------------------------------------------------------------- */

static PyObject *hexadecimal(uint64_t number)
{
    char text[17];
    PyOS_snprintf(text, sizeof text, "%016llx", (unsigned long long)number);
    return PyUnicode_FromString(text);
}

const char *core_dtype_name(uint32_t dtype)
{
    static const char *const names[BRICK_DTYPES] = {
        [BRICK_BOOL] = "bool",
        [BRICK_INT8] = "int8",
        [BRICK_INT16] = "int16",
        [BRICK_INT32] = "int32",
        [BRICK_INT64] = "int64",
        [BRICK_UINT8] = "uint8",
        [BRICK_UINT16] = "uint16",
        [BRICK_UINT32] = "uint32",
        [BRICK_UINT64] = "uint64",
        [BRICK_FLOAT16] = "float16",
        [BRICK_BFLOAT16] = "bfloat16",
        [BRICK_FLOAT32] = "float32",
        [BRICK_FLOAT64] = "float64",
        [BRICK_FLOAT8_E4M3FN] = "float8_e4m3fn",
        [BRICK_FLOAT8_E4M3FNUZ] = "float8_e4m3fnuz",
        [BRICK_FLOAT8_E5M2] = "float8_e5m2",
        [BRICK_FLOAT8_E5M2FNUZ] = "float8_e5m2fnuz",
    };
    return dtype < BRICK_DTYPES ? names[dtype] : NULL;
}

static PyObject *sketch_tuple(const float *sketch)
{
    PyObject *tuple = PyTuple_New(16);
    for (Py_ssize_t i = 0; tuple != NULL && i < 16; i++) {
        PyObject *place = PyFloat_FromDouble(sketch[i]);
        if (place == NULL)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, place);
    }
    return tuple;
}

static PyObject *result_of(const struct brick_fingerprint *f, uint32_t dtype)
{
    PyObject *values[] = {
        hexadecimal(f->checksum),
        PyUnicode_InternFromString(core_dtype_name(dtype)),
        PyLong_FromUnsignedLongLong(f->elements),
        PyLong_FromUnsignedLongLong(f->bytes),
        PyFloat_FromDouble(f->min),
        PyFloat_FromDouble(f->max),
        PyFloat_FromDouble(f->mean),
        PyFloat_FromDouble(f->l2),
        PyLong_FromUnsignedLongLong(f->nan),
        PyLong_FromUnsignedLongLong(f->pos_inf),
        PyLong_FromUnsignedLongLong(f->neg_inf),
        sketch_tuple(f->sketch),
        hexadecimal(f->fnv1a),
    };
    PyObject *result = PyStructSequence_New(core_state.fingerprint_type);
    bool whole = result != NULL;
    for (Py_ssize_t i = 0; i < 13; i++) {
        whole = whole && values[i] != NULL;
        if (result != NULL)
            PyStructSequence_SET_ITEM(result, i, values[i]); /* takes the reference */
        else
            Py_XDECREF(values[i]);
    }
    if (!whole)
        Py_CLEAR(result);
    return result;
}

/* ---- the function --------------------------------------------------------- */

bool core_tensor_large(const struct brick_tensor *t)
{
    double elements = 1; /* an estimate: no product of shapes overflows it */
    for (uint32_t d = 0; d < t->dims; d++)
        elements *= (double)t->shape[d];
    return elements * 8 >= UNLOCKED_BYTES;
}

PyObject *core_fingerprint(PyObject *module, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    PyObject *valid = Py_None, *result = NULL;
    struct brick_fingerprint_key key = {{0, 0}};
    CoreTensor t;
    struct brick_fingerprint f;
    if (given != 1) {
        PyErr_SetString(PyExc_TypeError, "brick_agent: fingerprint takes one array, then keywords: valid, key");
        return NULL;
    }
    for (Py_ssize_t i = 0; names != NULL && i < PyTuple_GET_SIZE(names); i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        if (PyUnicode_CompareWithASCIIString(name, "valid") == 0) {
            valid = args[1 + i];
        } else if (PyUnicode_CompareWithASCIIString(name, "key") != 0) {
            PyErr_Format(PyExc_TypeError, "brick_agent: fingerprint got an unexpected keyword argument '%U'", name);
            return NULL;
        } else if (to_key(args[1 + i], &key) != 0) {
            return NULL;
        }
    }
    if (core_tensor_hold(args[0], &t) != 0)
        return NULL;
    if (core_take_valid(valid, &t.tensor) == 0) {
        const char *refused;
        if (!core_tensor_large(&t.tensor)) {
            refused = brick_fingerprint(&t.tensor, key, &f);
        } else {
            Py_BEGIN_ALLOW_THREADS
            refused = brick_fingerprint(&t.tensor, key, &f);
            Py_END_ALLOW_THREADS
        }
        if (refused == NULL)
            result = result_of(&f, t.tensor.dtype);
        else
            PyErr_Format(PyExc_ValueError, "brick_agent: a tensor of which %s has no fingerprint", refused);
    }
    core_tensor_release(&t);
    return result;
}
