/* python/methods.h - declares the functions in the method tables of the module and its types, by file. */
#ifndef BRICK_METHODS_H
#define BRICK_METHODS_H

#include "core.h"

#include <structmember.h>

/* types.c */
int core_add_types(PyObject *module);
extern PyMemberDef core_callable_members[]; /* the members of a type whose first field is its vectorcall */

/* trace.c, module_forward.c */
extern PyType_Spec core_traced_spec, core_traced_object_spec, core_watched_spec;
PyObject *core_traced(PyObject *module, PyObject *args);
PyObject *core_watched(PyObject *module, PyObject *args);
PyObject *core_step_of(PyObject *module, PyObject *args);
PyObject *core_note_rows(PyObject *module, PyObject *args);
PyObject *core_presume_rows(PyObject *module, PyObject *args);

/* timing.c */
extern PyType_Spec core_timer_spec, core_timing_spec;
PyObject *core_know(PyObject *module, PyObject *args);
PyObject *core_by_name(PyObject *module, PyObject *args);
PyObject *core_own_methods(PyObject *module, PyObject *type);

/* capsule.c */
PyObject *core_native(void);

/* own_totals.c */
PyObject *core_totals(PyObject *module, PyObject *marks);
PyObject *core_recorded(PyObject *module, PyObject *unused);

/* deferred.c */
extern const char core_defer_doc[], core_finalize_doc[], core_pending_doc[];
PyObject *core_brick_defer(PyObject *self, PyObject *const *args, Py_ssize_t given, PyObject *names);
PyObject *core_finalize(PyObject *module, PyObject *const *args, Py_ssize_t given, PyObject *names);
PyObject *core_pending(PyObject *module, PyObject *unused);
PyObject *core_deferred(PyObject *module, PyObject *args);

/* marks.c */
extern const char core_kernel_doc[], core_transfer_doc[], core_needs_doc[];
PyObject *core_kernel(PyObject *module, PyObject *const *args, Py_ssize_t given, PyObject *names);
PyObject *core_transfer(PyObject *module, PyObject *const *args, Py_ssize_t given, PyObject *names);
PyObject *core_needs(PyObject *module, PyObject *const *args, Py_ssize_t given, PyObject *names);
PyObject *core_node(PyObject *module, PyObject *args);
PyObject *core_node_begin(PyObject *module, PyObject *node);
PyObject *core_refused(PyObject *module, PyObject *unused);
PyObject *core_context(PyObject *module, PyObject *unused);
PyObject *core_place(PyObject *module, PyObject *unused);
PyObject *core_node_end(PyObject *module, PyObject *node);
PyObject *core_node_defined(PyObject *module, PyObject *args);
PyObject *core_node_task(PyObject *module, PyObject *args);
PyObject *core_task_ended(PyObject *module, PyObject *brick);
PyObject *core_send_source(PyObject *module, PyObject *args);
PyObject *core_canary_order(PyObject *module, PyObject *unused);
PyObject *core_send_canary(PyObject *module, PyObject *args);
PyObject *core_source_hash(PyObject *module, PyObject *text);

/* checksum.c */
extern const char core_take_doc[], core_checksum_doc[];
PyObject *core_take(PyObject *module, PyObject *const *args, Py_ssize_t given, PyObject *names);
PyObject *core_checksum(PyObject *module, PyObject *const *args, Py_ssize_t given, PyObject *names);
extern PyType_Spec core_taken_spec;

/* history.c */
extern const char core_history_rows_doc[];
PyObject *core_history_rows(PyObject *module, PyObject *const *args, Py_ssize_t given, PyObject *names);
PyObject *core_choose(PyObject *module, PyObject *rows);
PyObject *core_chosen(PyObject *module, PyObject *unused);
bool core_history_is_chosen(void); /* whether the call of a model that this thread makes has chosen rows */
extern PyType_Spec core_history_spec, core_step_rows_spec;

/* step_parts.c */
PyObject *core_step_parts(PyObject *module, PyObject *args);

/* fingerprint.c */
extern const char core_fingerprint_doc[];
PyObject *core_fingerprint(PyObject *module, PyObject *const *args, Py_ssize_t given, PyObject *names);
int core_add_fingerprint(PyObject *module);

/* weights.c */
extern const char core_weights_doc[];
PyObject *core_weights(PyObject *module, PyObject *args, PyObject *keywords);

#endif
