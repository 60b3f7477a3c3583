/* python/capsule.c - the capsule through which other extensions reach this process's writer.
 *
 * Most calls come without the interpreter lock, on threads that Python may not know. These calls read only constant
 * fields of a handle and use no other object. Without the lock, they cannot take a reference to a key. So a begin that
 * opens the first span of a key marks the key as borrowed: the task keeps its key alive.
 */
#include "brick.h"
#include "context_key.h"
#include "methods.h"
#include "opening.h"

#include "brick_python.h"

/* ---- with the interpreter lock ------------------------------------------ */

static struct brick_handle *native_brick(const char *name, const char *category)
{
    const CoreRaised raised = core_put_aside();
    PyObject *text = PyUnicode_DecodeUTF8(name, (Py_ssize_t)strlen(name), "replace");
    PyObject *kind = category != NULL ? PyUnicode_DecodeUTF8(category, (Py_ssize_t)strlen(category), "replace") : NULL;
    Brick *b = text != NULL ? core_handle(text, kind != NULL ? kind : Py_None) : NULL;
    Py_XDECREF(text);
    Py_XDECREF(kind);
    core_put_back(raised);
    return (struct brick_handle *)(b != NULL ? b : core_state.other);
}

static const void *native_task(void)
{
    if (!brick_is_off())
        core_watch();
    return core_key();
}

/* ---- with or without the interpreter lock -------------------------------- */

static uint32_t number_of(struct brick_handle *handle)
{
    Brick *b = (Brick *)handle;
    if (__builtin_expect(__atomic_load_n(&b->number, __ATOMIC_RELAXED) == BRICK_UNNAMED, 0))
        core_resolve_unlocked(b);
    return __atomic_load_n(&b->number, __ATOMIC_RELAXED);
}

static void native_begin(struct brick_handle *brick, const void *task, const uint64_t *step)
{
    if (brick_is_off())
        return;
    if ((brick_begin(number_of(brick), task, step) & BRICK_FIRST) != 0)
        brick_borrow(task);
}

static void native_end(struct brick_handle *brick, const void *task, uint64_t elements, uint64_t bytes)
{
    brick_end(((Brick *)brick)->number, task, elements, bytes);
}

static void native_step_end(struct brick_handle *brick, const void *task, uint64_t rows, uint64_t valid)
{
    brick_step_end(((Brick *)brick)->number, task, rows, valid);
}

static void native_record(struct brick_handle *brick, const void *task, uint64_t elapsed_ns, uint64_t elements,
                          uint64_t bytes)
{
    if (!brick_is_off())
        brick_record(number_of(brick), task, elapsed_ns, elements, bytes);
}

static uint64_t native_defer(struct brick_handle *brick, const void *task, uint64_t stream, const uint64_t *step,
                             uint64_t elements, uint64_t bytes)
{
    uint64_t id = 0;
    if (!brick_is_off())
        brick_defer(number_of(brick), task, stream, step, elements, bytes, &id);
    return id;
}

static void native_measured(uint64_t id, uint64_t elapsed_ns) { brick_measured(id, elapsed_ns); }
static void native_finalize(const uint64_t *stream) { brick_finalize(stream); }

static void native_layer_begin(uint32_t layer, const void *task)
{
    core_open_unlocked();
    if ((brick_layer_begin(layer, task) & BRICK_FIRST) != 0)
        brick_borrow(task);
}

static void native_layer_end(uint32_t layer, const void *task) { brick_layer_end(layer, task); }

static uint32_t native_number(struct brick_handle *brick) { return brick_is_off() ? BRICK_UNNAMED : number_of(brick); }

static int native_wants(struct brick_handle *kernel, const void *task, const struct brick_at *at)
{
    return !brick_is_off() && brick_wants(number_of(kernel), task, at);
}

static const char *native_take(struct brick_handle *kernel, const void *task, const struct brick_at *at,
                               const struct brick_tensor *tensor, struct brick_taken *taken)
{
    if (!brick_is_off())
        return brick_take(number_of(kernel), task, at, tensor, taken);
    memset(taken, 0, sizeof *taken);
    return NULL;
}

static void native_checksum(struct brick_handle *kernel, const void *task, const struct brick_at *at,
                            const struct brick_taken *output, const struct brick_taken *inputs, uint32_t count)
{
    if (!brick_is_off())
        brick_checksum(number_of(kernel), task, at, output, inputs, count);
}

static void native_end_of(struct brick_handle *brick, const void *task, const struct brick_amounts *did)
{
    brick_end_of(((Brick *)brick)->number, task, did);
}

static void native_record_of(struct brick_handle *brick, const void *task, uint64_t elapsed_ns,
                             const struct brick_amounts *did)
{
    if (!brick_is_off())
        brick_record_of(number_of(brick), task, elapsed_ns, did);
}

static void native_launched(struct brick_handle *kernel, const void *task, const struct brick_launch *how,
                            const uint64_t *elapsed_ns, const struct brick_amounts *did)
{
    if (!brick_is_off())
        brick_launched(number_of(kernel), task, how, elapsed_ns, did);
}

static void native_moved(enum brick_direction direction, struct brick_handle *from, struct brick_handle *to, const void *task,
                         uint64_t bytes, const uint64_t *elapsed_ns)
{
    if (!brick_is_off())
        brick_moved(direction, number_of(from), number_of(to), task, bytes, elapsed_ns);
}

static void native_needs(struct brick_handle *brick, struct brick_handle *needed, const void *task)
{
    if (!brick_is_off())
        brick_needs(brick != NULL ? number_of(brick) : BRICK_UNNAMED, number_of(needed), task);
}

static struct brick_python native = {
    .size = sizeof native,
    .brick = native_brick,
    .task = native_task,
    .begin = native_begin,
    .end = native_end,
    .step_end = native_step_end,
    .record = native_record,
    .layer_begin = native_layer_begin,
    .layer_end = native_layer_end,
    .is_off = brick_is_off,
    .defer = native_defer,
    .measured = native_measured,
    .finalize = native_finalize,
    .pending = brick_pending,
    .number = native_number,
    .wants = native_wants,
    .take = native_take,
    .checksum = native_checksum,
    .end_of = native_end_of,
    .record_of = native_record_of,
    .launched = native_launched,
    .moved = native_moved,
    .needs = native_needs,
    .step_named = brick_step_named,
};

PyObject *core_native(void) { return PyCapsule_New(&native, BRICK_PYTHON_CAPSULE, NULL); }
