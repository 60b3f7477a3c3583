/* python/tensor.h - a Python object's memory as a tensor, held while it is read: by its buffer, or by DLPack. */
#ifndef BRICK_TENSOR_H
#define BRICK_TENSOR_H

#include "core.h"

typedef struct {
    struct brick_tensor tensor;
    int64_t shape[BRICK_DIMS_MAX], strides[BRICK_DIMS_MAX];
    PyObject *holds; /* DLPack's capsule, or the tensor; else the buffer is held */
    Py_buffer buffer;
} CoreTensor;

/* buffer.c: 0, or -1 with an exception set and nothing held. */
int core_tensor_hold(PyObject *array, CoreTensor *t);
/* dlpack.c: the same for an object without a buffer. An exception that is set says why its buffer was refused; it stays
 * where the object has no DLPack either. */
int core_dlpack_hold(PyObject *array, CoreTensor *t);

/* tensor.c */
void core_tensor_release(CoreTensor *t);
bool core_tensor_large(const struct brick_tensor *t); /* to be read without the interpreter lock */
/* 0, or -1 with an exception set. */
int core_check_dims(long dims, const void *shape);
/* How many rows count, where `value` is given: 0, or -1 with an exception set. */
int core_take_valid(PyObject *value, struct brick_tensor *t);
/* The name that numpy has for it, or a package that adds dtypes to numpy; NULL: there is no such dtype. */
const char *core_dtype_name(uint32_t dtype);
/* An attribute of that name: a new reference, or NULL, with an exception set where it is not only missing. */
PyObject *core_attribute(PyObject *object, const char *name);
/* An attribute of the object's type: borrowed, or NULL without an exception. *name: the interned `text`, NULL at first. */
PyObject *core_of_type(PyObject *object, PyObject **name, const char *text);

/* torch.c */
/* Until core_torch_leave, which takes the result, no function mode of torch sees what a tensor is asked. Raises nothing. */
PyObject *core_torch_enter(PyObject *tensor);
void core_torch_leave(PyObject *silent);
/* What keeps a tensor's memory where it is, a new reference: of torch's tensors their storage, for a tensor may be given
 * another one while this one is read. */
PyObject *core_torch_owner(PyObject *tensor);
/* 0, or -1 with an exception set where memory holds the numbers with the other sign, of which DLPack says nothing. */
int core_torch_in_memory(PyObject *tensor);
/* Whether it has a shape and no numbers: with such tensors torch runs a model to make a program of it. */
bool core_torch_fake(PyObject *tensor);

#endif
