/* python/weights.c - weights(): watches a model's tensors.
 *
 * Owns the watched tensors: which calls use them, how they are replaced when the model changes, and the warnings. Must
 * not know when a tensor is read or where it is recorded (writer/weights.c). Invariant: only an unknown argument raises
 * (in strict mode, any error).
 */
#include "weights.h"
#include "arguments.h"
#include "context_key.h"
#include "methods.h"
#include "opening.h"
#include "weights_watched.h"

#include <stdio.h>

const char core_weights_doc[] = PyDoc_STR(
"weights(tensors, /, *, rescan_s=None, generation=None, share=0.005)\n--\n\n"
"Record the fingerprints of a model's parameters, now and again, so that they can be compared with other workers.\n\n"
"tensors: a mapping of names to tensors (as for fingerprint()), or a torch module with its parameters and buffers. This\n"
"call reads all of them. They are read again when a daemon requests it, and rescan_s seconds after the last scan began; by\n"
"default after 300 s, or after 200 times the duration of the last scan, if that is longer. A scan runs in slices of at\n"
"most 200 us at the ends of steps (`with step(...)`); a packed weight is read in one piece, which may take longer.\n"
"share: the largest part of the time for slices. generation: an integer or a string, the same in all workers to compare;\n"
"by default the number of weights() calls. Only checksums of the same generation are compared. A later call replaces an\n"
"earlier one: call it again after an update.\n\n"
"A mapping is kept, and each slice looks its tensors up. Of a module, only weak references to its submodules are kept.\n"
"Tensors of torch on a CUDA device are copied to the host, one at a time, by this call and when a daemon requests it.\n\n"
"Never raises. A tensor that cannot be read (on another device, sparse, of an unknown type) is counted, and the first one\n"
"is reported once. If a tensor changes while it is read, its fingerprint matches neither state. A module's buffers named\n"
"cache (`k_cache`) are left out, because requests write to them; if requests write to other buffers too, pass a mapping\n"
"without these.\n\n"
">>> from array import array\n"
">>> brick.weights({\"model.layers.0.up.weight\": array(\"f\", [1, 2])}, rescan_s=3600)\n");

/* ---- users ---------------------------------------------------------------- */

/* Ends a call's use of the weights. If the weights were replaced, the last call that uses them frees them. */
static void leave(CoreWeights *w)
{
    if (w->unpacked != NULL && (w->users > 1 || w->weights.read == w->unpacked_of))
        ; /* keep the unpacked tensor, which is still being read */
    else
        core_weights_forget_unpacked(w);
    if (--w->users == 0 && core_state.weights != w)
        core_weights_put_away(w);
}

/* Replaces the watched weights. Freeing the old weights may run Python code, and a turn in this code must find no
 * weights: no turn may see the new weights before they are loaded. */
static void replace(CoreWeights *w)
{
    CoreWeights *old;
    while ((old = core_state.weights) != NULL) {
        core_state.weights = NULL;
        __atomic_store_n(&old->weights.stopped, 1, __ATOMIC_RELAXED);
        old->users++;
        leave(old);
    }
    core_state.weights = w;
}

/* ---- a model that changes ------------------------------------------------- */

/* Takes over the last readings of packed weights that are unchanged, because it takes long to unpack them again.
 * Returns 0, or -1 with an exception set. */
static int take_over(CoreWeights *w, const CoreWeights *old)
{
    PyObject *numbers = PyDict_New();
    int wrong = numbers == NULL ? -1 : 0;
    for (uint64_t n = 0; wrong == 0 && n < old->weights.count; n++) {
        PyObject *number = old->entries[n].read != NULL ? PyLong_FromUnsignedLongLong(n) : NULL;
        wrong = number != NULL ? PyDict_SetItem(numbers, old->entries[n].name, number) : PyErr_Occurred() ? -1 : 0;
        Py_XDECREF(number);
    }
    for (uint64_t n = 0; wrong == 0 && n < w->weights.count; n++) {
        struct entry *mine = &w->entries[n];
        PyObject *number = mine->read != NULL ? PyDict_GetItemWithError(numbers, mine->name) : NULL;
        const uint64_t was = number != NULL ? PyLong_AsUnsignedLongLong(number) : 0;
        const int same = number != NULL ? PyObject_RichCompareBool(mine->read, old->entries[was].read, Py_EQ) : 0;
        wrong = same < 0 || PyErr_Occurred() ? -1 : 0;
        if (wrong == 0 && same) {
            Py_SETREF(mine->read, Py_NewRef(old->entries[was].read));
            w->weights.each[n].ticks = old->weights.each[was].ticks;
            w->weights.each[n].taken = old->weights.each[was].taken;
            w->weights.each[n].gone = old->weights.each[was].gone;
            w->weights.gone += old->weights.each[was].gone;
        }
    }
    Py_XDECREF(numbers);
    return wrong;
}

