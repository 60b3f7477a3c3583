/* core_tensor.c - a Python object's memory as a tensor: the buffer protocol, where it has or gives none DLPack.
 *
 * An array of numpy whose dtype is another package's (bfloat16, float8 of
 * ml_dtypes) gives neither. Its dtype's name says what its bytes are; that
 * package is not asked.
 *
 * Owns: what both say of types, shapes and devices, and the hold on the memory.
 * Must not know: what becomes of the tensor. Whatever holds is held until
 * core_tensor_release; where core_tensor_hold fails, nothing is.
 *
 * A capsule of DLPack is read and never consumed: its name stays, so that the
 * producer's own destructor frees it with our reference, on every way out. It
 * may run Python, which must find no exception of ours, and take none along.
 */
#include "core.h"

#include <string.h>

/* ---- shapes --------------------------------------------------------------- */

/* 0, or -1 with an exception set. */
static int check_dims(long dims, const void *shape)
{
    if (dims < 0 || dims > BRICK_DIMS_MAX)
        PyErr_Format(PyExc_ValueError, "brick_agent: a tensor of %ld dimensions, at most %d wanted", dims, BRICK_DIMS_MAX);
    else if (dims > 0 && shape == NULL)
        PyErr_Format(PyExc_ValueError, "brick_agent: a tensor of %ld dimensions and no shape", dims);
    return PyErr_Occurred() ? -1 : 0;
}

/* ---- the buffer protocol -------------------------------------------------- */

static const char kinds[] = "?bhilqnBHILQNefd"; /* of the struct module, as far as they are numbers of a machine */

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
                     "brick_agent: a tensor of format '%s' (%zd bytes) has no fingerprint; wanted one of %s", format,
                     b->itemsize, kinds);
    else if ((*format == '>' || *format == '!') && b->itemsize > 1)
        PyErr_Format(PyExc_ValueError,
                     "brick_agent: a tensor of format '%s' is in the byte order of another machine; wanted this one's: "
                     "array.astype(array.dtype.newbyteorder('='))",
                     format);
    if (PyErr_Occurred() || check_dims(b->ndim, b->shape) != 0) {
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
    if (b->strides == NULL) /* though asked for: so ctypes exports its arrays, which lie in C order */
        t->tensor.strides = NULL;
    return 0;
}

/* ---- DLPack --------------------------------------------------------------- */

/* As dlpack.h publishes them, of version 1 and of before. */
struct dl_tensor {
    void *data;
    int32_t device, device_number;
    int32_t dims;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: C order */
    uint64_t byte_offset;
};
struct dl_managed {
    struct dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *);
};
struct dl_versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct dl_versioned *);
    uint64_t flags;
    struct dl_tensor tensor;
};
#define DL_MAJOR 1
#define DL_CPU 1
#define DL_CUDA_HOST 3 /* memory of the host that a device may reach: pinned */
#define DL_ROCM_HOST 11

static const char *device_name(long device)
{
    static const char *const names[] = {
        [2] = "CUDA", [4] = "OpenCL", [7] = "Vulkan", [8] = "Metal", [9] = "VPI", [10] = "ROCm",
        [12] = "an extension", [13] = "CUDA managed", [14] = "oneAPI", [15] = "WebGPU", [16] = "Hexagon", [17] = "MAIA",
        [18] = "Trainium",
    };
    const char *name = device >= 0 && device < (long)(sizeof names / sizeof *names) ? names[device] : NULL;
    return name != NULL ? name : "unknown";
}

static int of_this_host(long device)
{
    if (device == DL_CPU || device == DL_CUDA_HOST || device == DL_ROCM_HOST)
        return 0;
    PyErr_Format(PyExc_ValueError,
                 "brick_agent: a tensor on device %ld of DLPack (%s), wanted one in this host's memory: copy it to the CPU",
                 device, device_name(device));
    return -1;
}

static uint32_t dtype_of_code(unsigned code, unsigned bits)
{
    static const struct {
        uint8_t code, bits;
        uint32_t dtype;
    } known[] = {
        {0, 8, BRICK_INT8},     {0, 16, BRICK_INT16},    {0, 32, BRICK_INT32},    {0, 64, BRICK_INT64},
        {1, 8, BRICK_UINT8},    {1, 16, BRICK_UINT16},   {1, 32, BRICK_UINT32},   {1, 64, BRICK_UINT64},
        {2, 16, BRICK_FLOAT16}, {2, 32, BRICK_FLOAT32},  {2, 64, BRICK_FLOAT64},  {4, 16, BRICK_BFLOAT16},
        {6, 8, BRICK_BOOL},     {10, 8, BRICK_FLOAT8_E4M3FN}, {11, 8, BRICK_FLOAT8_E4M3FNUZ},
        {12, 8, BRICK_FLOAT8_E5M2}, {13, 8, BRICK_FLOAT8_E5M2FNUZ},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].code == code && known[i].bits == bits)
            return known[i].dtype;
    return 0;
}

