/* python/weights_list.c - lists the tensors of a mapping or of a torch module.
 *
 * Owns which tensors are watched, and which are left out. Must not know when or how a tensor is read. Invariant: the
 * list keeps no tensor of a module alive.
 */
#include "weights_watched.h"
#include "arguments.h"
#include "methods.h"

#include <string.h>
#include <strings.h>

void core_weights_put_away(CoreWeights *w)
{
    for (uint64_t n = 0; n < w->weights.count; n++) {
        core_let_go(w->entries[n].name);
        core_let_go(w->entries[n].read);
        core_place_put_away(&w->entries[n].place);
    }
    core_weights_forget_unpacked(w);
    core_let_go(w->mapping);
    core_let_go(w->structure);
    PyMem_Free(w->entries);
    PyMem_Free(w->weights.each);
    PyMem_Free(w);
}

/* Adds one tensor. The list now owns the references in `place`. */
static int watch(CoreWeights *w, uint64_t *room, PyObject *name, CorePlace place)
{
    uint64_t *count = &w->weights.count;
    if (*count == *room) {
        const uint64_t more = *room * 2 + 64;
        struct entry *entries = PyMem_Realloc(w->entries, more * sizeof *entries);
        if (entries != NULL)
            w->entries = entries;
        struct brick_weight *each = entries != NULL ? PyMem_Realloc(w->weights.each, more * sizeof *each) : NULL;
        if (each == NULL) {
            core_place_put_away(&place);
            PyErr_NoMemory();
            return -1;
        }
        w->weights.each = each;
        *room = more;
    }
    PyObject *text = core_text(name);
    Py_ssize_t length;
    const char *utf8 = text != NULL ? PyUnicode_AsUTF8AndSize(text, &length) : NULL;
    if (utf8 == NULL) {
        Py_XDECREF(text);
        core_place_put_away(&place);
        return -1;
    }
    brick_weight_named(&w->weights.each[*count], utf8, (size_t)length);
    w->entries[(*count)++] = (struct entry){.name = Py_NewRef(name), .place = place};
    Py_DECREF(text);
    return 0;
}

static int watch_mapping(CoreWeights *w, uint64_t *room, PyObject *mapping)
{
    PyObject *names = PyMapping_Keys(mapping);
    int wrong = names == NULL ? -1 : 0;
    w->mapping = Py_NewRef(mapping);
    for (Py_ssize_t n = 0; wrong == 0 && n < PyList_GET_SIZE(names); n++)
        wrong = watch(w, room, PyList_GET_ITEM(names, n), (CorePlace){.of = NULL});
    core_let_go(names);
    return wrong;
}

#define BUFFERS "_buffers"

/* Returns whether requests write to the tensor: "cache" is a word of its name's last part, as in "layers.0.k_cache". */
static bool is_cache(PyObject *name)
{
    const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL, *dot = text != NULL ? strrchr(text, '.') : NULL;
    PyErr_Clear();
    for (const char *word = dot != NULL ? dot + 1 : text; word != NULL && *word != '\0';) {
        const size_t length = strcspn(word, "_0123456789");
        if (length == 5 && strncasecmp(word, "cache", length) == 0)
            return true;
        word += length + (word[length] != '\0');
    }
    return false;
}

/* Returns a module's packed weights, and the names of the tensors that these replace: two new references, or NULL if
 * torch is not loaded or cannot list them. */
static void packed_ones(PyObject *module, PyObject **found, PyObject **replaced)
{
    *found = *replaced = NULL;
    PyObject *helper = PyImport_ImportModule("brick_agent._torch.packed_weights");
    PyObject *both = helper != NULL ? PyObject_CallMethod(helper, "further", "O", module) : NULL;
    if (both != NULL && PyArg_ParseTuple(both, "O!O!", &PyList_Type, found, &PyList_Type, replaced)) {
        Py_INCREF(*found);
        Py_INCREF(*replaced);
    }
    Py_XDECREF(both);
    Py_XDECREF(helper);
    if (PyErr_Occurred() && !core_is_interrupt() && !PyErr_ExceptionMatches(PyExc_MemoryError))
        PyErr_Clear();
}

static int watch_packed(CoreWeights *w, uint64_t *room, PyObject *found)
{
    int wrong = 0;
    for (Py_ssize_t n = 0; wrong == 0 && n < PyList_GET_SIZE(found); n++) {
        PyObject *name, *read;
        int takes_long;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(found, n), "OOp", &name, &read, &takes_long))
            return -1;
        wrong = watch(w, room, name, (CorePlace){.of = NULL});
        if (wrong == 0) {
            w->entries[w->weights.count - 1].read = Py_NewRef(read);
            w->weights.each[w->weights.count - 1].seldom = (uint32_t)takes_long;
        }
    }
    return wrong;
}

