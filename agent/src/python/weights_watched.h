/* python/weights_watched.h - the watched tensors of a model: the list, its users, and the tensor that is held now. */
#ifndef BRICK_WEIGHTS_WATCHED_H
#define BRICK_WEIGHTS_WATCHED_H

#include "module.h"
#include "tensor.h"

#include "brick_weights.h"

/* How to find a tensor. */
struct entry {
    PyObject *name;  /* in a mapping: the tensor's key */
    CorePlace place; /* in a module: the tensor's place in a submodule; in a mapping, `of` is NULL */
    PyObject *read;  /* for a packed weight, a function that unpacks it; else NULL */
};

struct CoreWeights {
    struct brick_weights weights;
    unsigned users; /* number of running calls that use the list */
    PyThreadState *loader; /* the thread that runs a load now; in a forked child, this may be a thread of the parent */
    uint64_t generation;
    PyObject *mapping; /* the mapping; NULL: the tensors are a module's */
    PyObject *structure; /* the structure of a torch module, or NULL */
    struct entry *entries;
    PyObject *object; /* the object that is held now */
    PyObject *unpacked; /* the current tensor, unpacked or copied, until its fingerprint is complete */
    uint64_t unpacked_of;
    CoreTensor held;
    PyThreadState *unlocked;
    char why[200]; /* why the first unreadable tensor cannot be read */
};

static inline bool core_is_interrupt(void) { return !PyErr_ExceptionMatches(PyExc_Exception); }

/* In weights_list.c: lists the tensors of a mapping or a module. Returns NULL with an exception set. */
CoreWeights *core_weights_listed(PyObject *tensors);
void core_weights_put_away(CoreWeights *w);

/* In weights_hold.c: for the writer, which reads one tensor at a time. */
enum brick_held core_weights_hold(void *host, uint64_t number, struct brick_tensor *tensor);
void core_weights_release(void *host, uint64_t number);
/* Drops the tensor that was unpacked or copied. */
void core_weights_forget_unpacked(CoreWeights *w);

/* In weights.c: the function `look` of brick_weights.h, which replaces the weights if the model has changed. */
int core_weights_look(void *host);

#endif
