/* extension.c - a Python extension whose native part records into the segment of its process.
 *
 *   $ gcc -O2 -Wall -Wextra -shared -fPIC -pthread -o engine.so extension.c \
 *       -I"$(python3 -c 'import brick_agent; print(brick_agent.get_include())')" \
 *       -I"$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')"
 *   $ python3 -c 'import engine; engine.multiply(10); engine.parallel(4, 25)'
 *
 * What to copy: handles are created at import, which does not open the segment. A function looks up its task while it
 * holds the interpreter lock; it may record for that task with or without the lock. Threads unknown to Python use NULL.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <pthread.h>

#include "brick_python.h"

enum { WIDTH = 64, THREADS_MAX = 64 };

static const struct brick_python *brick;
static struct brick_handle *multiply_brick, *gemm_brick;

/* Squares a matrix again and again; `times` says how often. Returns the sum of the results. */
static double multiply(const void *task, unsigned long times)
{
    float x[WIDTH][WIDTH], y[WIDTH][WIDTH];
    double sum = 0;
    brick->begin(multiply_brick, task, NULL);
    for (int i = 0; i < WIDTH * WIDTH; i++)
        x[i / WIDTH][i % WIDTH] = (float)(i % 7) / WIDTH;
    for (unsigned long n = 0; n < times; n++) {
        brick->begin(gemm_brick, task, NULL);
        for (int row = 0; row < WIDTH; row++)
            for (int to = 0; to < WIDTH; to++) {
                y[row][to] = 0;
                for (int i = 0; i < WIDTH; i++)
                    y[row][to] += x[row][i] * x[i][to];
            }
        brick->end(gemm_brick, task, WIDTH * WIDTH, sizeof x + sizeof y);
        sum += y[WIDTH - 1][n % WIDTH];
    }
    brick->end(multiply_brick, task, times, 0);
    return sum;
}

/* multiply(times): multiplies without the interpreter lock; its span is a child of the caller's open span in Python. */
static PyObject *engine_multiply(PyObject *module, PyObject *args)
{
    unsigned long times;
    double sum;
    (void)module;
    if (!PyArg_ParseTuple(args, "k:multiply", &times))
        return NULL;
    const void *task = brick->task();
    Py_BEGIN_ALLOW_THREADS
    sum = multiply(task, times);
    Py_END_ALLOW_THREADS
    return PyFloat_FromDouble(sum);
}

static void *run(void *times) { return multiply(NULL, *(unsigned long *)times) < 0 ? times : NULL; }

/* parallel(threads, times): multiplies on several native threads. Returns how many threads started. */
static PyObject *engine_parallel(PyObject *module, PyObject *args)
{
    pthread_t threads[THREADS_MAX];
    unsigned long many, times, started = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "kk:parallel", &many, &times))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    while (started < many && started < THREADS_MAX && pthread_create(&threads[started], NULL, run, &times) == 0)
        started++;
    for (unsigned long n = 0; n < started; n++)
        pthread_join(threads[n], NULL);
    Py_END_ALLOW_THREADS
    return PyLong_FromUnsignedLong(started);
}

static PyMethodDef methods[] = {
    {"multiply", engine_multiply, METH_VARARGS, "multiply(times): multiply on this thread."},
    {"parallel", engine_parallel, METH_VARARGS, "parallel(threads, times): multiply on native threads."},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "engine", "An engine.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_engine(void)
{
    brick = brick_python();
    if (brick == NULL)
        return NULL; /* an ImportError is set */
    multiply_brick = brick->brick("multiply", NULL);
    gemm_brick = brick->brick("gemm", "ffn");
    return PyModule_Create(&definition);
}
