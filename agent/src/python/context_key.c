/* python/context_key.c - keeps the context of a span alive. The writer distinguishes tasks by the addresses of their
 * contexts, and Python reuses addresses. So this file holds a reference to each context with open spans. It drops the
 * reference when the last of these spans ends, when it finds that the task is dead, or when the thread ends. */
#include "context_key.h"
#include "arguments.h"

/* Returns whether no other reference to the context exists: then its task ended with an open span. */
static int key_is_dead(const void *key)
{
    return key != NULL && Py_REFCNT((PyObject *)(uintptr_t)key) == 1;
}

static void key_drop(const void *key)
{
    Py_XDECREF((PyObject *)(uintptr_t)key);
}

/* Whether state_ended will be called at the end of this thread's state. */
static __thread bool watched __attribute__((tls_model("initial-exec")));

/* The destructor of a capsule in the thread state's dictionary. A destructor runs with the interpreter lock, which is
 * needed to drop a reference. The thread itself may continue: a native thread gets a new state each time that it calls
 * Python. */
static void state_ended(PyObject *capsule)
{
    if (PyCapsule_GetContext(capsule) != (void *)(uintptr_t)PyThread_get_thread_ident())
        return;
    brick_thread_release(key_drop);
    watched = false;
}

static void watch(void)
{
    const CoreRaised raised = core_put_aside();
    PyObject *dictionary = PyThreadState_GetDict();
    PyObject *capsule = dictionary != NULL ? PyCapsule_New(&core_state, "brick_agent.thread", state_ended) : NULL;
    watched = capsule != NULL && PyCapsule_SetContext(capsule, (void *)(uintptr_t)PyThread_get_thread_ident()) == 0
              && PyDict_SetItemString(dictionary, "brick_agent", capsule) == 0;
    Py_XDECREF(capsule);
    core_put_back(raised);
}

void core_watch(void)
{
    if (__builtin_expect(!watched, 0))
        watch();
}

/* Never fails, and does not change an exception of the caller. */
void core_begun(unsigned outcome, const void *key)
{
    core_watch();
    if (outcome & BRICK_FIRST) {
        Py_XINCREF((PyObject *)(uintptr_t)key);
        if ((++core_state.swept & 63) == 0)
            key_drop(brick_thread_sweep(key_is_dead));
    }
}

PyObject *core_ended(unsigned outcome, const void *key)
{
    if (outcome & BRICK_LAST)
        key_drop(key);
    if (__builtin_expect((outcome & BRICK_UNMATCHED) && core_strict(), 0)) {
        PyErr_SetString(PyExc_RuntimeError, "brick_agent: a span ended that did not begin here (BRICKD_STRICT=1)");
        return NULL;
    }
    return Py_NewRef(Py_None);
}
