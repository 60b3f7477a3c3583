/* core_graph.c - kernel(), transfer(), needs(), and what the Python face tells of functions, tasks and sources. */
#include "core.h"

#include "brick_graph.h"

#include <string.h>

const char core_kernel_doc[] = PyDoc_STR(
"kernel(name, grid=None, block=None, shared_mem=0, *, source=None, elapsed_ns=None, elements=0, bytes=0, flops=0)\n--\n\n"
"Say that a kernel is launched now, below what is open here.\n\n"
"grid, block: how many blocks, and threads of a block: a number, or up to three. shared_mem: bytes that a block shares.\n"
"source: what it was compiled from, as brick.source() gave it, or its text. elapsed_ns: what the device says that it took,\n"
"where that is known by now; else defer the brick of the same name. Launches are counted, by place and shape.\n\n"
">>> with brick.span(\"RmsNorm\"):\n"
"...     brick.kernel(\"rmsnorm_kernel\", grid=16, block=(256, 1, 1), shared_mem=1024)\n");
const char core_transfer_doc[] = PyDoc_STR(
"transfer(direction, bytes, *, src='host', dst='device', elapsed_ns=None)\n--\n\n"
"Say that bytes are moved now, below what is open here: \"H2D\" to a device, \"D2H\" back, \"D2D\" on it.\n\n"
"src, dst: what they are moved from and to, buffers or devices. What a transfer takes back that the same thread had just\n"
"moved the other way is counted as returned.\n\n"
">>> brick.transfer(\"H2D\", 1 << 20, src=\"tokens\", dst=\"tokens@gpu0\")\n"
">>> brick.transfer(\"D2H\", 1 << 20, src=\"tokens@gpu0\", dst=\"tokens\")\n");
const char core_needs_doc[] = PyDoc_STR(
"needs(needed, /, brick=None)\n--\n\n"
"Say that a brick needs what another one makes: it cannot begin before that has ended.\n\n"
"brick: one beside what is recorded now; None: what is open here.\n\n"
">>> with brick.span(\"attention\"):\n"
"...     brick.needs(\"qkv\")\n");

/* ---- arguments ----------------------------------------------------------- */

/* A handle's number, opening the segment; BRICK_UNNAMED: nothing is recorded. -1 with an exception set. */
static int number_of(PyObject *name, const char *category, uint32_t *number)
{
    Brick *b = Py_IS_TYPE(name, core_state.brick_type) ? (Brick *)name : core_handle(name, Py_None);
    if (b != NULL && b->category == Py_None && category != NULL) {
        PyObject *kind = PyUnicode_FromString(category);
        b = kind != NULL ? core_handle(b->name, kind) : NULL;
        Py_XDECREF(kind);
    }
    if (b == NULL || (b->number == BRICK_UNNAMED && core_resolve(b) != 0))
        return -1;
    *number = b->number;
    return 0;
}

#define EXTENT "a grid and a block must be up to three numbers from 1 to 2^32 - 1"

static int to_extent(PyObject *value, uint32_t *extent)
{
    PyObject *number = PyNumber_Index(value);
    int overflow = 1;
    const long long wide = number != NULL ? PyLong_AsLongLongAndOverflow(number, &overflow) : 0;
    Py_XDECREF(number);
    PyErr_Clear();
    *extent = !overflow && wide >= 1 && wide <= UINT32_MAX ? (uint32_t)wide : 0;
    return *extent != 0 ? 0 : core_complain(EXTENT, value);
}

/* What cannot be has a 0 in it, beside numbers that are none: the writer counts it. */
static int to_extents(PyObject *value, uint32_t extents[3])
{
    static const uint32_t impossible[3] = {0, 1, 1};
    extents[0] = extents[1] = extents[2] = value == Py_None ? 0 : 1;
    if (value == Py_None)
        return 0;
    if (PyIndex_Check(value))
        return to_extent(value, &extents[0]);
    PyObject *all = PySequence_Check(value) && !PyUnicode_Check(value) ? PySequence_Tuple(value) : NULL;
    const Py_ssize_t count = all != NULL ? PyTuple_GET_SIZE(all) : 0;
    int wrong = 0;
    PyErr_Clear();
    if (count < 1 || count > 3) {
        memcpy(extents, impossible, sizeof impossible);
        wrong = core_complain(EXTENT, value);
    }
    for (Py_ssize_t i = 0; i < count && count <= 3 && wrong == 0; i++)
        wrong = to_extent(PyTuple_GET_ITEM(all, i), &extents[i]);
    Py_XDECREF(all);
    return wrong;
}

