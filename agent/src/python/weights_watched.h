/* python/weights_watched.h - the watched tensors of a model: a list, which tensor is held, who uses it. */
#ifndef BRICK_WEIGHTS_WATCHED_H
#define BRICK_WEIGHTS_WATCHED_H

#include "module.h"
#include "tensor.h"

#include "brick_weights.h"

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

static inline bool core_is_interrupt(void) { return !PyErr_ExceptionMatches(PyExc_Exception); }

/* weights_list.c: lists the tensors of a mapping or a module. NULL with an exception set. */
CoreWeights *core_weights_listed(PyObject *tensors);
void core_weights_put_away(CoreWeights *w);

/* weights_hold.c: for the writer, which reads one tensor at a time. */
enum brick_held core_weights_hold(void *host, uint64_t number, struct brick_tensor *tensor);
void core_weights_release(void *host, uint64_t number);
/* Drops the tensor that was unpacked or copied last. */
void core_weights_forget_unpacked(CoreWeights *w);

/* weights.c: for the writer. Returns whether it replaced the weights by those of a changed model. */
int core_weights_look(void *host);

#endif
