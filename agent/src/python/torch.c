/* python/torch.c - facts about torch's tensors that DLPack does not give.
 *
 * Owns which object keeps a tensor's memory in place, whether that memory has the tensor's numbers, and which tensors
 * have no numbers. Must not know DLPack, or what a tensor is used for. Invariants: our calls run between
 * core_torch_enter and core_torch_leave, so that no TorchFunctionMode and no class with __torch_function__ sees them.
 * This file does not import torch: if there is a tensor of torch, the host has already imported it.
 */
#include "tensor.h"

#include <string.h>

/* Returns torch's context manager DisableTorchFunction (a type, borrowed); NULL without an exception if torch has
 * none. */
static PyObject *silence(void)
{
    static PyObject *found;
    if (found == NULL) {
        PyObject *name = PyUnicode_FromString("torch._C");
        PyObject *module = name != NULL ? PyImport_GetModule(name) : NULL;
        found = module != NULL ? PyObject_GetAttrString(module, "DisableTorchFunction") : NULL;
        Py_XDECREF(name);
        Py_XDECREF(module);
        PyErr_Clear();
    }
    return found;
}

PyObject *core_torch_enter(PyObject *tensor)
{
    static PyObject *watched, *enter;
    if (core_of_type(tensor, &watched, "__torch_function__") == NULL)
        return NULL;
    PyObject *type = silence(), *silent = type != NULL ? PyObject_CallNoArgs(type) : NULL;
    PyObject *entered = silent != NULL && core_of_type(silent, &enter, "__enter__") != NULL
                            ? PyObject_CallMethodNoArgs(silent, enter)
                            : NULL;
    if (entered == NULL) { /* if this version of torch lacks it, function modes see our calls, which is better than no
                              call */
        Py_CLEAR(silent);
        PyErr_Clear();
    }
    Py_XDECREF(entered);
    return silent;
}

void core_torch_leave(PyObject *silent)
{
    if (silent == NULL)
        return;
    const CoreRaised raised = core_put_aside();
    PyObject *left = PyObject_CallMethod(silent, "__exit__", "OOO", Py_None, Py_None, Py_None);
    Py_XDECREF(left);
    Py_DECREF(silent);
    core_put_back(raised);
}

static PyObject *storage_name;

bool core_torch_is_tensor(PyObject *object) { return core_of_type(object, &storage_name, "untyped_storage") != NULL; }

PyObject *core_torch_owner(PyObject *tensor)
{
    return core_torch_is_tensor(tensor) ? PyObject_CallMethodNoArgs(tensor, storage_name) : Py_NewRef(tensor);
}

PyObject *core_torch_host_copy(PyObject *tensor)
{
    PyObject *silent = core_torch_enter(tensor);
    PyObject *helper = PyImport_ImportModule("brick_agent._torch.packed_weights");
    PyObject *copy = helper != NULL ? PyObject_CallMethod(helper, "host_copy", "O", tensor) : NULL;
    Py_XDECREF(helper);
    core_torch_leave(silent);
    return copy;
}

int core_torch_in_memory(PyObject *tensor)
{
    static PyObject *name;
    if (core_of_type(tensor, &name, "is_neg") == NULL)
        return 0;
    PyObject *is = PyObject_CallMethodNoArgs(tensor, name);
    if (is == Py_True)
        PyErr_SetString(PyExc_ValueError, "brick_agent: a tensor that is stored with the other sign (is_neg) has no "
                                          "fingerprint, expected tensor.resolve_neg()");
    Py_XDECREF(is);
    return PyErr_Occurred() ? -1 : 0;
}

bool core_torch_fake(PyObject *tensor)
{
    static PyObject *module, *watched;
    static const char fakes[] = "torch._subclasses."; /* FakeTensor, FunctionalTensor */
    /* The exception says why the tensor could not be held. A look-up would clear the exception. */
    const CoreRaised raised = core_put_aside();
    const bool is_watched = core_of_type(tensor, &watched, "__torch_function__") != NULL;
    PyObject *of = is_watched ? core_of_type(tensor, &module, "__module__") : NULL;
    const char *text = of != NULL && PyUnicode_Check(of) ? PyUnicode_AsUTF8(of) : NULL;
    core_put_back(raised);
    return text != NULL && strncmp(text, fakes, sizeof fakes - 1) == 0;
}
