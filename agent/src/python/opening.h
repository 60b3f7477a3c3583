/* python/opening.h - the segment opens: at init(), or at the first use of a handle. */
#ifndef BRICK_OPENING_H
#define BRICK_OPENING_H

#include "core.h"

/* Notes the program's name while nothing is open yet: needed where Python cannot be asked. */
void core_note_program(void);
/* Every way to the segment leads through here; -1 with an exception set, in strict mode, when it failed. */
int core_open(struct brick_config *config);
/* The same with no configuration, unless it was opened before. */
int core_open_once(void);
/* Gives the handle its number, opening the segment. */
int core_resolve(Brick *b);
/* The same without the interpreter lock: these raise nothing. */
void core_open_unlocked(void);
void core_resolve_unlocked(Brick *b);

#endif
