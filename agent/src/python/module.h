/* python/module.h - where a tensor of a torch module is found. */
#ifndef BRICK_MODULE_H
#define BRICK_MODULE_H

#include "core.h"

typedef struct {
    PyObject *of;      /* a weak reference to the part; without a key, to the tensor, or the tensor if it cannot have one */
    PyObject *key;     /* the tensor's key in this table of the part */
    const char *table; /* an attribute: "_parameters" or "_buffers" */
} CorePlace;

/* Returns a module's parts by their names: a new dict, or NULL with an exception set. */
PyObject *core_module_parts(PyObject *module);
/* Returns 0, or -1 with an exception set and no place. */
int core_place_of(PyObject *parts, const char *table, PyObject *name, PyObject *tensor, CorePlace *place);
/* Returns a new reference; NULL if the tensor is gone, or with an exception set. */
PyObject *core_place_find(const CorePlace *place);
void core_place_put_away(CorePlace *place);

#endif