static int watch_pair(CoreWeights *w, uint64_t *room, PyObject *parts, PyObject *replaced, const char *table,
                      PyObject *pair)
{
    PyObject *two = PySequence_Tuple(pair);
    if (two == NULL || PyTuple_GET_SIZE(two) != 2) {
        PyErr_SetString(PyExc_ValueError, "brick_agent: a module's tensors are pairs of a name and a tensor");
        Py_XDECREF(two);
        return -1;
    }
    PyObject *name = PyTuple_GET_ITEM(two, 0);
    const int is_replaced = replaced != NULL ? PySequence_Contains(replaced, name) : 0;
    const bool is_left_out = is_replaced != 0 || (strcmp(table, BUFFERS) == 0 && is_cache(name));
    CorePlace place;
    int wrong = is_replaced < 0 ? -1 : is_left_out ? 0 : core_place_of(parts, table, name, PyTuple_GET_ITEM(two, 1), &place);
    if (wrong == 0 && !is_left_out)
        wrong = watch(w, room, name, place);
    core_let_go(two);
    return wrong;
}

/* Adds the tensors that the module's `method` lists. Each tensor is in this `table` of its submodule. If the method
 * raises, one unreadable tensor stands for the remaining ones. */
static int watch_kind(CoreWeights *w, uint64_t *room, PyObject *module, PyObject *parts, PyObject *replaced,
                      const char *method, const char *table)
{
    PyObject *pairs = PyObject_CallMethod(module, method, NULL), *pair;
    PyObject *iterator = pairs != NULL ? PyObject_GetIter(pairs) : NULL;
    int wrong = iterator == NULL ? -1 : 0;
    while (wrong == 0 && (pair = PyIter_Next(iterator)) != NULL) {
        wrong = watch_pair(w, room, parts, replaced, table, pair);
        core_let_go(pair);
    }
    core_let_go(pairs);
    core_let_go(iterator);
    if (!PyErr_Occurred())
        return 0;
    if (core_is_interrupt() || PyErr_ExceptionMatches(PyExc_MemoryError))
        return -1;
    PyErr_Clear();
    PyObject *name = PyUnicode_FromString(method);
    wrong = name != NULL ? watch(w, room, name, (CorePlace){.of = NULL}) : -1;
    Py_XDECREF(name);
    return wrong;
}

/* Returns the object that detects changes of the module: a new reference. Returns None if the module is not a torch
 * module, and NULL if this cannot be found out. */
static PyObject *structure_of(PyObject *module)
{
    PyObject *helper = PyImport_ImportModule("brick_agent._torch.model_structure");
    PyObject *found = helper != NULL ? PyObject_CallMethod(helper, "structure", "O", module) : NULL;
    Py_XDECREF(helper);
    if (PyErr_Occurred() && !core_is_interrupt() && !PyErr_ExceptionMatches(PyExc_MemoryError))
        PyErr_Clear();
    return found;
}

static int watch_module(CoreWeights *w, uint64_t *room, PyObject *module)
{
    w->structure = structure_of(module);
    if (PyErr_Occurred())
        return -1;
    w->weights.look = w->structure != NULL && w->structure != Py_None ? core_weights_look : NULL;
    PyObject *parts = core_module_parts(module), *found, *replaced;
    if (parts == NULL)
        return -1;
    packed_ones(module, &found, &replaced);
    const int wrong = PyErr_Occurred() || watch_kind(w, room, module, parts, replaced, "named_parameters", "_parameters") != 0
                      || watch_kind(w, room, module, parts, replaced, "named_buffers", BUFFERS) != 0
                      || (found != NULL && watch_packed(w, room, found) != 0);
    core_let_go(found);
    core_let_go(replaced);
    core_let_go(parts);
    return wrong ? -1 : 0;
}

CoreWeights *core_weights_listed(PyObject *tensors)
{
    CoreWeights *w = PyMem_Calloc(1, sizeof *w);
    uint64_t room = 0;
    if (w == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    PyObject *method = core_attribute(tensors, "named_parameters");
    int wrong = PyErr_Occurred() ? -1 : 0;
    if (wrong == 0)
        wrong = method != NULL ? watch_module(w, &room, tensors) : watch_mapping(w, &room, tensors);
    core_let_go(method);
    if (wrong != 0) {
        core_weights_put_away(w);
        return NULL;
    }
    w->weights.hold = core_weights_hold;
    w->weights.release = core_weights_release;
    w->weights.host = w;
    return w;
}
