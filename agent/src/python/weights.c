/* python/weights.c - weights(): watches a model's tensors.
 *
 * Owns which tensors of a mapping or a module are watched, and how they are held. Must not know when a tensor is read
 * or where it is recorded (writer/weights.c). Invariants: only an unknown argument raises (in strict mode, any error);
 * watching keeps no tensor of a module alive; no tensor is held between two slices.
 */
#include "weights.h"
#include "arguments.h"
#include "context_key.h"
#include "methods.h"
#include "module.h"
#include "opening.h"
#include "tensor.h"

#include "brick_weights.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

const char core_weights_doc[] = PyDoc_STR(
"weights(tensors, /, *, rescan_s=None, generation=None, share=0.005)\n--\n\n"
"Record the fingerprints of a model's parameters, now and again, so that they can be compared with other workers.\n\n"
"tensors: a mapping of names to what fingerprint() takes, or a torch module with its parameters and buffers. This call\n"
"reads all of them. Slices of at most 200 us at the ends of steps (`with step(...)`; a packed weight is read in one piece,\n"
"which may take longer) read them again: when a daemon asks for it, and rescan_s seconds after the last time began; by\n"
"default 300 s, or 200 times what that took, if it is longer.\n"
"share: the largest part of the time for slices. A later call replaces an earlier one: call it again after an update.\n"
"generation: an integer or a string, the same in all workers to compare; by default the number of such calls. Later\n"
"checksums are compared within one generation only.\n\n"
"A mapping is kept, and each slice looks its tensors up; of a module only weak references to its submodules are kept.\n"
"Tensors of torch on a CUDA device are copied to the host, one at a time, by this call and when a daemon asks for it.\n\n"
"Never raises. A tensor that cannot be read (on another device, sparse, of an unknown type) is counted, and the first one\n"
"reported once. A tensor that changes while it is read has a fingerprint of neither state. A module's buffers named cache\n"
"(`k_cache`) are left out, because requests write to them; for other such buffers give a mapping without them.\n\n"
">>> from array import array\n"
">>> brick.weights({\"model.layers.0.up.weight\": array(\"f\", [1, 2])}, rescan_s=3600)\n");

/* Where a tensor is found. */
struct entry {
    PyObject *name;  /* the tensor's key, in a mapping */
    CorePlace place; /* the tensor's place in a module; `of` is NULL: none */
    PyObject *read;  /* called to get it, or NULL */
};

struct CoreWeights {
    struct brick_weights weights;
    unsigned users; /* running calls that use it */
    PyThreadState *loader; /* the thread of a running load; in a forked child it may be the parent's */
    uint64_t generation;
    PyObject *mapping; /* NULL: a module's */
    PyObject *structure; /* the structure of a torch module, or NULL */
    struct entry *entries;
    PyObject *object; /* currently held */
    PyObject *unpacked; /* the readings for that number, until all are known */
    uint64_t unpacked_of;
    CoreTensor held;
    PyThreadState *unlocked;
    char why[200]; /* why the first unreadable one could not be read */
};

/* ---- holding -------------------------------------------------------------- */

static bool is_interrupt(void) { return !PyErr_ExceptionMatches(PyExc_Exception); }

static void forget_unpacked(CoreWeights *w)
{
    core_let_go(w->unpacked);
    w->unpacked = NULL;
}

/* Unpacking or copying one takes long, so it is done once, and not in each slice. Takes over what was read. */
static PyObject *unpacked(CoreWeights *w, uint64_t number, PyObject *read)
{
    forget_unpacked(w);
    w->unpacked = read;
    w->unpacked_of = number;
    return Py_XNewRef(read);
}

/* A new reference; NULL if the tensor is gone, or with an exception set. */
static PyObject *find(CoreWeights *w, uint64_t number)
{
    const struct entry *e = &w->entries[number];
    if (w->unpacked != NULL && w->unpacked_of == number)
        return Py_NewRef(w->unpacked);
    if (e->read != NULL) {
        forget_unpacked(w);
        PyObject *read = PyObject_CallNoArgs(e->read);
        return read != Py_None ? unpacked(w, number, read) : NULL;
    }
    if (w->mapping != NULL) {
        PyObject *found = PyObject_GetItem(w->mapping, e->name);
        if (found == NULL && PyErr_ExceptionMatches(PyExc_KeyError))
            PyErr_Clear();
        return found;
    }
    if (e->place.of != NULL)
        return core_place_find(&e->place);
    PyErr_SetString(PyExc_ValueError, "brick_agent: the module did not return all of its tensors");
    return NULL;
}

