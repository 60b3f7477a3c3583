/* _peaks.c - measures how fast this processor reads a working set.
 *
 * A module of its own: it is loaded only where peaks are measured. Written in C because L1, the level that matters to
 * small kernels, delivers 24 KiB in 80 ns: a call from Python takes longer.
 *
 * It only reads. A store costs one or two transfers, depending on how it is made; no kernel that moves the same bytes is
 * faster than reads. The caller makes the buffer and writes to it first: unwritten memory is one page of zeros.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <time.h>

#define STRIDE 256               /* bytes read per iteration of the loop */
#define BATCH_BYTES (1 << 20)    /* least bytes read between two clock reads */
#define DURATION_NS_MAX 10000000000

/* Four independent chains: loads that start in the same cycle do not wait for each other. */
#define READER(name, width)                                                                                            \
    static uint64_t name(const char *at, const char *end)                                                              \
    {                                                                                                                  \
        typedef uint64_t lanes __attribute__((vector_size(width), aligned(8), may_alias));                             \
        lanes a = {0}, b = {0}, c = {0}, d = {0};                                                                      \
        for (; at != end; at += 4 * width) {                                                                           \
            a ^= *(const lanes *)(const void *)at;                                                                     \
            b ^= *(const lanes *)(const void *)(at + width);                                                           \
            c ^= *(const lanes *)(const void *)(at + 2 * width);                                                       \
            d ^= *(const lanes *)(const void *)(at + 3 * width);                                                       \
        }                                                                                                              \
        a ^= b ^ c ^ d;                                                                                                \
        return a[0] ^ a[1];                                                                                            \
    }

READER(read_16, 16)
#if defined(__x86_64__)
__attribute__((target("avx2"))) READER(read_32, 32)
__attribute__((target("avx512f"))) READER(read_64, 64)
#endif

typedef uint64_t (*reader)(const char *at, const char *end);

static reader widest(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        return read_64;
    if (__builtin_cpu_supports("avx2"))
        return read_32;
#endif
    return read_16;
}

static long long now_ns(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static PyObject *reads(PyObject *module, PyObject *arguments)
{
    Py_buffer buffer;
    long long duration_ns;
    if (!PyArg_ParseTuple(arguments, "y*L:reads", &buffer, &duration_ns))
        return NULL;
    const char *begin = buffer.buf, *end = begin + buffer.len;
    if (buffer.len == 0 || buffer.len % STRIDE || (uintptr_t)begin % 64 || duration_ns < 0 ||
        duration_ns > DURATION_NS_MAX) {
        PyBuffer_Release(&buffer);
        return PyErr_Format(PyExc_ValueError,
                            "wanted is a buffer of a multiple of %d bytes that begins at one of 64, and at most %lld ns",
                            STRIDE, (long long)DURATION_NS_MAX);
    }
    const reader read = widest();
    const Py_ssize_t batch = buffer.len < BATCH_BYTES ? BATCH_BYTES / buffer.len : 1;
    long long passes = 0, began_ns, ended_ns;
    Py_BEGIN_ALLOW_THREADS
    volatile uint64_t kept = read(begin, end); /* untimed: fills the cache */
    began_ns = now_ns();
    do {
        for (Py_ssize_t pass = 0; pass < batch; pass++) {
            kept = kept ^ read(begin, end);
            __asm__ volatile("" ::: "memory"); /* the compiler must read the buffer again */
        }
        passes += batch;
        ended_ns = now_ns();
    } while (ended_ns - began_ns < duration_ns);
    Py_END_ALLOW_THREADS
    const long long bytes = passes * (long long)buffer.len;
    PyBuffer_Release(&buffer);
    return Py_BuildValue("(LLL)", bytes, began_ns, ended_ns);
}

static PyMethodDef methods[] = {
    {"reads", reads, METH_VARARGS, "Read a buffer again and again: the bytes, when it began and when it ended, in ns."},
    {0},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "brickd.analysis.roofline._peaks", .m_methods = methods};

PyMODINIT_FUNC PyInit__peaks(void) { return PyModuleDef_Init(&module); }