/* The producer is asked where it lies before it is asked for it: a device might copy, or wait. */
static int asked_device(PyObject *array)
{
    PyObject *device = PyObject_CallMethod(array, "__dlpack_device__", NULL);
    if (device == NULL)
        return -1;
    long kind = -1;
    if (PyTuple_Check(device) && PyTuple_GET_SIZE(device) == 2)
        kind = PyLong_AsLong(PyTuple_GET_ITEM(device, 0));
    else
        PyErr_Format(PyExc_TypeError, "brick_agent: __dlpack_device__ gave %R, wanted a pair", device);
    Py_DECREF(device);
    return PyErr_Occurred() ? -1 : of_this_host(kind);
}

static PyObject *asked_capsule(PyObject *method)
{
    PyObject *none = PyTuple_New(0);
    PyObject *version = none != NULL ? Py_BuildValue("{s:(ii)}", "max_version", DL_MAJOR, 0) : NULL;
    PyObject *capsule = version != NULL ? PyObject_Call(method, none, version) : NULL;
    if (capsule == NULL && version != NULL && PyErr_ExceptionMatches(PyExc_TypeError)) { /* of before there were versions */
        PyErr_Clear();
        capsule = PyObject_Call(method, none, NULL);
    }
    Py_XDECREF(none);
    Py_XDECREF(version);
    return capsule;
}

static const struct dl_tensor *in_capsule(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        struct dl_managed *managed = PyCapsule_GetPointer(capsule, "dltensor");
        return &managed->tensor;
    }
    if (!PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        PyErr_Format(PyExc_TypeError, "brick_agent: __dlpack__ gave %R, wanted a capsule 'dltensor' or 'dltensor_versioned'",
                     capsule);
        return NULL;
    }
    struct dl_versioned *versioned = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    if (versioned->major == DL_MAJOR)
        return &versioned->tensor;
    PyErr_Format(PyExc_ValueError, "brick_agent: a tensor of DLPack %u.%u, wanted %d", versioned->major, versioned->minor,
                 DL_MAJOR);
    return NULL;
}

static int take_dlpack(CoreTensor *t, const struct dl_tensor *dl)
{
    if (of_this_host(dl->device) != 0)
        return -1;
    t->tensor.dtype = dl->lanes == 1 ? dtype_of_code(dl->code, dl->bits) : 0;
    if (t->tensor.dtype == 0) {
        PyErr_Format(PyExc_TypeError,
                     "brick_agent: a tensor of DLPack's type %u with %u bits and %u lanes has no fingerprint; wanted bool, "
                     "integers, float8 to float64 or bfloat16, one lane",
                     dl->code, dl->bits, dl->lanes);
        return -1;
    }
    if (check_dims(dl->dims, dl->shape) != 0)
        return -1;
    t->tensor.data = dl->data != NULL ? (const char *)dl->data + dl->byte_offset : NULL;
    t->tensor.dims = (uint32_t)dl->dims;
    for (int d = 0; d < dl->dims; d++) {
        t->shape[d] = dl->shape[d];
        if (dl->strides != NULL)
            t->strides[d] = (int64_t)((uint64_t)dl->strides[d] * (dl->bits / 8));
    }
    if (dl->strides == NULL)
        t->tensor.strides = NULL;
    return 0;
}

static int hold_dlpack(PyObject *array, PyObject *method, CoreTensor *t)
{
    if (asked_device(array) == 0)
        t->capsule = asked_capsule(method);
    if (t->capsule == NULL)
        return -1;
    const struct dl_tensor *dl = in_capsule(t->capsule);
    if (dl != NULL && take_dlpack(t, dl) == 0)
        return 0;
    core_tensor_release(t);
    return -1;
}

/* ---- arrays of numpy without a format --------------------------------------- */

PyObject *core_attribute(PyObject *object, const char *name)
{
    PyObject *found = PyObject_GetAttrString(object, name);
    if (found == NULL && PyErr_ExceptionMatches(PyExc_AttributeError))
        PyErr_Clear();
    return found;
}

/* What the dtype of an array is called, where it says so: a new reference, or NULL, as core_attribute. */
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

