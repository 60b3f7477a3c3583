/* python/buffer.c - describes a Python object's memory as a tensor, through the buffer protocol or else DLPack.
 *
 * Owns the types and shapes of buffers, and holds their memory until core_tensor_release. Must not know what the tensor
 * is used for. A numpy array whose dtype comes from another package (bfloat16, float8 of ml_dtypes) has neither
 * protocol. The bits of such an array are read, and their type is known from the dtype's name, without a call into that
 * package.
 */
#include "tensor.h"

#include <string.h>

/* ---- the buffer protocol -------------------------------------------------- */

static const char kinds[] = "?bhilqnBHILQNefd"; /* formats of the struct module that mean numbers */

static uint32_t dtype_of_format(char kind, Py_ssize_t size)
{
    static const uint32_t ints[] = {0, BRICK_INT8, BRICK_INT16, 0, BRICK_INT32, 0, 0, 0, BRICK_INT64};
    static const uint32_t uints[] = {0, BRICK_UINT8, BRICK_UINT16, 0, BRICK_UINT32, 0, 0, 0, BRICK_UINT64};
    if (kind == '\0' || strchr(kinds, kind) == NULL || size < 1 || size > 8)
        return 0;
    if (kind == '?')
        return size == 1 ? BRICK_BOOL : 0;
    if (strchr("efd", kind) != NULL)
        return size == 2 ? BRICK_FLOAT16 : size == 4 ? BRICK_FLOAT32 : size == 8 ? BRICK_FLOAT64 : 0;
    return kind >= 'a' ? ints[size] : uints[size];
}

static int take_buffer(CoreTensor *t)
{
    const Py_buffer *b = &t->buffer;
    const char *format = b->format != NULL ? b->format : "B", *kind = format + (strchr("@=<>!", *format) != NULL && *format);
    t->tensor.dtype = kind[0] != '\0' && kind[1] == '\0' ? dtype_of_format(*kind, b->itemsize) : 0;
    if (t->tensor.dtype == 0)
        PyErr_Format(PyExc_TypeError,
                     "brick_agent: a tensor of format '%s' (%zd bytes) has no fingerprint, expected one of %s", format,
                     b->itemsize, kinds);
    else if ((*format == '>' || *format == '!') && b->itemsize > 1)
        PyErr_Format(PyExc_ValueError,
                     "brick_agent: a tensor of format '%s' has the byte order of another machine, expected this one's: "
                     "array.astype(array.dtype.newbyteorder('='))",
                     format);
    if (PyErr_Occurred() || core_check_dims(b->ndim, b->shape) != 0) {
        core_tensor_release(t);
        return -1;
    }
    t->tensor.data = b->buf;
    t->tensor.dims = (uint32_t)b->ndim;
    for (int d = 0; d < b->ndim; d++) {
        t->shape[d] = b->shape[d];
        if (b->strides != NULL)
            t->strides[d] = b->strides[d];
    }
    if (b->strides == NULL) /* ctypes exports C-order arrays without strides, even on request */
        t->tensor.strides = NULL;
    return 0;
}

/* ---- numpy arrays without a format ------------------------------------------ */

/* Returns the name of an array's dtype: a new reference. Returns NULL without an exception if there is no name; on an
 * error, NULL with an exception. */
static PyObject *dtype_of(PyObject *array, PyObject **dtype)
{
    *dtype = core_attribute(array, "dtype");
    PyObject *name = *dtype != NULL ? core_attribute(*dtype, "name") : NULL;
    if (name != NULL && !PyUnicode_Check(name))
        Py_CLEAR(name);
    return name;
}

static uint32_t dtype_of_name(PyObject *name)
{
    uint32_t dtype = BRICK_DTYPES - 1;
    while (dtype != 0 && PyUnicode_CompareWithASCIIString(name, core_dtype_name(dtype)) != 0)
        dtype--;
    return dtype;
}

static int of_this_machine(PyObject *dtype, PyObject *name)
{
    PyObject *native = core_attribute(dtype, "isnative");
    if (native == Py_False)
        PyErr_Format(PyExc_ValueError,
                     "brick_agent: a tensor of dtype '%U' has the byte order of another machine, expected this one's: "
                     "array.astype(array.dtype.newbyteorder('='))",
                     name);
    Py_XDECREF(native);
    return PyErr_Occurred() ? -1 : 0;
}

/* Holds an array of bfloat16 or float8 through a view of its bits. Returns 1, or -1 with an exception set; returns 0
 * for any other dtype. */
static int hold_bits(PyObject *array, PyObject *dtype, PyObject *name, CoreTensor *t)
{
    const uint32_t number = dtype_of_name(name);
    const uint32_t bits = number == BRICK_BFLOAT16 ? BRICK_UINT16 : number >= BRICK_FLOAT8_E4M3FN ? BRICK_UINT8 : 0;
    if (bits == 0)
        return 0;
    PyObject *view = of_this_machine(dtype, name) == 0 ? PyObject_CallMethod(array, "view", "s", core_dtype_name(bits)) : NULL;
    int held = view != NULL && PyObject_GetBuffer(view, &t->buffer, PyBUF_RECORDS_RO) == 0 && take_buffer(t) == 0 ? 1 : -1;
    Py_XDECREF(view); /* the buffer now keeps the view alive */
    if (held == 1 && t->tensor.dtype != bits) { /* the object is not a real numpy array */
        PyErr_Format(PyExc_TypeError, "brick_agent: a tensor of dtype '%U' gave a view of dtype '%s', expected '%s'", name,
                     core_dtype_name(t->tensor.dtype), core_dtype_name(bits));
        core_tensor_release(t);
        held = -1;
    }
    t->tensor.dtype = number;
    return held;
}

/* Holds an object that refused to export its buffer. The exception with the reason is still set. */
static int hold_without_format(PyObject *array, CoreTensor *t)
{
    const CoreRaised refused = core_put_aside();
    PyObject *dtype;
    PyObject *name = dtype_of(array, &dtype);
    int held = name != NULL ? hold_bits(array, dtype, name, t) : PyErr_Occurred() ? -1 : 0;
    if (held != 0) {
        core_forget(refused);
    } else { /* DLPack can describe bfloat16; packages other than numpy refuse a buffer of it */
        core_put_back(refused);
        held = core_dlpack_hold(array, t);
        /* Numpy raises BufferError for every dtype without a format. */
        if (held != 0 && name != NULL && PyErr_ExceptionMatches(PyExc_BufferError))
            PyErr_Format(PyExc_TypeError,
                         "brick_agent: a tensor of dtype '%U' has no fingerprint, expected bool, integers, float8 to float64 "
                         "or bfloat16",
                         name);
    }
    Py_XDECREF(name);
    Py_XDECREF(dtype);
    return held < 0 ? -1 : 0;
}

int core_tensor_hold(PyObject *array, CoreTensor *t)
{
    t->holds = NULL;
    t->is_on_device = false;
    t->tensor.shape = t->shape;
    t->tensor.strides = t->strides;
    t->tensor.valid = BRICK_ALL_ROWS;
    if (PyObject_CheckBuffer(array)) {
        if (PyObject_GetBuffer(array, &t->buffer, PyBUF_RECORDS_RO) == 0)
            return take_buffer(t);
        return PyErr_ExceptionMatches(PyExc_Exception) ? hold_without_format(array, t) : -1; /* -1: an interrupt */
    }
    return core_dlpack_hold(array, t);
}
