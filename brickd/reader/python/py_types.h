/* python/py_types.h - declarations shared by the files of brickd.shm._reader. */
#ifndef BRICKD_PY_TYPES_H
#define BRICKD_PY_TYPES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "../core/segment_copy.h"

#include <pthread.h>
#include <string.h>

extern PyType_Spec segment_spec;   /* python/py_segment.c */
extern PyType_Spec fold_spec;      /* python/py_fold.c */
extern PyType_Spec durations_spec; /* python/py_durations.c */
extern PyType_Spec drain_spec;     /* python/py_drain.c */
extern PyType_Spec recording_spec; /* python/py_recording.c */
extern PyType_Spec spool_spec;     /* python/py_spool.c */
extern PyType_Spec summaries_spec; /* python/py_summaries.c */
extern PyType_Spec packed_spec;    /* python/py_packed.c */
extern PyType_Spec fingerprints_spec; /* python/py_fingerprints.c */
extern PyType_Spec tracks_spec;    /* python/py_tracks.c */

/* The functions of the module, by the file that has them. */
/* python/fn_drain.c */
PyObject *reader_drain(PyObject *module, PyObject *args);
PyObject *reader_rest(PyObject *module, PyObject *args);
PyObject *reader_tails(PyObject *module, PyObject *args);
/* python/fn_files.c */
PyObject *reader_watch(PyObject *module, PyObject *directory);
PyObject *reader_write_all(PyObject *module, PyObject *writes);
/* python/fn_recording.c */
PyObject *reader_title(PyObject *module, PyObject *bytes);
PyObject *reader_find_chunk(PyObject *module, PyObject *args);
PyObject *reader_sum(PyObject *module, PyObject *args);
PyObject *reader_records(PyObject *module, PyObject *body);
PyObject *reader_end(PyObject *module, PyObject *body);
PyObject *reader_walk(PyObject *module, PyObject *args);
PyObject *reader_checked(PyObject *module, PyObject *args);
/* python/fn_spans.c */
PyObject *reader_span_rows(PyObject *module, PyObject *args);
PyObject *reader_deferred_slots(PyObject *module, PyObject *args);
PyObject *reader_span_lines(PyObject *module, PyObject *args);
/* python/fn_weights.c */
PyObject *reader_tensor_error(PyObject *module, PyObject *args);
PyObject *reader_rows_unsteady(PyObject *module, PyObject *list);
PyObject *reader_weights_of(PyObject *module, PyObject *args);
PyObject *reader_weights_held(PyObject *module, PyObject *args);
PyObject *reader_weights_put(PyObject *module, PyObject *args);
/* python/fn_removed.c */
PyObject *reader_removed(PyObject *module, PyObject *content);
PyObject *reader_is_removed(PyObject *module, PyObject *name);
PyObject *reader_append_removed(PyObject *module, PyObject *args);
/* python/fn_sources.c */
PyObject *reader_pieces(PyObject *module, PyObject *events);
PyObject *reader_source_hash(PyObject *module, PyObject *text);
PyObject *reader_step_texts(PyObject *module, PyObject *events);

/* The bytes of the table that was converted last, and its rows. If the next table has equal bytes, the same rows are
 * used again. This saves time, because most workers of a service have equal tables. */
struct table_rows {
    PyObject *bytes, *rows;
};

/* A kept block of memory that is not in use. `memory` is NULL if no block is kept here. */
struct scratch {
    void *memory;
    size_t bytes;
};
enum { SCRATCH_BLOCKS = 4 };

struct reader_state {
    PyTypeObject *drain, *packed, *spool;
    struct table_rows tables[BRICK_TABLES];
    struct scratch scratch[SCRATCH_BLOCKS];
};

/* Returns a block for large temporary data: a kept one, or a new one. On failure, returns NULL with an exception. */
void *scratch_take(struct reader_state *state, size_t bytes);
/* Keeps a block for the next caller, or frees it. `bytes` is at most the size with which it was taken or allocated. */
void scratch_give(struct reader_state *state, void *memory, size_t bytes);
void scratch_clear(struct reader_state *state);

/* Returns a struct as a dictionary, without the struct's reserved fields. */
PyObject *unpacked(const char *record, const void *bytes);
/* Does the same as `unpacked`, but finds the fields in another layout table. */
PyObject *unpacked_by(const struct brick_field *table, size_t count, const char *record, const void *bytes);
/* Returns how many bytes one element of a field has. `code` is the code of the field in the layout table. */
uint32_t code_size(char code);
PyObject *number_tuple(const void *elements, char code, uint32_t count);
/* These functions take over the reference to the item. If the item is NULL or there is no memory, they return 0 and
 * clear the list. */
int list_put(PyObject **list, size_t index, PyObject *item);
int list_append(PyObject **list, PyObject *item);

void plain_dealloc(PyObject *self);

/* Takes the lock. While it waits for the lock, it releases the interpreter lock. */
static inline void take_lock(pthread_mutex_t *mutex)
{
    if (pthread_mutex_trylock(mutex) == 0)
        return;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(mutex);
    Py_END_ALLOW_THREADS
}

/* Returns the C spool of a Spool object, which must belong to the same module as `sibling`. On failure, returns NULL
 * with an exception that names the `wanted` type. */
struct brick_spool *spool_of(PyObject *spool, PyTypeObject *sibling, const char *wanted);

/* Makes the caller the consumer of the spool. If there is another consumer, returns 0 with an exception. */
int spool_enter(struct brick_spool *spool);
void spool_leave(struct brick_spool *spool);

struct brick_pieces;
/* Checks that the offsets of the texts are valid, and sets `pieces`. Returns 0 with an exception if they are not. */
int pieces_of(const Py_buffer *text, const Py_buffer *offsets, struct brick_pieces *pieces);

/* Returns the number of summaries in a buffer, or -1 with an exception on failure. */
Py_ssize_t summaries_in(const Py_buffer *buffer);
PyObject *packed_of(struct reader_state *state, const struct brick_summary *summaries, Py_ssize_t count);
/* Unpacks the summaries of a Packed. `into` must have room for its length in bytes. */
void packed_unpack(PyObject *packed, struct brick_summary *into);

#endif
