/* python/module.h - the place of a tensor in a torch module. */
#ifndef BRICK_MODULE_H
#define BRICK_MODULE_H

#include "core.h"

typedef struct {
    PyObject *of;      /* a weak reference to the submodule. Without a key: a weak reference to the tensor, or the tensor
                          itself if it cannot have a weak reference */
    PyObject *key;     /* the tensor's key in this table of the submodule */
    const char *table; /* an attribute: "_parameters" or "_buffers" */
} CorePlace;

/* Returns a module's submodules by name: a new dict, or NULL with an exception set. */
PyObject *core_module_parts(PyObject *module);
/* Finds the place of a tensor. Returns 0, or -1 with an exception set and no place. */
int core_place_of(PyObject *parts, const char *table, PyObject *name, PyObject *tensor, CorePlace *place);
/* Returns the tensor at a place: a new reference; NULL if the tensor no longer exists, or with an exception set. */
PyObject *core_place_find(const CorePlace *place);
void core_place_put_away(CorePlace *place);

#endif
