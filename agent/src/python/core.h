/* python/core.h - brick_agent._core: the writer's face in CPython, what its files share.
 *
 *   python/functions.c           the module and its functions
 *   python/types.c      its types
 *   python/trace.c    what the decorator makes of a function
 *   python/module_forward.c   what instrument() makes of a module's forward
 *   python/brick.c    names become handles; the segment opens
 *   python/span.c      the record path, and the amounts of a span
 *   python/deferred.c  work whose end is known later
 *   python/own_totals.c    what was recorded so far
 *   python/checksum.c   what a kernel's tensors came to
 *   python/weights.c   a model's parameters
 *   python/module.c    where a torch module keeps them
 *   python/fingerprint.c, python/tensor.c, python/dlpack.c  numbers of a tensor, and where it lies
 *   python/torch.c     what torch's tensors are asked beside that
 *   python/context_key.c       contexts become the writer's keys
 *   python/capsule.c    other extensions record through a capsule
 *
 * Knows nothing of shared memory. On the record path it calls no Python code,
 * allocates nothing and raises nothing.
 *
 * A `with` statement looks up __enter__ and __exit__ and calls what it finds.
 * A method would be bound for each lookup, an allocation twice per span; so
 * both names are descriptors that return an object which is there already: the
 * manager itself, whose call with no argument enters and with the three of an
 * exception leaves.
 *
 * Built per Python version: the thread state's context and vectorcall are not
 * in the limited API.
 */
#ifndef BRICK_CORE_H
#define BRICK_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "brick_agent.h"

#include <stdbool.h>
#include <stdint.h>

#define SPARE_SPANS 64 /* kept for the next `b(elements=n)`, which then allocates nothing */

typedef struct Span Span;

/* A handle: a name with its number. Interned, and immortal: at most as many as
 * the segment has names. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    uint32_t number; /* BRICK_UNNAMED until its first use: making a handle opens nothing */
    PyObject *name;
    PyObject *category; /* or None */
    Span *plain;        /* what `with b:` uses */
} Brick;

/* One `with`: a brick with its amounts. */
struct Span {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Brick *brick; /* immortal: not counted */
    struct brick_amounts did; /* of an engine's step: rows, valid rows */
    uint64_t step;
    bool has_step;
};

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    uint32_t layer;
} Layer;

typedef struct CoreWeights CoreWeights;

typedef struct {
    PyTypeObject *brick_type, *span_type, *layer_type, *manager_type, *traced_type, *traced_object_type, *watched_type,
        *fingerprint_type, *taken_type;
    PyObject *handles; /* dict: name -> Brick */
    PyObject *brick_function; /* brick_agent.brick, by which handles are pickled */
    PyObject *step;           /* "step": what a step without a kind is called, and the category of all */
    Brick *other;      /* what a name gets when there is no more room */
    Span *spare[SPARE_SPANS];
    int spares;
    CoreWeights *weights; /* those that are watched; or NULL */
    unsigned swept;
    unsigned refused; /* names refused before there was a counter for them */
    unsigned process; /* from 1: another number in each forked child, of what is told once in a process */
    char program[128];
} CoreState;

/* Process-wide, as the segment is. */
extern CoreState core_state;

/* ---- keys --------------------------------------------------------------- */

/* The context of the running task, greenlet or thread. A thread that has none
 * yet is given one, so that a greenlet started later is told from it. */
static inline const void *core_key(void)
{
    PyObject *context = PyThreadState_Get()->context;
    if (__builtin_expect(context == NULL, 0)) {
        PyObject *copy = PyContext_CopyCurrent();
        if (copy == NULL)
            PyErr_Clear();
        Py_XDECREF(copy);
        context = PyThreadState_Get()->context;
    }
    return context;
}

/* This thread is about to record: its references are given back when its state ends. */
void core_watch(void);
/* After a begin and after an end: references to keys, the thread's own end. */
void core_begun(unsigned outcome, const void *key);
PyObject *core_ended(unsigned outcome, const void *key); /* None; NULL in strict mode, for an end without a begin */

/* ---- spans -------------------------------------------------------------- */

