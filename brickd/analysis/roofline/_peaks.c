/* _peaks.c - measures how many bytes this processor reads per second, and how many multiply-adds it computes.
 *
 * A measurement consists of slots. A slot is one millisecond of CLOCK_MONOTONIC, so all threads agree where it begins.
 * Threads that work in the same slot therefore work at the same time, although they never wait for each other. Waiting
 * would not work: on a busy machine, a thread that waits for another thread rarely runs at the same time as that one.
 *
 * This is a separate module because only the measurement of peaks needs it. It is written in C for two reasons. First,
 * the L1 cache, which matters most for small kernels, delivers 24 KiB in 80 ns, and one call from Python takes longer
 * than that. Second, the threads must not wait for the interpreter lock.
 *
 * Bandwidth is measured with reads only. A store costs one or two transfers, depending on the instruction, so reads are
 * the fastest way to move bytes. The caller must first write to the buffer: pages that
 * were never written are all the same page of zeros, which stays in the L1 cache.
 * Multiply-adds use only registers, so no kernel with the same instructions is faster.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#define SLOT_NS 1000000
#define WORK_NS 900000           /* how long a thread works in a slot; in the rest, it prepares the next slot */
#define SLOTS_MAX 1024           /* the most slots per call */
#define STEP_NS_MIN 5000         /* the shortest and the longest time between two clock reads */
#define STEP_NS_MAX 20000
#define STEP_FIRST 256
#define STEP_MAX (1 << 20)
#define STRIDE 256               /* bytes read per iteration of the loop */

/* Four variables, so that the processor can execute several loads and XORs in the same cycle: with only one variable,
 * each XOR would wait for the XOR before it. */
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

/* The number of independent chains of multiply-adds. On x86-64, two units with a latency of four cycles need at least
 * 8 chains, and the 16 registers have room for 12. Other processors have 32 registers and up to four units. */
#if defined(__x86_64__)
#define EACH_CHAIN(do) do(0) do(1) do(2) do(3) do(4) do(5) do(6) do(7) do(8) do(9) do(10) do(11)
#define CHAINS 12
#else
#define EACH_CHAIN(do)                                                                                                 \
    do(0) do(1) do(2) do(3) do(4) do(5) do(6) do(7) do(8) do(9) do(10) do(11)                                          \
    do(12) do(13) do(14) do(15) do(16) do(17) do(18) do(19)
#define CHAINS 20
#endif
#define BEGIN_CHAIN(n) lanes chain##n = term * n;
#define STEP_CHAIN(n) chain##n = chain##n * factor + term;
#define ADD_CHAIN(n) term += chain##n;

/* Each chain approaches 1, so its numbers never overflow and never become denormal, which would be slow. */
#define MADDS(name, type, width)                                                                                       \
    static double name(type seen, long long turns)                                                                     \
    {                                                                                                                  \
        typedef type lanes __attribute__((vector_size(width)));                                                        \
        lanes term = {0}, factor;                                                                                      \
        term += seen;                                                                                                  \
        factor = 1 - term;                                                                                             \
        EACH_CHAIN(BEGIN_CHAIN)                                                                                        \
        while (turns--) {                                                                                              \
            EACH_CHAIN(STEP_CHAIN)                                                                                     \
        }                                                                                                              \
        EACH_CHAIN(ADD_CHAIN)                                                                                          \
        return (double)(term[0] + term[1]);                                                                            \
    }

typedef uint64_t (*reader)(const char *at, const char *end);

/* An instruction set, with functions that read and compute in vectors of `width` bytes. */
typedef struct {
    const char *name;
    reader read;
    double (*madds32)(float, long long);
    double (*madds64)(double, long long);
    int width;
} instructions;

READER(read_16, 16)
MADDS(madds32_16, float, 16)
MADDS(madds64_16, double, 16)
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) READER(read_32, 32)
__attribute__((target("avx2,fma"))) MADDS(madds32_32, float, 32)
__attribute__((target("avx2,fma"))) MADDS(madds64_32, double, 32)
__attribute__((target("avx512f"))) READER(read_64, 64)
__attribute__((target("avx512f"))) MADDS(madds32_64, float, 64)
__attribute__((target("avx512f"))) MADDS(madds64_64, double, 64)
#endif

/* The instruction sets, the widest first. A set is used only if the processor and the kernel support it. */
static const instructions SETS[] = {
#if defined(__x86_64__)
    {"AVX-512", read_64, madds32_64, madds64_64, 64},
    {"AVX2", read_32, madds32_32, madds64_32, 32},
    {"SSE2", read_16, madds32_16, madds64_16, 16},
#elif defined(__aarch64__)
    {"NEON", read_16, madds32_16, madds64_16, 16},
#else
    {"16-byte vectors", read_16, madds32_16, madds64_16, 16},
#endif
};
#define SETS_COUNT (int)(sizeof SETS / sizeof *SETS)

static int supported(const instructions *set)
{
#if defined(__x86_64__)
    if (set->width == 64)
        return __builtin_cpu_supports("avx512f");
    if (set->width == 32)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return set->width == 16;
}

static const instructions *widest(void)
{
    const instructions *set = SETS;
    while (!supported(set))
        set++;
    return set;
}

