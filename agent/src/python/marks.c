/* python/marks.c - kernel(), transfer(), needs(); marks of functions, tasks, sources and canaries for the Python
 * files. */
#include "arguments.h"
#include "brick.h"
#include "context_key.h"
#include "methods.h"
#include "opening.h"

#include "brick_graph.h"
#include "../writer/canary.h"
#include "../writer/lifecycle.h"
#include "../writer/thread.h"

#include <string.h>

const char core_kernel_doc[] = PyDoc_STR(
"kernel(name, grid=None, block=None, shared_mem=0, *, source=None, elapsed_ns=None, elements=0, bytes=0, flops=0)\n"
"--\n\n"
"Record that the open span launched a kernel. Launches are counted by place and shape.\n\n"
"grid, block: the number of blocks, and of threads in a block: one number, or up to three. shared_mem: bytes of shared\n"
"memory per block. source: a result of brick.source(), or a text. elapsed_ns: the time measured by the device; if it is\n"
"not known yet, call defer() of the brick with the same name.\n\n"
">>> with brick.span(\"RmsNorm\"):\n"
"...     brick.kernel(\"rmsnorm_kernel\", grid=16, block=(256, 1, 1), shared_mem=1024)\n");
const char core_transfer_doc[] = PyDoc_STR(
"transfer(direction, bytes, *, src='host', dst='device', elapsed_ns=None)\n"
"--\n\n"
"Record that the open span moved bytes: \"H2D\" to a device, \"D2H\" back to the host, \"D2D\" on the device.\n\n"
"src, dst: buffers or devices. Bytes that the same thread had just moved in the other direction are counted as\n"
"returned.\n\n"
">>> brick.transfer(\"H2D\", 1 << 20, src=\"tokens\", dst=\"tokens@gpu0\")\n"
">>> brick.transfer(\"D2H\", 1 << 20, src=\"tokens@gpu0\", dst=\"tokens\")\n");
const char core_needs_doc[] = PyDoc_STR(
"needs(needed, /, brick=None)\n--\n\n"
"Record that a brick cannot begin before another one has ended.\n\n"
"brick: the name of a brick in the open span; None: the open span itself.\n\n"
">>> with brick.span(\"attention\"):\n"
"...     brick.needs(\"qkv\")\n");

/* ---- arguments ----------------------------------------------------------- */

/* Like core_handle, but creates no handle if there is no room for another name of a mark. */
static Brick *handle_of(PyObject *name)
{
    if (Py_IS_TYPE(name, core_state.brick_type))
        return (Brick *)name;
    if (brick_room_for_marks())
        return core_handle(name, Py_None);
    PyObject *text = core_text(name);
    Brick *known = text != NULL ? (Brick *)PyDict_GetItemWithError(core_state.handles, text) : NULL;
    Py_XDECREF(text);
    if (text == NULL || known != NULL)
        return known;
    if (core_complain("marks have used half of BRICKD_NAMES (raise it), so a name is recorded as 'other'", name) != 0)
        return NULL;
    brick_name("", 0, NULL); /* counts the refusal */
    return core_state.other;
}

/* Opens the segment. Sets *number to the name's id, or to BRICK_UNNAMED while nothing is recorded. Returns 0, or -1
 * with an exception set. */
