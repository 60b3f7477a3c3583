/* python/brick.h - handles by name, and the definitions of their functions. */
#ifndef BRICK_BRICK_H
#define BRICK_BRICK_H

#include "core.h"

Brick *core_handle_new(PyObject *name, PyObject *category);
/* Returns the handle of a name: a borrowed reference. Without memory or room for names, returns the handle "other", and
 * counts a refused name. */
Brick *core_handle(PyObject *name, PyObject *category);
/* In marks.c: marks the brick as a function of this file (UTF-8) and line. Returns false if that is not recorded
 * yet. */
bool core_define(Brick *b, PyObject *file, unsigned long line);

#endif