static long long now_ns(clockid_t clock)
{
    struct timespec at;
    clock_gettime(clock, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

/* How much one thread did in one slot, and when. */
typedef struct {
    long long slot, amount, begun_ns, ended_ns, cpu_ns;
} part;

/* What one thread has to do. `step` does `count` units of work. */
typedef struct work {
    void (*step)(struct work *, long long count);
    long long amount; /* bytes or operations per unit */
    const instructions *set;
    const char *first, *last, *at; /* only for reads: the buffer, and the next byte to read */
    volatile double kept;
} work;

static void read_step(work *work, long long count)
{
    for (long long left = count * STRIDE; left;) {
        const long long size = work->last - work->at < left ? work->last - work->at : left;
        work->kept = work->kept + (double)work->set->read(work->at, work->at + size);
        __asm__ volatile("" ::: "memory"); /* makes the compiler read the buffer again in each pass */
        left -= size;
        work->at = work->at + size == work->last ? work->first : work->at + size;
    }
}

static void madd32_step(work *work, long long count) { work->kept = work->kept + work->set->madds32(1e-4F, count); }

static void madd64_step(work *work, long long count) { work->kept = work->kept + work->set->madds64(1e-4, count); }

/* Works in one slot after the other. If the thread misses the start of a slot, it skips that slot. */
static int run(work *work, long long until_ns, part *parts)
{
    long long count = STEP_FIRST, now = now_ns(CLOCK_MONOTONIC);
    int done = 0;
    do {
        part part = {.slot = now / SLOT_NS + 1};
        const long long start_ns = part.slot * SLOT_NS, end_ns = start_ns + WORK_NS;
        while (now_ns(CLOCK_MONOTONIC) < start_ns) /* wait in a loop, because a sleeping thread would wake up too late */
            ;
        part.cpu_ns = -now_ns(CLOCK_THREAD_CPUTIME_ID);
        part.begun_ns = now = now_ns(CLOCK_MONOTONIC);
        do {
            const long long before_ns = now;
            work->step(work, count);
            now = now_ns(CLOCK_MONOTONIC);
            part.amount += count * work->amount;
            if (now - before_ns < STEP_NS_MIN && count < STEP_MAX)
                count *= 2;
            else if (now - before_ns > STEP_NS_MAX && count > 1)
                count /= 2;
        } while (now < end_ns);
        part.ended_ns = now;
        part.cpu_ns += now_ns(CLOCK_THREAD_CPUTIME_ID);
        parts[done++] = part;
    } while (done < SLOTS_MAX && now < until_ns);
    return done;
}

static PyObject *ran(work *work, long long until_ns)
{
    part *parts = PyMem_New(part, SLOTS_MAX);
    if (!parts)
        return PyErr_NoMemory();
    int done;
    Py_BEGIN_ALLOW_THREADS
    done = run(work, until_ns, parts);
    Py_END_ALLOW_THREADS
    PyObject *found = PyList_New(done);
    for (int i = 0; found && i < done; i++) {
        const part *at = parts + i;
        PyObject *each = Py_BuildValue("(LLLLL)", at->slot, at->amount, at->begun_ns, at->ended_ns, at->cpu_ns);
        if (!each)
            Py_CLEAR(found);
        else
            PyList_SET_ITEM(found, i, each);
    }
    PyMem_Free(parts);
    return found;
}

static PyObject *reads(PyObject *module, PyObject *arguments)
{
    Py_buffer buffer;
    Py_ssize_t offset;
    long long until_ns;
    if (!PyArg_ParseTuple(arguments, "y*nL:reads", &buffer, &offset, &until_ns))
        return NULL;
    const char *first = buffer.buf;
    if (buffer.len == 0 || buffer.len % STRIDE || (uintptr_t)first % 64 || offset < 0 || offset >= buffer.len ||
        offset % STRIDE) {
        PyBuffer_Release(&buffer);
        return PyErr_Format(PyExc_ValueError,
                            "expected a buffer whose size is a multiple of %d bytes, aligned to 64, and an offset "
                            "within it", STRIDE);
    }
    work work = {.step = read_step, .amount = STRIDE, .set = widest(), .first = first, .last = first + buffer.len};
    work.at = first + offset;
    PyObject *found = ran(&work, until_ns);
    PyBuffer_Release(&buffer);
    return found ? Py_BuildValue("(Nn)", found, (Py_ssize_t)(work.at - first)) : NULL;
}

static PyObject *madds(PyObject *module, PyObject *arguments)
{
    const char *name;
    int size;
    long long until_ns;
    if (!PyArg_ParseTuple(arguments, "siL:madds", &name, &size, &until_ns))
        return NULL;
    const instructions *set = SETS;
    while (set != SETS + SETS_COUNT && (strcmp(set->name, name) || !supported(set)))
        set++;
    if (set == SETS + SETS_COUNT || (size != 4 && size != 8))
        return PyErr_Format(PyExc_ValueError,
                            "expected an instruction set that this processor has, and a size of 4 or 8");
    work work = {.step = size == 4 ? madd32_step : madd64_step, .amount = 2LL * CHAINS * (set->width / size), .set = set};
    return ran(&work, until_ns);
}

static PyObject *sets(PyObject *module, PyObject *nothing)
{
    PyObject *found = PyList_New(0);
    for (const instructions *set = SETS; found && set != SETS + SETS_COUNT; set++) {
        if (!supported(set))
            continue;
        PyObject *name = PyUnicode_FromString(set->name);
        if (!name || PyList_Append(found, name) < 0)
            Py_CLEAR(found);
        Py_XDECREF(name);
    }
    return found;
}

static PyMethodDef methods[] = {
    {"reads", reads, METH_VARARGS, "Read a buffer; return the work done in each slot, and the next offset."},
    {"madds", madds, METH_VARARGS, "Multiply and add; return the work done in each slot."},
    {"sets", sets, METH_NOARGS, "Return the instruction sets that `madds` can use, the widest first."},
    {0},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "brickd.analysis.roofline._peaks", .m_methods = methods};

PyMODINIT_FUNC PyInit__peaks(void) { return PyModuleDef_Init(&module); }
