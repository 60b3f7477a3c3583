/* python/scratch.c - large blocks of memory that are used again.
 *
 * An answer copies or unpacks the summaries of every worker, one worker after another. The allocator returns a freed
 * block of this size to the kernel, which must then clear the pages of the next block: a third of the time of an answer.
 * So a few blocks are kept. The caller holds the interpreter lock, which protects the kept blocks.
 */
#include "py_types.h"

enum { SCRATCH_MAX = 1 << 20 }; /* larger blocks are not kept */

void *scratch_take(struct reader_state *state, size_t bytes)
{
    struct scratch *best = NULL;
    for (struct scratch *s = state->scratch; s < state->scratch + SCRATCH_BLOCKS; s++)
        if (s->memory != NULL && s->bytes >= bytes && (best == NULL || s->bytes < best->bytes))
            best = s;
    if (best == NULL || best->bytes / 2 > bytes) { /* do not use a large block for a small need */
        void *memory = PyMem_Malloc(bytes);
        if (memory == NULL)
            PyErr_NoMemory();
        return memory;
    }
    void *memory = best->memory;
    *best = (struct scratch){NULL, 0};
    return memory;
}

void scratch_give(struct reader_state *state, void *memory, size_t bytes)
{
    struct scratch *least = &state->scratch[0];
    for (struct scratch *s = state->scratch; s < state->scratch + SCRATCH_BLOCKS; s++)
        if (s->bytes < least->bytes)
            least = s;
    if (memory != NULL && bytes <= SCRATCH_MAX && bytes > least->bytes) {
        void *other = least->memory;
        *least = (struct scratch){memory, bytes};
        memory = other;
    }
    PyMem_Free(memory);
}

void scratch_clear(struct reader_state *state)
{
    for (struct scratch *s = state->scratch; s < state->scratch + SCRATCH_BLOCKS; s++) {
        PyMem_Free(s->memory);
        *s = (struct scratch){NULL, 0};
    }
}
