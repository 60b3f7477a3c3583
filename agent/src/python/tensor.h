/* python/tensor.h - holds a Python object's memory as a tensor while it is read, through its buffer or DLPack. */
#ifndef BRICK_TENSOR_H
#define BRICK_TENSOR_H

#include "core.h"

typedef struct {
    struct brick_tensor tensor;
    int64_t shape[BRICK_DIMS_MAX], strides[BRICK_DIMS_MAX];
    PyObject *holds; /* the held object: a DLPack capsule or the tensor; NULL: the buffer is held */
    bool is_on_device; /* 1: the object is not held, because its memory is on a device */
    Py_buffer buffer;
} CoreTensor;

/* In buffer.c: holds an object. Returns 0, or -1 with an exception set and nothing held. */
int core_tensor_hold(PyObject *array, CoreTensor *t);
/* In dlpack.c: holds an object without a buffer. If an exception says why the object refused its buffer, this exception
 * stays set if the object has no DLPack either. */
int core_dlpack_hold(PyObject *array, CoreTensor *t);

/* tensor.c */
void core_tensor_release(CoreTensor *t);
bool core_tensor_large(const struct brick_tensor *t); /* whether to read it without the interpreter lock */
/* Checks that the number of dimensions is valid and that there is a shape. Returns 0, or -1 with an exception set. */
int core_check_dims(long dims, const void *shape);
/* Sets the number of valid rows, if `value` is given. Returns 0, or -1 with an exception set. */
int core_take_valid(PyObject *value, struct brick_tensor *t);
/* Returns the name of a dtype in numpy, or in a package that adds dtypes to numpy; NULL if there is no such dtype. */
const char *core_dtype_name(uint32_t dtype);
/* Returns an attribute: a new reference. If there is no such attribute, returns NULL without an exception; on any other
 * error, NULL with an exception. */
PyObject *core_attribute(PyObject *object, const char *name);
/* Returns an attribute of the object's type: borrowed, or NULL without an exception. *name caches the interned `text`,
 * and is NULL at first. */
PyObject *core_of_type(PyObject *object, PyObject **name, const char *text);

/* torch.c */
/* Hides our calls on tensors from function modes of torch until core_torch_leave, which takes the result of
 * core_torch_enter. Raises nothing. */
PyObject *core_torch_enter(PyObject *tensor);
void core_torch_leave(PyObject *silent);
/* Returns the object that keeps a tensor's memory in place: a new reference. For a tensor of torch, this is its
 * storage, because another thread may give the tensor another storage while it is read. */
PyObject *core_torch_owner(PyObject *tensor);
/* Returns 0 if the memory has the tensor's numbers. Returns -1 with an exception set if the numbers are stored with the
 * opposite sign, which DLPack does not report. */
int core_torch_in_memory(PyObject *tensor);
/* Copies a tensor from its device into this host's memory, and waits for the device. Returns a new reference; NULL with
 * an exception set. */
PyObject *core_torch_host_copy(PyObject *tensor);
bool core_torch_is_tensor(PyObject *object);
/* Returns whether the tensor has a shape but no numbers: torch runs a model with such tensors to trace the model into a
 * program. */
bool core_torch_fake(PyObject *tensor);

#endif
