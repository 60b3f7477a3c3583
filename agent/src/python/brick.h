/* python/brick.h - handles by name, and where their functions are defined. */
#ifndef BRICK_BRICK_H
#define BRICK_BRICK_H

#include "core.h"

Brick *core_handle_new(PyObject *name, PyObject *category);
/* Returns the handle of a name: a borrowed reference. Without memory or room for names, it is "other", and the loss is
   counted. */
Brick *core_handle(PyObject *name, PyObject *category);
/* In marks.c: marks the brick as a function of this file (UTF-8) and line. Returns false if it is not recorded yet. */
bool core_define(Brick *b, PyObject *file, unsigned long line);

#endif
