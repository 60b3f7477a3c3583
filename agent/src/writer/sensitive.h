/* sensitive.h - the words in a kernel's name that turn its checksums off. */
#ifndef BRICK_SENSITIVE_H
#define BRICK_SENSITIVE_H

#include "common.h"

/* Returns the first word of a name that makes its sites sensitive; NULL if there is no such word. */
BRICK_HIDDEN const char *brick_sensitive_word(const char *text, size_t length);

#endif