Span *core_span_new(Brick *b);
void core_span_dealloc(PyObject *self);
/* One keyword of a span: 0, or -1 with an exception set. `category` is taken by span() alone. */
int core_span_keyword(Span *s, PyObject *name, PyObject *value, PyObject **category);
/* Said of a value that is counted as none: 0, in strict mode -1 with an exception set. */
int core_complain(const char *what, PyObject *value);
int core_amount(PyObject *value, uint64_t *amount);
int core_elapsed(PyObject *value, uint64_t *elapsed_ns);
int core_flops(PyObject *value, double *flops);
int core_to_layer(PyObject *value, uint32_t *layer);
/* An integer as it is, a string by its hash; None and what is neither: 0, and there is none. */
int core_number(PyObject *value, uint64_t *number, bool *has, const char *wanted);
#define CORE_STEP "a step must be an integer or a string"

PyObject *core_plain_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names);
PyObject *core_brick_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names);
PyObject *core_brick_start(PyObject *self, PyObject *unused);
PyObject *core_brick_stop(PyObject *self, PyObject *const *args, Py_ssize_t given, PyObject *names);
PyObject *core_brick_record(PyObject *self, PyObject *const *args, Py_ssize_t given, PyObject *names);
PyObject *core_brick_defer(PyObject *self, PyObject *const *args, Py_ssize_t given, PyObject *names);
PyObject *core_step_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names);
PyObject *core_layer_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names);

/* What a callable that is watched raised, put by while its span ends: the host's own comes before ours. */
typedef struct {
    PyObject *type, *value, *traceback;
} CoreRaised;

static inline CoreRaised core_put_by(PyObject *result)
{
    CoreRaised raised = {NULL, NULL, NULL};
    if (result == NULL)
        PyErr_Fetch(&raised.type, &raised.value, &raised.traceback);
    return raised;
}

/* What it returns, or NULL as it raised; or where the end of its span went `wrong`, with that exception set. */
static inline PyObject *core_given_back(PyObject *result, CoreRaised raised, bool wrong)
{
    if (raised.type != NULL) {
        PyErr_Clear();
        PyErr_Restore(raised.type, raised.value, raised.traceback);
    } else if (wrong) {
        Py_CLEAR(result);
    }
    return result;
}

/* ---- handles ------------------------------------------------------------ */

/* BRICKD_STRICT=1: what is else counted is raised. Asked only where something went wrong. */
bool core_strict(void);
/* Notes the program's name, while there is none and nothing is open: needed where Python cannot be asked. */
void core_note_program(void);
/* Every way to the segment leads through here; -1 with an exception set, in strict mode, when it failed. */
int core_open(struct brick_config *config);
int core_resolve(Brick *b);
/* The same without the interpreter lock: these raise nothing. */
void core_open_unlocked(void);
void core_resolve_unlocked(Brick *b);
/* A name that UTF-8 can hold; a new reference, or NULL with an exception set. */
PyObject *core_text(PyObject *value);
Brick *core_handle_new(PyObject *name, PyObject *category);
/* The handle of a name, made at its first mention: a borrowed reference. Out of
 * memory or of room for names it is "other", and the loss is counted. */
Brick *core_handle(PyObject *name, PyObject *category);

/* ---- what was recorded --------------------------------------------------- */

PyObject *core_totals(PyObject *module, PyObject *unused);

/* ---- deferred work ------------------------------------------------------ */

extern const char core_defer_doc[], core_finalize_doc[], core_pending_doc[];
PyObject *core_finalize(PyObject *module, PyObject *const *args, Py_ssize_t given, PyObject *names);
PyObject *core_pending(PyObject *module, PyObject *unused);
PyObject *core_deferred(PyObject *module, PyObject *args);

/* ---- the graph ---------------------------------------------------------- */

extern const char core_kernel_doc[], core_transfer_doc[], core_needs_doc[];
PyObject *core_kernel(PyObject *module, PyObject *const *args, Py_ssize_t given, PyObject *names);
PyObject *core_transfer(PyObject *module, PyObject *const *args, Py_ssize_t given, PyObject *names);
PyObject *core_needs(PyObject *module, PyObject *const *args, Py_ssize_t given, PyObject *names);
/* A brick that would be recorded now is a function of this file, which is UTF-8, and line. False: not told, for now. */
bool core_define(Brick *b, PyObject *file, unsigned long line);
PyObject *core_launched_by(PyObject *module, PyObject *args);
PyObject *core_task_ended(PyObject *module, PyObject *brick);
PyObject *core_tell(PyObject *module, PyObject *args);
PyObject *core_source_hash(PyObject *module, PyObject *text);

/* ---- tensors ------------------------------------------------------------ */