/* 0, or -1 with an exception set. */
static int of_this_machine(PyObject *dtype, PyObject *name)
{
    PyObject *native = core_attribute(dtype, "isnative");
    if (native == Py_False)
        PyErr_Format(PyExc_ValueError,
                     "brick_agent: a tensor of dtype '%U' is in the byte order of another machine; wanted this one's: "
                     "array.astype(array.dtype.newbyteorder('='))",
                     name);
    Py_XDECREF(native);
    return PyErr_Occurred() ? -1 : 0;
}

/* Through a view of its bits: 1; 0: its dtype is none that has neither format nor code; -1 with an exception set. */
static int hold_bits(PyObject *array, PyObject *dtype, PyObject *name, CoreTensor *t)
{
    const uint32_t number = dtype_of_name(name);
    const uint32_t bits = number == BRICK_BFLOAT16 ? BRICK_UINT16 : number >= BRICK_FLOAT8_E4M3FN ? BRICK_UINT8 : 0;
    if (bits == 0)
        return 0;
    PyObject *view = of_this_machine(dtype, name) == 0 ? PyObject_CallMethod(array, "view", "s", core_dtype_name(bits)) : NULL;
    int held = view != NULL && PyObject_GetBuffer(view, &t->buffer, PyBUF_RECORDS_RO) == 0 && take_buffer(t) == 0 ? 1 : -1;
    Py_XDECREF(view); /* the buffer holds it */
    if (held == 1 && t->tensor.dtype != bits) { /* whoever made it up */
        PyErr_Format(PyExc_TypeError, "brick_agent: a tensor of dtype '%U' gave a view of dtype '%s', wanted '%s'", name,
                     core_dtype_name(t->tensor.dtype), core_dtype_name(bits));
        core_tensor_release(t);
        held = -1;
    }
    t->tensor.dtype = number;
    return held;
}

/* ---- either --------------------------------------------------------------- */

/* Its __dlpack__. What has none is refused; what refused its buffer, for the reason that is set. */
static PyObject *dlpack_of(PyObject *array)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *method = PyObject_GetAttrString(array, "__dlpack__");
    if (method == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Restore(type, value, traceback);
        if (type == NULL)
            PyErr_Format(PyExc_TypeError, "brick_agent: a tensor must have the buffer protocol or __dlpack__, not %R",
                         (PyObject *)Py_TYPE(array));
        return NULL;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return method;
}

static int hold_by_dlpack(PyObject *array, CoreTensor *t)
{
    PyObject *method = dlpack_of(array);
    const int held = method != NULL ? hold_dlpack(array, method, t) : -1;
    Py_XDECREF(method);
    return held;
}

/* What refused its buffer, for the reason that is set. */
static int hold_without_format(PyObject *array, CoreTensor *t)
{
    PyObject *type, *value, *traceback, *dtype;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *name = dtype_of(array, &dtype);
    int held = name != NULL ? hold_bits(array, dtype, name, t) : PyErr_Occurred() ? -1 : 0;
    if (held == 0) { /* DLPack has a code for a bfloat16, where others refuse a buffer of it */
        PyErr_Restore(type, value, traceback);
        type = value = traceback = NULL;
        held = hold_by_dlpack(array, t);
        if (held != 0 && name != NULL && PyErr_ExceptionMatches(PyExc_BufferError)) /* as numpy has it of any such dtype */
            PyErr_Format(PyExc_TypeError,
                         "brick_agent: a tensor of dtype '%U' has no fingerprint; wanted bool, integers, float8 to float64 "
                         "or bfloat16",
                         name);
    }
    Py_XDECREF(name);
    Py_XDECREF(dtype);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return held < 0 ? -1 : 0;
}

int core_tensor_hold(PyObject *array, CoreTensor *t)
{
    t->capsule = NULL;
    t->tensor.shape = t->shape;
    t->tensor.strides = t->strides;
    t->tensor.valid = BRICK_ALL_ROWS;
    if (PyObject_CheckBuffer(array)) {
        if (PyObject_GetBuffer(array, &t->buffer, PyBUF_RECORDS_RO) == 0)
            return take_buffer(t);
        return PyErr_ExceptionMatches(PyExc_Exception) ? hold_without_format(array, t) : -1; /* -1: an interrupt */
    }
    return hold_by_dlpack(array, t);
}

void core_tensor_release(CoreTensor *t)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (t->capsule != NULL)
        Py_CLEAR(t->capsule);
    else
        PyBuffer_Release(&t->buffer);
    PyErr_Restore(type, value, traceback);
}
