/* python/tensor.c - common code for all tensors: dtypes, dimensions, holding and releasing. */
#include "tensor.h"
#include "arguments.h"

#define UNLOCKED_BYTES (1 << 20) /* from this size on (about 50 us), other Python threads may run while a tensor is
                                    read */

PyObject *core_attribute(PyObject *object, const char *name)
{
    PyObject *found = PyObject_GetAttrString(object, name);
    if (found == NULL && PyErr_ExceptionMatches(PyExc_AttributeError))
        PyErr_Clear();
    return found;
}

PyObject *core_of_type(PyObject *object, PyObject **name, const char *text)
{
    if (*name == NULL && (*name = PyUnicode_InternFromString(text)) == NULL) {
        PyErr_Clear();
        return NULL;
    }
    return _PyType_Lookup(Py_TYPE(object), *name);
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

int core_check_dims(long dims, const void *shape)
{
    if (dims < 0 || dims > BRICK_DIMS_MAX)
        PyErr_Format(PyExc_ValueError, "brick_agent: a tensor of %ld dimensions, expected at most %d", dims, BRICK_DIMS_MAX);
    else if (dims > 0 && shape == NULL)
        PyErr_Format(PyExc_ValueError, "brick_agent: a tensor of %ld dimensions without a shape", dims);
    return PyErr_Occurred() ? -1 : 0;
}

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
    PyErr_Format(PyExc_ValueError, "brick_agent: %s is %S, expected an integer from 0 to %llu", name, value,
                 (unsigned long long)most);
    return -1;
}

int core_take_valid(PyObject *value, struct brick_tensor *t)
{
    if (!core_is_given(value))
        return 0;
    if (t->dims > 0)
        return natural(value, t->shape[0] > 0 ? (uint64_t)t->shape[0] : 0, "valid", &t->valid);
    PyErr_Format(PyExc_ValueError, "brick_agent: valid is %S, but a tensor of no dimension has no rows", value);
    return -1;
}

bool core_tensor_large(const struct brick_tensor *t)
{
    double elements = 1; /* an estimate that cannot overflow */
    for (uint32_t d = 0; d < t->dims; d++)
        elements *= (double)t->shape[d];
    return elements * 8 >= UNLOCKED_BYTES;
}

void core_tensor_release(CoreTensor *t)
{
    const CoreRaised raised = core_put_aside();
    if (t->holds != NULL)
        Py_CLEAR(t->holds);
    else
        PyBuffer_Release(&t->buffer);
    core_put_back(raised);
}