/* What is held of an array while its memory is looked at. */
typedef struct {
    struct brick_tensor tensor;
    int64_t shape[BRICK_DIMS_MAX], strides[BRICK_DIMS_MAX];
    PyObject *holds; /* DLPack's capsule, or the tensor; else the buffer is held */
    Py_buffer buffer;
} CoreTensor;

/* 0, or -1 with an exception set and nothing held. */
int core_tensor_hold(PyObject *array, CoreTensor *t);
void core_tensor_release(CoreTensor *t);

/* The same for what has no buffer. Where the reason is set why its buffer was refused, that is raised of what has neither. */
int core_dlpack_hold(PyObject *array, CoreTensor *t);
/* 0, or -1 with an exception set. */
int core_check_dims(long dims, const void *shape);

/* As numpy calls it, or who makes numpy a dtype of his own; NULL: it is none. */
const char *core_dtype_name(uint32_t dtype);
/* An attribute of that name: a new reference, or NULL, with an exception set where it is not only missing. */
PyObject *core_attribute(PyObject *object, const char *name);
/* What every object of a type has of that name: borrowed, or NULL without an exception. *name: NULL, or kept of the last time. */
PyObject *core_of_type(PyObject *object, PyObject **name, const char *text);
/* Gives up a reference, or none: what ends then may run Python, which must find no exception of ours. */
static inline void core_let_go(PyObject *object)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    Py_XDECREF(object);
    PyErr_Restore(type, value, traceback);
}

/* While a tensor of torch is asked nobody who watches it sees that: what core_torch_leave takes, or NULL. Raises nothing. */
PyObject *core_torch_enter(PyObject *tensor);
void core_torch_leave(PyObject *silent);
/* What keeps a tensor's memory where it is, a new reference: of torch's it is their storage, for they may be given another
 * one while this one is read. */
PyObject *core_torch_owner(PyObject *tensor);
/* 0, or -1 with an exception set where torch's numbers are those in memory with the other sign, of which DLPack says nothing. */
int core_torch_in_memory(PyObject *tensor);
/* Whether it has a shape and no numbers: with such tensors torch runs a model to make a program of it. */
bool core_torch_fake(PyObject *tensor);

/* How many rows count, where `value` says it: 0, or -1 with an exception set. */
int core_take_valid(PyObject *value, struct brick_tensor *t);
/* To be looked at without the interpreter lock. */
bool core_tensor_large(const struct brick_tensor *t);

extern const char core_take_doc[], core_checksum_doc[];
PyObject *core_take(PyObject *module, PyObject *const *args, Py_ssize_t given, PyObject *names);
PyObject *core_checksum(PyObject *module, PyObject *const *args, Py_ssize_t given, PyObject *names);
int core_add_taken(PyObject *module);

/* Where a tensor of a module is found. */
typedef struct {
    PyObject *of;      /* a weak reference to the part that has it, or, without a key, to it; itself where it can have none */
    PyObject *key;     /* in that table of the part */
    const char *table; /* an attribute: "_parameters" or "_buffers" */
} CorePlace;

/* A module's parts by their names: a new dict; NULL with an exception set. */
PyObject *core_module_parts(PyObject *module);
/* 0, or -1 with an exception set and no place. */
int core_place_of(PyObject *parts, const char *table, PyObject *name, PyObject *tensor, CorePlace *place);
/* A new reference; NULL: it is gone, or with an exception set. */
PyObject *core_place_find(const CorePlace *place);
void core_place_put_away(CorePlace *place);

extern const char core_weights_doc[];
PyObject *core_weights(PyObject *module, PyObject *args, PyObject *keywords);
/* At the end of a step, where weights are watched; -1 with an exception set, for an interrupt. */
int core_weights_turn(void);

extern const char core_fingerprint_doc[];
PyObject *core_fingerprint(PyObject *module, PyObject *const *args, Py_ssize_t given, PyObject *names);
int core_add_fingerprint(PyObject *module);

/* ---- module ------------------------------------------------------------- */

int core_add_types(PyObject *module);
extern PyType_Spec core_traced_spec, core_traced_object_spec;
PyObject *core_traced(PyObject *module, PyObject *args);
extern PyType_Spec core_watched_spec;
PyObject *core_watched(PyObject *module, PyObject *args);
PyObject *core_step_of(PyObject *module, PyObject *args);
PyObject *core_native(void); /* the capsule */

#endif