static int number_of(PyObject *name, PyObject *category, uint32_t *number)
{
    Brick *b = handle_of(name);
    if (b != NULL && b->category == Py_None && category != NULL && b != core_state.other)
        b = core_handle(b->name, category);
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

/* If the value is invalid, sets one of the numbers to 0, so that the writer counts the shape as invalid. */
static int to_extents(PyObject *value, uint32_t extents[3])
{
    static const uint32_t impossible[3] = {0, 1, 1};
    extents[0] = extents[1] = extents[2] = core_is_given(value);
    if (!core_is_given(value))
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

/* Reads the bytes of shared memory. If the number is invalid, sets the grid to invalid numbers, so that the writer
 * counts the shape as invalid. */
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

/* Sets how->source to a hash. The value may be this hash, a text, or the result of brick.source(); a text and a result
 * with unwritten pieces are passed to brick.source() first. Any other value makes the shape invalid, and the writer
 * counts this. */
static int to_source(PyObject *value, struct brick_launch *how)
{
    static PyObject *text, *sources; /* never freed */
    PyObject *hash = NULL, *left = NULL;
    if (!core_is_given(value))
        return 0;
    if (PyLong_CheckExact(value)) {
        hash = Py_NewRef(value);
    } else if (text != NULL || (text = PyUnicode_InternFromString("text")) != NULL) {
        left = PyLong_Check(value) ? PyObject_GetAttr(value, text) : PyUnicode_Check(value) ? Py_NewRef(value) : NULL;
        if (left == Py_None)
            hash = Py_NewRef(value);
        else if (left != NULL && (sources != NULL || (sources = PyImport_ImportModule("brick_agent._kernel_source")) != NULL))
            hash = PyObject_CallMethod(sources, "source", "O", value);
        Py_XDECREF(left);
    }
    if (hash != NULL)
        how->source = PyLong_AsUnsignedLongLong(hash);
    Py_XDECREF(hash);
    if (hash != NULL && !PyErr_Occurred())
        return 0;
    how->source = 0, how->grid[0] = 0, how->block[0] = 1;
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) /* the exception is an interrupt */
        return -1;
    return core_complain("a source must be a text or a hash of 64 bits", value);
}

static PyObject *done(unsigned outcome)
{
    if (outcome != BRICK_DONE)
        core_watch();
    Py_RETURN_NONE;
}

/* ---- marks ---------------------------------------------------------------- */

PyObject *core_kernel(PyObject *module, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    enum { NAME, GRID, BLOCK, SHARED, SOURCE, ELAPSED, ELEMENTS, BYTES, FLOPS };
    static const char *const known[] = {"name",       "grid",     "block", "shared_mem", "source",
                                        "elapsed_ns", "elements", "bytes", "flops"};
    static CoreCall call = {"kernel", 1, 4, 9, known, {NULL}};
    static PyObject *category;
    PyObject *of[CORE_ARGUMENTS];
    struct brick_launch how = {.source = 0};
    struct brick_amounts did = {0, 0, 0};
    uint64_t elapsed_ns = 0;
    uint32_t number;
    if (core_arguments(&call, args, given, names, of) != 0)
        return NULL;
    if (brick_is_off())
        Py_RETURN_NONE;
    if ((category == NULL && (category = PyUnicode_InternFromString("kernel")) == NULL)
        || to_extents(of[GRID], how.grid) != 0 || to_extents(of[BLOCK], how.block) != 0
        || (of[SHARED] != NULL && to_shared(of[SHARED], &how) != 0) || to_source(of[SOURCE], &how) != 0
        || (core_is_given(of[ELAPSED]) && core_elapsed(of[ELAPSED], &elapsed_ns) != 0)
        || (of[ELEMENTS] != NULL && core_amount(of[ELEMENTS], &did.elements) != 0)
        || (of[BYTES] != NULL && core_amount(of[BYTES], &did.bytes) != 0)
        || (of[FLOPS] != NULL && core_flops(of[FLOPS], &did.flops) != 0) || number_of(of[NAME], category, &number) != 0)
        return NULL;
    return done(brick_launched(number, core_key(), &how, core_is_given(of[ELAPSED]) ? &elapsed_ns : NULL, &did));
}

PyObject *core_node(PyObject *module, PyObject *args)
{
    PyObject *node, *elapsed, *elements, *bytes, *flops;
    struct brick_amounts did;
    uint64_t stated_ns;
    uint32_t number;
    if (!PyArg_ParseTuple(args, "OOOOO:_node", &node, &elapsed, &elements, &bytes, &flops))
        return NULL;
    if (brick_is_off())
        Py_RETURN_NONE;
    if (core_elapsed(elapsed, &stated_ns) != 0 || core_amount(elements, &did.elements) != 0
        || core_amount(bytes, &did.bytes) != 0 || core_flops(flops, &did.flops) != 0 || number_of(node, NULL, &number) != 0)
        return NULL;
    return done(brick_node(number, core_key(), stated_ns, &did));
}

PyObject *core_node_begin(PyObject *module, PyObject *node)
{
    uint32_t number;
    if (brick_is_off())
        Py_RETURN_FALSE;
    if (number_of(node, NULL, &number) != 0)
        return NULL;
    const void *key = core_key();
    const unsigned outcome = brick_node_begin(number, key);
    core_begun(outcome, key);
    return PyBool_FromLong((outcome & BRICK_AGAIN) != 0);
}

PyObject *core_context(PyObject *module, PyObject *unused)
{
    PyObject *context = (PyObject *)(uintptr_t)core_key();
    return context != NULL ? Py_NewRef(context) : PyErr_NoMemory();
}

PyObject *core_place(PyObject *module, PyObject *unused)
{
    const struct brick_place place = brick_place_of(core_key());
    return Py_BuildValue("KI", (unsigned long long)place.begun, (unsigned)place.layer);
}

PyObject *core_node_end(PyObject *module, PyObject *node)
{
    uint32_t number;
    if (brick_is_off())
        Py_RETURN_NONE;
    if (number_of(node, NULL, &number) != 0)
        return NULL;
    const void *key = core_key();
    return core_ended(brick_node_end(number, key), key);
}

PyObject *core_node_defined(PyObject *module, PyObject *args)
{
    PyObject *file, *line;
    uint32_t name, number;
    if (!PyArg_ParseTuple(args, "OO:_node_defined", &file, &line))
        return NULL;
    if (brick_is_off())
        Py_RETURN_NONE;
    if ((core_is_given(line) ? core_to_layer(line, &number) : (number = BRICK_NO_LAYER, 0)) != 0
        || (core_is_given(file) ? number_of(file, NULL, &name) : (name = BRICK_UNNAMED, 0)) != 0)
        return NULL;
    return done(brick_node_defined(name, number, core_key()));
}

PyObject *core_node_task(PyObject *module, PyObject *args)
{
    PyObject *polls, *yields;
    uint64_t polled, yielded;
    if (!PyArg_ParseTuple(args, "OO:_node_task", &polls, &yields))
        return NULL;
    if (brick_is_off())
        Py_RETURN_NONE;
    if (core_amount(polls, &polled) != 0 || core_amount(yields, &yielded) != 0)
        return NULL;
    return done(brick_node_task(polled, yielded, core_key()));
}

static int to_direction(PyObject *value, enum brick_direction *direction)
{
    static const char *const known[] = {"H2D", "D2H", "D2D"};
    for (int i = 0; PyUnicode_Check(value) && i < 3; i++)
        if (PyUnicode_CompareWithASCIIString(value, known[i]) == 0) {
            *direction = (enum brick_direction)i;
            return 0;
        }
    *direction = (enum brick_direction)3; /* no direction has this number: the writer counts it as invalid */
    return core_complain("a direction must be \"H2D\", \"D2H\" or \"D2D\"", value);
}

PyObject *core_transfer(PyObject *module, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    enum { DIRECTION, SIZE, SRC, DST, ELAPSED };
    static const char *const known[] = {"direction", "bytes", "src", "dst", "elapsed_ns"};
    static CoreCall call = {"transfer", 2, 2, 5, known, {NULL}};
    static PyObject *host, *device;
    PyObject *of[CORE_ARGUMENTS];
    enum brick_direction way;
    uint64_t moved, elapsed_ns = 0;
    uint32_t ends[2];
    if (core_arguments(&call, args, given, names, of) != 0)
        return NULL;
    if (brick_is_off())
        Py_RETURN_NONE;
    if ((host == NULL && (host = PyUnicode_InternFromString("host")) == NULL)
        || (device == NULL && (device = PyUnicode_InternFromString("device")) == NULL)
        || to_direction(of[DIRECTION], &way) != 0 || core_amount(of[SIZE], &moved) != 0
        || (core_is_given(of[ELAPSED]) && core_elapsed(of[ELAPSED], &elapsed_ns) != 0)
        || number_of(of[SRC] != NULL ? of[SRC] : host, NULL, &ends[0]) != 0
        || number_of(of[DST] != NULL ? of[DST] : device, NULL, &ends[1]) != 0)
        return NULL;
    return done(brick_moved(way, ends[0], ends[1], core_key(), moved, core_is_given(of[ELAPSED]) ? &elapsed_ns : NULL));
}

PyObject *core_needs(PyObject *module, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    static const char *const known[] = {"needed", "brick"};
    static CoreCall call = {"needs", 1, 2, 2, known, {NULL}};
    PyObject *of[CORE_ARGUMENTS];
    uint32_t numbers[2] = {BRICK_UNNAMED, BRICK_UNNAMED};
    if (core_arguments(&call, args, given, names, of) != 0)
        return NULL;
    if (brick_is_off())
        Py_RETURN_NONE;
    if (number_of(of[0], NULL, &numbers[0]) != 0 || (core_is_given(of[1]) && number_of(of[1], NULL, &numbers[1]) != 0))
        return NULL;
    return done(brick_needs(numbers[1], numbers[0], core_key()));
}

bool core_define(Brick *b, PyObject *file, unsigned long line)
{
    uint32_t number;
    if (brick_is_off())
        return false;
    if (number_of((PyObject *)b, NULL, &number) != 0) {
        PyErr_Clear(); /* a failure to open the segment is reported by the next span */
        return false;
    }
    Py_ssize_t length;
    const char *text = PyUnicode_AsUTF8AndSize(file, &length);
    const uint32_t name = brick_name_for_mark(text, (size_t)length, NULL);
    if (brick_defined(number, name, line < UINT32_MAX ? (uint32_t)line : UINT32_MAX, core_key()) != BRICK_DONE)
        core_watch();
    return brick_state() == BRICK_ON;
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

PyObject *core_send_source(PyObject *module, PyObject *args)
{
    struct brick_text source;
    Py_ssize_t length;
    unsigned long long hash, from;
    if (!PyArg_ParseTuple(args, "z#zzKK:_send_source", &source.text, &length, &source.name, &source.path, &hash, &from))
        return NULL;
    source.length = source.text != NULL ? (size_t)length : BRICK_SOURCE_MAX + 1; /* counted as too long */
    if (core_open_once() != 0)
        return NULL;
    uint64_t piece = from;
    const unsigned outcome = brick_is_off() ? BRICK_REFUSED : brick_source_tell(&source, hash, core_key(), &piece);
    if ((outcome & BRICK_JOINED) != 0)
        core_watch();
    return PyLong_FromLongLong((outcome & BRICK_REFUSED) != 0 ? (long long)piece : -1);
}

PyObject *core_canary_order(PyObject *module, PyObject *unused)
{
    if (core_open_once() != 0)
        return NULL;
    return PyLong_FromUnsignedLongLong(brick_canary_order());
}

PyObject *core_send_canary(PyObject *module, PyObject *args)
{
    const char *text;
    Py_ssize_t length;
    unsigned long long from;
    if (!PyArg_ParseTuple(args, "s#K:_send_canary", &text, &length, &from) || core_open_once() != 0)
        return NULL;
    uint64_t piece = from;
    const unsigned outcome =
        brick_is_off() ? BRICK_REFUSED : brick_canary_tell(text, (size_t)length, core_key(), &piece);
    if ((outcome & BRICK_JOINED) != 0)
        core_watch();
    return PyLong_FromLongLong((outcome & BRICK_REFUSED) != 0 ? (long long)piece : -1);
}

PyObject *core_source_hash(PyObject *module, PyObject *text)
{
    Py_ssize_t length;
    const char *bytes = PyUnicode_AsUTF8AndSize(text, &length);
    return bytes != NULL ? PyLong_FromUnsignedLongLong(brick_source_hash(bytes, (size_t)length)) : NULL;
}
