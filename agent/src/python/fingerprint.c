/* python/fingerprint.c - fingerprint() and its result, a named tuple. */
#include "arguments.h"
#include "methods.h"
#include "tensor.h"

const char core_fingerprint_doc[] = PyDoc_STR(
"fingerprint(array, /, *, valid=None, key=0)\n"
"--\n\n"
"Compute a tensor's fingerprint: a checksum of every byte, statistics, a sketch. Records nothing.\n\n"
"array: anything with the buffer protocol (numpy, array, bytes) or with __dlpack__ (torch and others) in this host's\n"
"memory. Its elements are bool, integers of 8 to 64 bits, float8, float16, bfloat16, float32 or float64 (also those of\n"
"ml_dtypes), with any shape and strides. valid: the number of valid rows (of dimension 0); None: all. key: an integer from\n"
"0 to 2^128-1; only fingerprints with the same key can be compared. Raises if the tensor has no fingerprint. While\n"
"a tensor of 1 MiB or more is read, other threads run; if one of them writes to the tensor, the fingerprint matches neither\n"
"state. brick_fingerprint.h has the definition.\n\n"
">>> from array import array\n"
">>> brick.fingerprint(array(\"f\", [1, 2, 3])).checksum\n"
"'78bae40d05ce2a1b'\n"
">>> a, b = array(\"f\", [3, 4, 5, 6]), array(\"f\", [3, 4, 5, 9])\n"
">>> brick.fingerprint(a).checksum == brick.fingerprint(b).checksum\n"
"False\n"
">>> brick.fingerprint(a, valid=3) == brick.fingerprint(b, valid=3)\n"
"True\n");

PyDoc_STRVAR(type_doc,
"The result of fingerprint(): a named tuple.\n\n"
">>> got = brick.fingerprint(bytes([1, 2, 3]))\n"
">>> got.dtype, got.elements, got.min, got.max, got.mean\n"
"('uint8', 3, 1.0, 3.0, 2.0)\n");

static PyStructSequence_Field fields[] = {
    {"checksum", "checksum of all bytes, their number and the dtype: 16 hexadecimal digits"},
    {"dtype", "type of the elements, as in numpy and torch"},
    {"elements", "number of valid elements"},
    {"bytes", "number of bytes of the valid elements"},
    {"min", "minimum of the finite elements; 0 if there are none"},
    {"max", "maximum of the finite elements; 0 if there are none"},
    {"mean", "mean of the finite elements; 0 if there are none"},
    {"l2", "square root of the sum of the squares of the finite elements"},
    {"nan", "number of NaN"},
    {"pos_inf", "number of +Inf"},
    {"neg_inf", "number of -Inf"},
    {"sketch", "16 floats: the sketch of a difference is the difference of the sketches"},
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

static int to_key(PyObject *value, struct brick_fingerprint_key *key)
{
    PyObject *index = PyNumber_Index(value), *places = PyLong_FromLong(64);
    PyObject *upper = index != NULL && places != NULL ? PyNumber_Rshift(index, places) : NULL;
    if (upper != NULL) {
        key->words[0] = PyLong_AsUnsignedLongLongMask(index);
        key->words[1] = PyLong_AsUnsignedLongLong(upper); /* of a negative number, this is negative and overflows */
    }
    Py_XDECREF(index);
    Py_XDECREF(places);
    Py_XDECREF(upper);
    if (!PyErr_Occurred())
        return 0;
    if (upper != NULL && PyErr_ExceptionMatches(PyExc_OverflowError))
        PyErr_Format(PyExc_ValueError, "brick_agent: key is %S, expected an integer from 0 to 2^128-1", value);
    return -1;
}

static PyObject *hexadecimal(uint64_t number)
{
    char text[17];
    PyOS_snprintf(text, sizeof text, "%016llx", (unsigned long long)number);
    return PyUnicode_FromString(text);
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
            PyStructSequence_SET_ITEM(result, i, values[i]); /* the result owns the reference */
        else
            Py_XDECREF(values[i]);
    }
    if (!whole)
        Py_CLEAR(result);
    return result;
}

PyObject *core_fingerprint(PyObject *module, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    static const char *const known[] = {"valid", "key"};
    static CoreCall call = {"fingerprint", 0, 0, 2, known, {NULL}};
    PyObject *of[CORE_ARGUMENTS], *result = NULL;
    struct brick_fingerprint_key key = {{0, 0}};
    CoreTensor t;
    struct brick_fingerprint f;
    if (given != 1) {
        PyErr_SetString(PyExc_TypeError, "brick_agent: fingerprint takes one array, then keywords: valid, key");
        return NULL;
    }
    if (core_arguments(&call, args + 1, 0, names, of) != 0 || (of[1] != NULL && to_key(of[1], &key) != 0)
        || core_tensor_hold(args[0], &t) != 0)
        return NULL;
    if (core_take_valid(of[0], &t.tensor) == 0) {
        PyThreadState *unlocked = core_tensor_large(&t.tensor) ? PyEval_SaveThread() : NULL;
        const char *refused = brick_fingerprint(&t.tensor, key, &f);
        if (unlocked != NULL)
            PyEval_RestoreThread(unlocked);
        if (refused == NULL)
            result = result_of(&f, t.tensor.dtype);
        else
            PyErr_Format(PyExc_ValueError, "brick_agent: a tensor has no fingerprint: %s", refused);
    }
    core_tensor_release(&t);
    return result;
}
