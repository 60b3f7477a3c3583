/* python/dlpack.c - describes a Python object's memory as a tensor with DLPack.
 *
 * Owns the two protocols of DLPack, its types and its devices. If a type has a table of functions
 * (__dlpack_c_exchange_api__), a C call describes a tensor in place, and the library's profilers and exports do not see
 * this call. Otherwise, the method __dlpack__ returns a capsule. Must not know what the tensor is used for. Invariant:
 * no attribute of an object is read if its type has neither protocol, because some objects record each access into a
 * program.
 *
 * This code reads a capsule but does not consume it: the capsule keeps its name, so the producer's destructor frees the
 * tensor when we drop our reference. The destructor may run Python code, which must neither find nor leave an
 * exception.
 */
#include "tensor.h"

/* ---- the structs of dlpack.h ------------------------------------------------ */

/* A tensor. This struct is the same in version 1 and in earlier versions. */
struct dl_tensor {
    void *data;
    int32_t device, device_number;
    int32_t dims;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape;
    int64_t *strides; /* strides in elements; NULL: C order */
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
struct dl_exchange { /* since version 1.3 */
    uint32_t major, minor;
    const struct dl_exchange *older;
    void *allocate, *managed_from, *managed_to; /* functions of the table that this file does not call */
    /* NULL, or a function that describes a tensor, whose object keeps the memory alive */
    int (*tensor_from)(void *object, struct dl_tensor *tensor);
    void *stream;
};
#define DL_MAJOR 1
#define DL_CPU 1
#define DL_CUDA_HOST 3 /* pinned memory: host memory that a device can reach */
#define DL_ROCM_HOST 11

/* ---- devices and types ---------------------------------------------------- */

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

static int check_device(CoreTensor *t, long device)
{
    if (device == DL_CPU || device == DL_CUDA_HOST || device == DL_ROCM_HOST)
        return 0;
    t->is_on_device = true;
    PyErr_Format(PyExc_ValueError,
                 "brick_agent: a tensor on device %ld of DLPack (%s), expected one in this host's memory: copy it to the CPU",
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

static int take_dlpack(CoreTensor *t, const struct dl_tensor *dl)
{
    if (check_device(t, dl->device) != 0)
        return -1;
    t->tensor.dtype = dl->lanes == 1 ? dtype_of_code(dl->code, dl->bits) : 0;
    if (t->tensor.dtype == 0) {
        PyErr_Format(PyExc_TypeError,
                     "brick_agent: a tensor of DLPack's type %u with %u bits and %u lanes has no fingerprint, expected bool, "
                     "integers, float8 to float64 or bfloat16, one lane",
                     dl->code, dl->bits, dl->lanes);
        return -1;
    }
    if (core_check_dims(dl->dims, dl->shape) != 0)
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

/* ---- a capsule ------------------------------------------------------------- */

/* Checks the device before a capsule is requested, because a request for a tensor on a device may copy the tensor or
 * wait. */
static int ask_device(PyObject *array, CoreTensor *t)
{
    PyObject *device = PyObject_CallMethod(array, "__dlpack_device__", NULL);
    if (device == NULL)
        return -1;
    long kind = -1;
    if (PyTuple_Check(device) && PyTuple_GET_SIZE(device) == 2)
        kind = PyLong_AsLong(PyTuple_GET_ITEM(device, 0));
    else
        PyErr_Format(PyExc_TypeError, "brick_agent: __dlpack_device__ gave %R, expected a pair", device);
    Py_DECREF(device);
    return PyErr_Occurred() ? -1 : check_device(t, kind);
}

static PyObject *make_capsule(PyObject *method)
{
    PyObject *none = PyTuple_New(0);
    PyObject *version = none != NULL ? Py_BuildValue("{s:(ii)}", "max_version", DL_MAJOR, 0) : NULL;
    PyObject *capsule = version != NULL ? PyObject_Call(method, none, version) : NULL;
    /* A TypeError means that the producer does not know the argument max_version yet. */
    if (capsule == NULL && version != NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
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
        PyErr_Format(PyExc_TypeError, "brick_agent: __dlpack__ gave %R, expected a capsule 'dltensor' or 'dltensor_versioned'",
                     capsule);
        return NULL;
    }
    struct dl_versioned *versioned = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    if (versioned->major == DL_MAJOR)
        return &versioned->tensor;
    PyErr_Format(PyExc_ValueError, "brick_agent: a tensor of DLPack %u.%u, expected %d", versioned->major, versioned->minor,
                 DL_MAJOR);
    return NULL;
}

/* A tensor with gradients cannot be exported. Its method detach() returns a tensor with the same memory that can.
 * Returns a new reference to that tensor. */
static PyObject *detached(PyObject *array)
{
    PyObject *requires = core_attribute(array, "requires_grad");
    const bool has_gradients = requires == Py_True;
    Py_XDECREF(requires);
    if (requires == NULL && PyErr_Occurred())
        return NULL;
    return has_gradients ? PyObject_CallMethod(array, "detach", NULL) : Py_NewRef(array);
}

static int hold_capsule(PyObject *array, CoreTensor *t)
{
    PyObject *from = detached(array);
    PyObject *method = from != NULL && ask_device(from, t) == 0 ? PyObject_GetAttrString(from, "__dlpack__") : NULL;
    PyObject *capsule = method != NULL ? make_capsule(method) : NULL;
    core_let_go(method);
    core_let_go(from); /* the capsule keeps the memory alive */
    const struct dl_tensor *dl = capsule != NULL ? in_capsule(capsule) : NULL;
    if (dl != NULL && take_dlpack(t, dl) == 0) {
        t->holds = capsule;
        return 0;
    }
    core_let_go(capsule);
    return -1;
}

/* ---- a table of functions --------------------------------------------------- */

/* Returns the type's table of functions; NULL if there is none. */
static const struct dl_exchange *exchange_of(PyObject *array)
{
    static PyObject *name;
    static const char capsules[] = "dlpack_exchange_api";
    PyObject *capsule = core_of_type(array, &name, "__dlpack_c_exchange_api__");
    if (capsule == NULL || !PyCapsule_IsValid(capsule, capsules))
        return NULL;
    const struct dl_exchange *table = PyCapsule_GetPointer(capsule, capsules);
    while (table != NULL && table->major > DL_MAJOR)
        table = table->older;
    return table != NULL && table->major == DL_MAJOR && table->tensor_from != NULL ? table : NULL;
}

/* Raises only the first line of a message: a C++ library appends the place in its source code. */
static void raise_first_line(void)
{
    if (!PyErr_Occurred() || !PyErr_ExceptionMatches(PyExc_Exception))
        return;
    const CoreRaised raised = core_put_aside();
    PyObject *text = raised.value != NULL ? PyObject_Str(raised.value) : NULL;
    PyObject *lines = text != NULL ? PyUnicode_Splitlines(text, 0) : NULL;
    PyErr_Clear();
    if (lines != NULL && PyList_GET_SIZE(lines) > 0)
        PyErr_Format(PyExc_BufferError, "brick_agent: %U", PyList_GET_ITEM(lines, 0));
    else
        PyErr_SetString(PyExc_BufferError, "brick_agent: DLPack raised an exception");
    core_let_go(text);
    core_let_go(lines);
    core_forget(raised);
}

static int hold_described(const struct dl_exchange *table, PyObject *array, CoreTensor *t)
{
    struct dl_tensor dl;
    PyObject *owner = core_torch_owner(array); /* get the owner before the tensor's address is read */
    int failed = owner == NULL || table->tensor_from(array, &dl) != 0;
    if (failed) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_BufferError, "DLPack does not describe this tensor, and does not say why");
        raise_first_line();
    }
    failed = failed || take_dlpack(t, &dl) != 0;
    if (failed)
        core_let_go(owner);
    else
        t->holds = owner;
    return failed ? -1 : 0;
}

static int hold(const struct dl_exchange *table, PyObject *array, CoreTensor *t)
{
    if (core_torch_fake(array)) { /* torch warns if the address of such a tensor is read */
        PyErr_Format(PyExc_ValueError, "brick_agent: a tensor without numbers (%s) has no fingerprint", Py_TYPE(array)->tp_name);
        return -1;
    }
    if ((table != NULL ? hold_described(table, array, t) : hold_capsule(array, t)) != 0)
        return -1;
    if (core_torch_in_memory(array) == 0)
        return 0;
    core_tensor_release(t);
    return -1;
}

int core_dlpack_hold(PyObject *array, CoreTensor *t)
{
    static PyObject *name;
    const CoreRaised refused = core_put_aside();
    const struct dl_exchange *table = exchange_of(array);
    if (table == NULL && core_of_type(array, &name, "__dlpack__") == NULL) {
        core_put_back(refused);
        if (refused.type == NULL)
            PyErr_Format(PyExc_TypeError, "brick_agent: a tensor must have the buffer protocol or __dlpack__, not %R",
                         (PyObject *)Py_TYPE(array));
        return -1;
    }
    core_forget(refused);
    PyObject *silent = core_torch_enter(array);
    const int failed = hold(table, array, t);
    core_torch_leave(silent);
    return failed;
}