/* Bytes of shared memory; what cannot be takes the whole shape with it, as a grid that cannot be does. */
static int to_shared(PyObject *value, struct brick_launch *how)
{
    uint64_t bytes;
    if (core_amount(value, &bytes) != 0)
        return -1;
    if (bytes <= UINT32_MAX)
        how->shared_bytes = (uint32_t)bytes;
    else
        how->grid[0] = 0, how->block[0] = 1;
    return 0;
}

/* A hash as it is; a text, or what else brick.source() is to judge, through it. */
static int to_source(PyObject *value, uint64_t *source)
{
    *source = 0;
    if (value == Py_None)
        return 0;
    PyObject *hash = NULL;
    if (PyLong_CheckExact(value)) {
        hash = Py_NewRef(value);
    } else if (PyUnicode_Check(value) || PyLong_Check(value)) {
        PyObject *sources = PyImport_ImportModule("brick_agent._sources");
        hash = sources != NULL ? PyObject_CallMethod(sources, "source", "O", value) : NULL;
        Py_XDECREF(sources);
    }
    if (hash != NULL)
        *source = PyLong_AsUnsignedLongLong(hash);
    Py_XDECREF(hash);
    if (hash != NULL && !PyErr_Occurred())
        return 0;
    *source = 0;
    return core_complain("a source must be a text or a hash of 64 bits", value);
}

static PyObject *done(unsigned outcome)
{
    if (outcome != BRICK_DONE)
        core_watch();
    Py_RETURN_NONE;
}

/* ---- what is told ---------------------------------------------------------- */

PyObject *core_kernel(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"name", "grid", "block", "shared_mem", "source", "elapsed_ns", "elements", "bytes", "flops", NULL};
    PyObject *name, *grid = Py_None, *block = Py_None, *shared = NULL, *source = Py_None, *elapsed = Py_None;
    PyObject *elements = NULL, *bytes = NULL, *flops = NULL;
    struct brick_launch how = {.source = 0};
    struct brick_amounts did = {0, 0, 0};
    uint64_t elapsed_ns = 0;
    uint32_t number;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|OOO$OOOOO:kernel", names, &name, &grid, &block, &shared, &source,
                                     &elapsed, &elements, &bytes, &flops))
        return NULL;
    if (brick_is_off())
        Py_RETURN_NONE;
    if (to_extents(grid, how.grid) != 0 || to_extents(block, how.block) != 0
        || (shared != NULL && to_shared(shared, &how) != 0) || to_source(source, &how.source) != 0
        || (elapsed != Py_None && core_elapsed(elapsed, &elapsed_ns) != 0)
        || (elements != NULL && core_amount(elements, &did.elements) != 0)
        || (bytes != NULL && core_amount(bytes, &did.bytes) != 0) || (flops != NULL && core_flops(flops, &did.flops) != 0)
        || number_of(name, "kernel", &number) != 0)
        return NULL;
    return done(brick_launched(number, core_key(), &how, elapsed != Py_None ? &elapsed_ns : NULL, &did));
}

static int to_direction(PyObject *value, enum brick_direction *direction)
{
    static const char *const known[] = {"H2D", "D2H", "D2D"};
    for (int i = 0; PyUnicode_Check(value) && i < 3; i++)
        if (PyUnicode_CompareWithASCIIString(value, known[i]) == 0) {
            *direction = (enum brick_direction)i;
            return 0;
        }
    *direction = (enum brick_direction)3; /* the writer counts it */
    return core_complain("a direction must be \"H2D\", \"D2H\" or \"D2D\"", value);
}

