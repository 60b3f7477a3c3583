/* python/tensor.h - a Python object's memory as a tensor, held while it is read, by its buffer or by DLPack. */
#ifndef BRICK_TENSOR_H
#define BRICK_TENSOR_H

#include "core.h"

typedef struct {
    struct brick_tensor tensor;
    int64_t shape[BRICK_DIMS_MAX], strides[BRICK_DIMS_MAX];
    PyObject *holds; /* DLPack's capsule, or the tensor; NULL: the buffer is held */
    bool is_on_device; /* why it is not held: its memory is not this host's */
    Py_buffer buffer;
} CoreTensor;

/* buffer.c. Returns 0, or -1 with an exception set and nothing held. */
int core_tensor_hold(PyObject *array, CoreTensor *t);
/* dlpack.c: the same for an object without a buffer. The current exception says why its buffer was refused; it stays if
 * the object has no DLPack. */
int core_dlpack_hold(PyObject *array, CoreTensor *t);

/* tensor.c */
void core_tensor_release(CoreTensor *t);
bool core_tensor_large(const struct brick_tensor *t); /* returns whether to read it without the interpreter lock */
/* Returns 0, or -1 with an exception set. */
int core_check_dims(long dims, const void *shape);
/* Sets the number of valid rows, if `value` is given. Returns 0, or -1 with an exception set. */
int core_take_valid(PyObject *value, struct brick_tensor *t);
/* Returns the name of a dtype in numpy, or in a package that adds dtypes to numpy; NULL if there is no such dtype. */
const char *core_dtype_name(uint32_t dtype);
/* Returns an attribute: a new reference, or NULL, with an exception set unless it is only missing. */
PyObject *core_attribute(PyObject *object, const char *name);
/* Returns an attribute of the object's type: borrowed, or NULL without an exception. *name: the interned `text`,
 * initially NULL. */
PyObject *core_of_type(PyObject *object, PyObject **name, const char *text);

/* torch.c */
/* Hides calls on tensors from function modes of torch until core_torch_leave, which takes the result. Raises nothing. */
PyObject *core_torch_enter(PyObject *tensor);
void core_torch_leave(PyObject *silent);
/* Returns the object that keeps a tensor's memory in place: a new reference. For a tensor of torch, this is the
 * storage, because a tensor may get another storage during the reading. */
PyObject *core_torch_owner(PyObject *tensor);
/* Returns 0, or -1 with an exception set if memory has the numbers with the opposite sign, which DLPack does not
 * report. */
int core_torch_in_memory(PyObject *tensor);
/* A copy of a tensor on a device in this host's memory, after a wait for the device: a new reference; NULL with an exception
 * set. */
PyObject *core_torch_host_copy(PyObject *tensor);
bool core_torch_is_tensor(PyObject *object);
/* Whether it has a shape but no numbers: torch runs a model with such tensors to trace a program. */
bool core_torch_fake(PyObject *tensor);

#endif
