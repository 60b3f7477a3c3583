/* An extension whose own thread records every few microseconds, without the interpreter lock, until it is stopped. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "brick_python.h"

#include <pthread.h>

static const struct brick_python *brick;
static struct brick_handle *busy;
static pthread_t thread;
static int wanted;
static unsigned long long done;

static void *work(void *unused)
{
    (void)unused;
    while (__atomic_load_n(&wanted, __ATOMIC_RELAXED)) {
        brick->record(busy, NULL, 1000, 1, 8);
        __atomic_fetch_add(&done, 1, __ATOMIC_RELAXED);
        for (volatile int i = 0; i < 500; i++)
            continue;
    }
    return NULL;
}

static PyObject *busy_start(PyObject *module, PyObject *unused)
{
    busy = brick->brick("busy", NULL);
    wanted = 1;
    if (pthread_create(&thread, NULL, work, NULL) != 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    Py_BEGIN_ALLOW_THREADS
    while (__atomic_load_n(&done, __ATOMIC_RELAXED) == 0)
        sched_yield();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *busy_stop(PyObject *module, PyObject *unused)
{
    __atomic_store_n(&wanted, 0, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    return PyLong_FromUnsignedLongLong(done);
}

static PyMethodDef methods[] = {
    {"start", busy_start, METH_NOARGS, NULL},
    {"stop", busy_stop, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "busy", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_busy(void)
{
    brick = brick_python();
    return brick != NULL ? PyModule_Create(&definition) : NULL;
}