static int follow_model(CoreWeights *old, PyObject *model)
{
    CoreWeights *w = core_weights_listed(model);
    if (w == NULL)
        return -1;
    if (take_over(w, old) != 0) {
        core_weights_put_away(w);
        return -1;
    }
    w->weights.rescan_ns = old->weights.rescan_ns;
    w->weights.share_ppm = old->weights.share_ppm;
    w->generation = old->generation;
    w->weights.generation = old->weights.generation != NULL ? &w->generation : NULL;
    if (core_state.weights == old) {
        brick_weights_go_on(&w->weights, &old->weights);
        replace(w);
    } else {
        core_weights_put_away(w); /* another load has replaced these weights */
    }
    return 0;
}

int core_weights_look(void *host)
{
    CoreWeights *w = host;
    PyObject *model = PyObject_CallMethod(w->structure, "look", NULL);
    if (model == Py_None) {
        Py_DECREF(model);
        return 0;
    }
    if (model != NULL && model != Py_False)
        follow_model(w, model);
    core_let_go(model);
    if (PyErr_Occurred() && core_is_interrupt())
        return 0;
    PyErr_Clear();
    return 1;
}

/* ---- load ----------------------------------------------------------------- */

/* Warns of tensors without a fingerprint, and names the first such tensor. Returns 0, or in strict mode -1 with an
 * exception set. */
static int warn_unread(const CoreWeights *w)
{
    static bool warned;
    const struct brick_weights *all = &w->weights;
    uint64_t unread = 0, first = 0;
    for (uint64_t n = all->read; n-- > 0;)
        if (all->each[n].taken.dtype == 0 && !all->each[n].gone) {
            first = n;
            unread++;
        }
    if (unread == 0 || (warned && !core_strict()))
        return 0;
    warned = true;
    char line[600];
    PyObject *name = PyObject_ASCII(w->entries[first].name);
    const char *text = name != NULL ? PyUnicode_AsUTF8(name) : NULL;
    snprintf(line, sizeof line, "brickd: %llu of %llu weights have no fingerprint; the first, %.300s: %s\n",
             (unsigned long long)unread, (unsigned long long)all->count, text != NULL ? text : "?",
             w->why[0] != '\0' ? w->why : "the tensor cannot be read");
    Py_XDECREF(name);
    PyErr_Clear();
    if (core_strict()) {
        PyErr_SetString(PyExc_ValueError, line);
        return -1;
    }
    core_warn(line);
    return 0;
}

static int warn_unknown(PyObject *given)
{
    static bool warned;
    if (core_strict() || core_is_interrupt())
        return -1;
    PyErr_Clear();
    char line[200];
    snprintf(line, sizeof line,
             "brickd: no weights are watched: expected a mapping of names to tensors, or a torch module, not a value of type %.60s\n",
             Py_TYPE(given)->tp_name);
    if (!warned)
        core_warn(line);
    warned = true;
    return 0;
}

static int load(CoreWeights *w)
{
    w->users++;
    w->loader = PyThreadState_Get();
    brick_weights_load(&w->weights);
    w->loader = NULL;
    const int wrong = PyErr_Occurred() ? -1 : warn_unread(w);
    leave(w);
    return wrong;
}

int core_weights_turn(void)
{
    CoreWeights *w = core_state.weights;
    w->users++;
    brick_weights_turn(&w->weights);
    leave(w);
    return PyErr_Occurred() ? -1 : 0;
}

static int to_positive(PyObject *value, double most, double *number, const char *wanted)
{
    const double given = PyFloat_AsDouble(value);
    if (given > 0 && given <= most) {
        *number = given;
        return 0;
    }
    if (PyErr_Occurred() && core_is_interrupt())
        return -1;
    return core_complain(wanted, value);
}

PyObject *core_weights(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"", "rescan_s", "generation", "share", NULL};
    PyObject *tensors, *rescan = Py_None, *given_generation = Py_None, *part = NULL;
    double rescan_s = 0, share = 0.005;
    uint64_t generation;
    bool has_generation;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|$OOO:weights", names, &tensors, &rescan, &given_generation, &part))
        return NULL;
    if (brick_is_off())
        Py_RETURN_NONE;
    if ((rescan != Py_None && to_positive(rescan, 1e9, &rescan_s, "rescan_s must be a number of seconds above 0, or None") != 0)
        || (part != NULL && to_positive(part, 1, &share, "share must be above 0 and at most 1") != 0)
        || core_number(given_generation, &generation, &has_generation, "a generation must be an integer or a string") != 0)
        return NULL;
    core_note_program();
    if (core_open_once() != 0)
        return NULL;
    if (brick_state() != BRICK_ON)
        Py_RETURN_NONE;
    core_watch();
    CoreWeights *w = core_weights_listed(tensors);
    if (w == NULL)
        return warn_unknown(tensors) == 0 ? Py_NewRef(Py_None) : NULL;
    w->weights.rescan_ns = rescan == Py_None ? BRICK_RESCAN_AUTO : (uint64_t)(rescan_s * 1e9);
    w->weights.share_ppm = share * 1e6 < 1 ? 1 : (uint64_t)(share * 1e6);
    w->generation = generation;
    w->weights.generation = has_generation ? &w->generation : NULL;
    replace(w);
    return load(w) == 0 ? Py_NewRef(Py_None) : NULL;
}
