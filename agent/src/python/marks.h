/* python/marks.h - where a function is defined, as its first call reports it. */
#ifndef BRICK_MARKS_H
#define BRICK_MARKS_H

#include "core.h"

/* Marks the brick as a function of this file (as UTF-8) and line. False: not recorded yet. */
bool core_define(Brick *b, PyObject *file, unsigned long line);

#endif