/* Stores why the first one cannot be read, and clears the exception, but not an interrupt. */
static void note_why(CoreWeights *w)
{
    const CoreRaised raised = core_put_aside();
    PyObject *message = raised.value != NULL ? PyObject_Str(raised.value) : NULL;
    PyObject *ascii = message != NULL ? PyObject_ASCII(message) : NULL; /* ASCII has no line break */
    const char *text = ascii != NULL ? PyUnicode_AsUTF8(ascii) : NULL;
    snprintf(w->why, sizeof w->why, "%s", text != NULL ? text : "it raised");
    if (PyErr_Occurred() && !is_interrupt())
        PyErr_Clear();
    core_let_go(message);
    core_let_go(ascii);
    core_forget(raised);
}

static bool is_load(const CoreWeights *w) { return w->loader == PyThreadState_Get(); }

static enum brick_held failed(CoreWeights *w)
{
    core_let_go(w->object);
    w->object = NULL;
    if (!PyErr_Occurred())
        return BRICK_GONE;
    if (is_interrupt())
        return BRICK_NOT_NOW;
    if (is_load(w) && w->why[0] == '\0')
        note_why(w);
    else
        PyErr_Clear();
    return PyErr_Occurred() ? BRICK_NOT_NOW : BRICK_UNREADABLE;
}

/* Whether the object, which could not be held, can be copied from its device; then no exception is set any more. */
static bool can_be_copied(const CoreWeights *w)
{
    const CoreRaised refused = core_put_aside(); /* a look-up would drop it */
    if (w->held.is_on_device && core_torch_is_tensor(w->object)) {
        core_forget(refused);
        return true;
    }
    core_put_back(refused);
    return false;
}

/* Copies the object from its device and holds the copy. Returns 0, or -1 with an exception set. */
static int hold_copy(CoreWeights *w, uint64_t number)
{
    forget_unpacked(w); /* never two at once */
    PyObject *copy = core_torch_host_copy(w->object);
    if (copy == NULL)
        return -1;
    Py_SETREF(w->object, unpacked(w, number, copy));
    return core_tensor_hold(w->object, &w->held);
}

static enum brick_held hold(void *host, uint64_t number, struct brick_tensor *tensor)
{
    CoreWeights *w = host;
    w->unlocked = NULL; /* a fork may have left the parent's here */
    if (is_load(w) && PyErr_CheckSignals() != 0) /* the host gets the exception of its signal handler */
        return BRICK_NOT_NOW;
    w->object = find(w, number);
    if (w->object == Py_NotImplemented) {
        Py_CLEAR(w->object);
        forget_unpacked(w);
        return BRICK_SAME;
    }
    if (w->object == NULL)
        return failed(w);
    if (core_tensor_hold(w->object, &w->held) != 0) {
        if (!can_be_copied(w))
            return failed(w);
        w->weights.each[number].seldom = 1;
        if (!w->weights.seldom) {
            Py_CLEAR(w->object);
            return BRICK_SELDOM;
        }
        if (hold_copy(w, number) != 0)
            return failed(w);
    }
    *tensor = w->held.tensor;
    if (is_load(w) && core_tensor_large(tensor))
        w->unlocked = PyEval_SaveThread();
    return BRICK_HELD;
}

static void release(void *host, uint64_t number)
{
    CoreWeights *w = host;
    if (w->unlocked != NULL) {
        PyEval_RestoreThread(w->unlocked);
        w->unlocked = NULL;
    }
    core_tensor_release(&w->held);
    Py_CLEAR(w->object);
}

/* ---- watching ------------------------------------------------------------- */

static void put_away(CoreWeights *w)
{
    for (uint64_t n = 0; n < w->weights.count; n++) {
        core_let_go(w->entries[n].name);
        core_let_go(w->entries[n].read);
        core_place_put_away(&w->entries[n].place);
    }
    forget_unpacked(w);
    core_let_go(w->mapping);
    core_let_go(w->structure);
    PyMem_Free(w->entries);
    PyMem_Free(w->weights.each);
    PyMem_Free(w);
}

/* The last user of replaced weights frees them. */
static void leave(CoreWeights *w)
{
    if (w->unpacked != NULL && (w->users > 1 || w->weights.read == w->unpacked_of))
        ; /* still being read */
    else
        forget_unpacked(w);
    if (--w->users == 0 && core_state.weights != w)
        put_away(w);
}

