/* python/module.c - finds the tensors of a torch module.
 *
 * Owns which submodule has a tensor, and how to find the tensor there again. Must not know what the tensor is used for.
 * Invariants: a place keeps neither a submodule nor a tensor alive. A place has a weak reference to the tensor only if
 * the tensor's submodule is unknown: torch cannot swap the contents of two tensors if one has a weak reference, and the
 * conversion or loading of some models swaps them.
 */
#include "module.h"
#include "tensor.h"

PyObject *core_module_parts(PyObject *module)
{
    PyObject *parts = PyDict_New();
    PyObject *pairs = parts != NULL ? PyObject_CallMethod(module, "named_modules", NULL) : NULL;
    if (pairs != NULL)
        PyDict_MergeFromSeq2(parts, pairs, 1);
    core_let_go(pairs);
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception) && !PyErr_ExceptionMatches(PyExc_MemoryError))
        PyErr_Clear(); /* the submodules are unknown */
    if (PyErr_Occurred()) {
        core_let_go(parts);
        return NULL;
    }
    return parts;
}

/* Returns the tensor in a table of a submodule: a new reference. Returns NULL if there is none, or with an exception
 * set. */
static PyObject *tensor_in(PyObject *part, const char *table, PyObject *key)
{
    PyObject *all = core_attribute(part, table);
    PyObject *found = all != NULL ? PyObject_GetItem(all, key) : NULL;
    core_let_go(all);
    if (found == NULL && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_KeyError))
        PyErr_Clear();
    if (found == Py_None)
        Py_CLEAR(found);
    return found;
}

/* Returns the submodule that has a tensor (borrowed), and *key (a new reference). Returns NULL if the submodule is
 * unknown, or with an exception set. */
static PyObject *part_with(PyObject *parts, const char *table, PyObject *name, PyObject *tensor, PyObject **key)
{
    if (!PyUnicode_Check(name))
        return NULL;
    const Py_ssize_t length = PyUnicode_GET_LENGTH(name), dot = PyUnicode_FindChar(name, '.', 0, length, -1);
    PyObject *prefix = PyUnicode_Substring(name, 0, dot > 0 ? dot : 0);
    PyObject *part = prefix != NULL ? PyDict_GetItemWithError(parts, prefix) : NULL;
    *key = part != NULL ? PyUnicode_Substring(name, dot + 1, length) : NULL;
    PyObject *found = *key != NULL ? tensor_in(part, table, *key) : NULL;
    Py_XDECREF(prefix);
    core_let_go(found);
    return found != NULL && found == tensor ? part : NULL;
}

int core_place_of(PyObject *parts, const char *table, PyObject *name, PyObject *tensor, CorePlace *place)
{
    PyObject *key = NULL, *part = part_with(parts, table, name, tensor, &key);
    *place = (CorePlace){.table = table};
    if (part != NULL)
        place->of = PyWeakref_NewRef(part, NULL);
    if (place->of != NULL)
        place->key = Py_NewRef(key);
    core_let_go(key);
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    PyErr_Clear();
    if (place->of == NULL)
        place->of = PyWeakref_NewRef(tensor, NULL);
    if (place->of == NULL) {
        PyErr_Clear();
        place->of = Py_NewRef(tensor);
    }
    return 0;
}

PyObject *core_place_find(const CorePlace *place)
{
    PyObject *of = PyWeakref_Check(place->of) ? PyWeakref_GetObject(place->of) : place->of;
    if (of == Py_None)
        return NULL;
    Py_INCREF(of);
    if (place->key == NULL)
        return of;
    PyObject *found = tensor_in(of, place->table, place->key);
    core_let_go(of);
    return found;
}

void core_place_put_away(CorePlace *place)
{
    core_let_go(place->of);
    core_let_go(place->key);
}
