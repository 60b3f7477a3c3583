/* brick_python.h - lets native code in a Python process record into the segment of that process.
 *
 *   static const struct brick_python *brick;
 *   static struct brick_handle *gemm;
 *
 *   PyMODINIT_FUNC PyInit_engine(void)
 *   {
 *       brick = brick_python();                       once; returns NULL and sets an ImportError on failure
 *       gemm = brick->brick("gemm", "ffn");           as brick_agent.brick("gemm", "ffn")
 *       ...
 *   const void *task = brick->task();                 with the interpreter lock
 *   Py_BEGIN_ALLOW_THREADS
 *   brick->begin(gemm, task, NULL);                   with or without the lock
 *   ...
 *   brick->end(gemm, task, elements, bytes);
 *   Py_END_ALLOW_THREADS
 *
 * The writer is compiled into brick_agent's extension; other extensions use it through a PyCapsule, so that a process
 * has only one segment. An extension links nothing and needs only the headers in the folder brick_agent.get_include();
 * examples/extension.c is a complete example. The calls are those of brick_agent.h, with the same promises, but they
 * take a handle instead of the id of a name.
 *
 * A task is the key of the Python code that is running on this thread. The key is the current context (contextvars),
 * which belongs to a thread, an asyncio task or a greenlet. Spans recorded for a task are children of the Python spans
 * open around the call, and parents of the spans of Python code called from here. Get the task again each time that
 * Python calls your code, and record for this task only on the same thread. Before the task ends, end the spans that
 * you began for it, and end no span that Python began. A span left open stays open until the thread ends. If the
 * context of a later task has the same address, the open span becomes the parent of that task's spans.
 *
 * A NULL task stands for the thread: use it on threads unknown to Python, and for spans without a parent in Python. If
 * a native thread sometimes calls Python (PyGILState_Ensure), the thread's spans for NULL stay open between these
 * calls. If several threads unknown to Python record at the same time, open the segment before they start: call
 * brick_agent.init(), or begin a span in Python (see brick_init in brick_agent.h).
 */
#ifndef BRICK_PYTHON_H
#define BRICK_PYTHON_H

#include <Python.h>

#include "brick_agent.h"
#include "brick_graph.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BRICK_PYTHON_CAPSULE "brick_agent._core.native"

struct brick_handle;

struct brick_python {
    size_t size; /* size of this struct in the installed brick_agent: a later version has more fields at its end */

    /* Call it with the interpreter lock. Creates a handle, which exists as long as the process. Does not open the
     * segment and never returns NULL. */
    struct brick_handle *(*brick)(const char *name, const char *category);
    const void *(*task)(void);

    /* Call these functions with or without the interpreter lock. */
    void (*begin)(struct brick_handle *brick, const void *task, const uint64_t *step);
    void (*end)(struct brick_handle *brick, const void *task, uint64_t elements, uint64_t bytes);
    void (*step_end)(struct brick_handle *brick, const void *task, uint64_t rows, uint64_t valid);
    void (*record)(struct brick_handle *brick, const void *task, uint64_t elapsed_ns, uint64_t elements, uint64_t bytes);
    void (*layer_begin)(uint32_t layer, const void *task);
    void (*layer_end)(uint32_t layer, const void *task);
    int (*is_off)(void);
    uint64_t (*defer)(struct brick_handle *brick, const void *task, uint64_t stream, const uint64_t *step, uint64_t elements,
                      uint64_t bytes); /* returns the id; 0 if the start was not recorded */
    void (*measured)(uint64_t id, uint64_t elapsed_ns);
    void (*finalize)(const uint64_t *stream);
    uint64_t (*pending)(void);

    /* Checksums. struct brick_at and brick_taken never change: a later version that needs more fields adds calls. */
    uint32_t (*number)(struct brick_handle *brick); /* the id of the handle's name, for at->backend and at->of; or
                                                       BRICK_UNNAMED */
    int (*wants)(struct brick_handle *kernel, const void *task, const struct brick_at *at);
    const char *(*take)(struct brick_handle *kernel, const void *task, const struct brick_at *at,
                        const struct brick_tensor *tensor, struct brick_taken *taken);
    void (*checksum)(struct brick_handle *kernel, const void *task, const struct brick_at *at,
                     const struct brick_taken *output, const struct brick_taken *inputs, uint32_t count);

    /* Calls that also take floating-point operations. */
    void (*end_of)(struct brick_handle *brick, const void *task, const struct brick_amounts *did);
    void (*record_of)(struct brick_handle *brick, const void *task, uint64_t elapsed_ns, const struct brick_amounts *did);

    /* As in brick_graph.h, but with handles. A NULL `brick` stands for the open span. */
    void (*launched)(struct brick_handle *kernel, const void *task, const struct brick_launch *how, const uint64_t *elapsed_ns,
                     const struct brick_amounts *did);
    void (*moved)(enum brick_direction direction, struct brick_handle *from, struct brick_handle *to, const void *task,
                  uint64_t bytes, const uint64_t *elapsed_ns);
    void (*needs)(struct brick_handle *brick, struct brick_handle *needed, const void *task);

    uint64_t (*step_named)(const char *text, size_t length); /* as brick_step_named */
};

/* Returns the calls, valid as long as the process. Returns NULL and sets an ImportError if brick_agent is missing or
 * older than this header. An extension that also works without brick_agent then calls PyErr_Clear(). */
static inline const struct brick_python *brick_python(void)
{
    const struct brick_python *found = (const struct brick_python *)PyCapsule_Import(BRICK_PYTHON_CAPSULE, 0);
    if (found != NULL && found->size >= sizeof *found)
        return found;
    if (found != NULL || PyErr_ExceptionMatches(PyExc_AttributeError)) /* no capsule */
        PyErr_Format(PyExc_ImportError,
                     "brick_agent is older than this extension: its functions for extensions take %zu bytes, expected "
                     "at least %zu: install a later brick-agent",
                     found != NULL ? found->size : 0, sizeof *found);
    return NULL;
}

#ifdef __cplusplus
}
#endif

#endif