/* Freeing the old ones may run Python code, which must find no weights: no turn sees the new ones before they are
 * loaded. */
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

/* Adds one tensor; takes over the place. */
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

/* Returns whether requests write to it: "cache" is a word of its name's last part, as in "layers.0.attn.k_cache". */
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

/* Returns a module's packed weights, and the names of tensors that are read in parts instead: two new references, or
 * NULL if torch is not loaded or does not know them. */
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
    if (PyErr_Occurred() && !is_interrupt() && !PyErr_ExceptionMatches(PyExc_MemoryError))
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

/* `method` lists the tensors in this table of each part. If a module raises, one unreadable tensor replaces the
 * remaining ones. */
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
    if (is_interrupt() || PyErr_ExceptionMatches(PyExc_MemoryError))
        return -1;
    PyErr_Clear();
    PyObject *name = PyUnicode_FromString(method);
    wrong = name != NULL ? watch(w, room, name, (CorePlace){.of = NULL}) : -1;
    Py_XDECREF(name);
    return wrong;
}

/* Returns the object that detects changes of the module: a new reference; None if it is not torch's; NULL if
 * unknown. */
static PyObject *structure_of(PyObject *module)
{
    PyObject *helper = PyImport_ImportModule("brick_agent._torch.model_structure");
    PyObject *found = helper != NULL ? PyObject_CallMethod(helper, "structure", "O", module) : NULL;
    Py_XDECREF(helper);
    if (PyErr_Occurred() && !is_interrupt() && !PyErr_ExceptionMatches(PyExc_MemoryError))
        PyErr_Clear();
    return found;
}

static int look(void *host);

static int watch_module(CoreWeights *w, uint64_t *room, PyObject *module)
{
    w->structure = structure_of(module);
    if (PyErr_Occurred())
        return -1;
    w->weights.look = w->structure != NULL && w->structure != Py_None ? look : NULL;
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

static CoreWeights *watched(PyObject *tensors)
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
        put_away(w);
        return NULL;
    }
    w->weights.hold = hold;
    w->weights.release = release;
    w->weights.host = w;
    return w;
}

/* ---- a model that changes ------------------------------------------------- */

/* Takes over the data of equal packed weights, because unpacking takes long. Returns 0, or -1 with an exception set. */
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

/* Replaces the weights by those of the changed model. */
static int follow_model(CoreWeights *old, PyObject *model)
{
    CoreWeights *w = watched(model);
    if (w == NULL)
        return -1;
    if (take_over(w, old) != 0) {
        put_away(w);
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
        put_away(w); /* another load has replaced it */
    }
    return 0;
}

static int look(void *host)
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
    if (PyErr_Occurred() && is_interrupt())
        return 0;
    PyErr_Clear();
    return 1;
}

/* ---- load ----------------------------------------------------------------- */

/* Warns of tensors without a fingerprint, and names the first one. Returns 0, or in strict mode -1 with an exception
 * set. */
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
             w->why[0] != '\0' ? w->why : "it cannot be read");
    Py_XDECREF(name);
    PyErr_Clear();
    if (core_strict()) {
        PyErr_SetString(PyExc_ValueError, line);
        return -1;
    }
    core_warn(line);
    return 0;
}

/* Warns that the argument is neither a mapping nor a module; an exception is set. */
static int warn_unknown(void)
{
    static bool warned;
    if (core_strict() || is_interrupt())
        return -1;
    PyErr_Clear();
    if (!warned)
        core_warn("brickd: no weights are watched: expected a mapping of names to tensors, or a torch module\n");
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

/* Sets *number if the value is in (0, most]. Returns 0, or -1 with an exception set. */
static int to_positive(PyObject *value, double most, double *number, const char *wanted)
{
    const double given = PyFloat_AsDouble(value);
    if (given > 0 && given <= most) {
        *number = given;
        return 0;
    }
    if (PyErr_Occurred() && is_interrupt())
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
    CoreWeights *w = watched(tensors);
    if (w == NULL)
        return warn_unknown() == 0 ? Py_NewRef(Py_None) : NULL;
    w->weights.rescan_ns = rescan == Py_None ? BRICK_RESCAN_AUTO : (uint64_t)(rescan_s * 1e9);
    w->weights.share_ppm = share * 1e6 < 1 ? 1 : (uint64_t)(share * 1e6);
    w->generation = generation;
    w->weights.generation = has_generation ? &w->generation : NULL;
    replace(w);
    return load(w) == 0 ? Py_NewRef(Py_None) : NULL;
}