PyObject *core_transfer(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"direction", "bytes", "src", "dst", "elapsed_ns", NULL};
    PyObject *direction, *bytes, *src = NULL, *dst = NULL, *elapsed = Py_None;
    enum brick_direction way;
    uint64_t moved, elapsed_ns = 0;
    uint32_t ends[2];
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO|$OOO:transfer", names, &direction, &bytes, &src, &dst, &elapsed))
        return NULL;
    if (brick_is_off())
        Py_RETURN_NONE;
    src = src != NULL ? Py_NewRef(src) : PyUnicode_FromString("host");
    dst = dst != NULL ? Py_NewRef(dst) : PyUnicode_FromString("device");
    const int wrong = src == NULL || dst == NULL || to_direction(direction, &way) != 0 || core_amount(bytes, &moved) != 0
                      || (elapsed != Py_None && core_elapsed(elapsed, &elapsed_ns) != 0)
                      || number_of(src, NULL, &ends[0]) != 0 || number_of(dst, NULL, &ends[1]) != 0;
    Py_XDECREF(src);
    Py_XDECREF(dst);
    if (wrong)
        return NULL;
    return done(brick_moved(way, ends[0], ends[1], core_key(), moved, elapsed != Py_None ? &elapsed_ns : NULL));
}

PyObject *core_needs(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"", "brick", NULL};
    PyObject *needed, *brick = Py_None;
    uint32_t numbers[2] = {BRICK_UNNAMED, BRICK_UNNAMED};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|O:needs", names, &needed, &brick))
        return NULL;
    if (brick_is_off())
        Py_RETURN_NONE;
    if (number_of(needed, NULL, &numbers[0]) != 0 || (brick != Py_None && number_of(brick, NULL, &numbers[1]) != 0))
        return NULL;
    return done(brick_needs(numbers[1], numbers[0], core_key()));
}

PyObject *core_defined(PyObject *module, PyObject *args)
{
    Brick *b;
    PyObject *file;
    unsigned long line;
    uint32_t number;
    if (!PyArg_ParseTuple(args, "O!Uk:_defined", core_state.brick_type, &b, &file, &line))
        return NULL;
    if (brick_is_off())
        Py_RETURN_NONE;
    if (number_of((PyObject *)b, NULL, &number) != 0)
        return NULL;
    Py_ssize_t length;
    const char *text = PyUnicode_AsUTF8AndSize(file, &length);
    if (text == NULL)
        PyErr_Clear();
    else
        brick_defined(number, brick_name(text, (size_t)length, NULL), line < UINT32_MAX ? (uint32_t)line : UINT32_MAX, core_key());
    Py_RETURN_NONE;
}

PyObject *core_task_ended(PyObject *module, PyObject *brick)
{
    uint32_t number;
    if (!Py_IS_TYPE(brick, core_state.brick_type))
        return PyErr_Format(PyExc_TypeError, "brick_agent: _task_ended takes a brick, not %R", brick);
    if (brick_is_off())
        Py_RETURN_NONE;
    if (number_of(brick, NULL, &number) != 0)
        return NULL;
    return done(brick_task_ended(number, core_key()));
}

PyObject *core_tell(PyObject *module, PyObject *args)
{
    struct brick_text source;
    Py_ssize_t length;
    unsigned long long hash, from;
    if (!PyArg_ParseTuple(args, "s#zzKK:_tell", &source.text, &length, &source.name, &source.path, &hash, &from))
        return NULL;
    source.length = (size_t)length;
    uint64_t told = from;
    const unsigned outcome = brick_is_off() ? BRICK_REFUSED : brick_source_tell(&source, hash, core_key(), &told);
    if ((outcome & BRICK_JOINED) != 0)
        core_watch();
    return PyLong_FromLongLong((outcome & BRICK_REFUSED) != 0 ? (long long)told : -1);
}

PyObject *core_source_hash(PyObject *module, PyObject *text)
{
    Py_ssize_t length;
    const char *bytes = PyUnicode_AsUTF8AndSize(text, &length);
    return bytes != NULL ? PyLong_FromUnsignedLongLong(brick_source_hash(bytes, (size_t)length)) : NULL;
}
