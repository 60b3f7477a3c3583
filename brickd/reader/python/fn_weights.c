/* python/fn_weights.c - processes batches of weight records: finds their tensors and contents, and stores the records.
 *
 * The caller's dicts map tensors and contents to numbers, which are indexes of the caller's arrays. The arrays have the
 * state of the tensors. This code does not trust the numbers: it checks each index against the length of its array.
 */
#include "../core/fingerprint_window.h"
#include "../core/tolerance.h"
#include "py_types.h"

#include <math.h>

#define SLOTS BRICK_CHECKED_SLOTS(0)
#define RECORD_BYTES ((Py_ssize_t)(SLOTS * sizeof(struct brick_record)))
#define SLOT_BYTES ((Py_ssize_t)sizeof(struct brick_record))
#define NOTHING (-1)

/* Two contents are equal if checksum, elements, shape and dtype are equal (analysis/weights/contents.py). */
#define SUMS_BYTES (2 * sizeof(uint64_t))
#define FORM_BYTES (sizeof(uint32_t) + sizeof(uint8_t))
BRICK_ASSERT(offsetof(struct brick_tensor_sums, mean) == SUMS_BYTES, "the first fields are checksum and elements");
BRICK_ASSERT(offsetof(struct brick_tensor_sums, reserved) - offsetof(struct brick_tensor_sums, shape) == FORM_BYTES,
             "dtype follows shape directly");

struct weight {
    struct brick_checked head;
    struct brick_tensor_sums sums;
};

static struct weight weight_at(const Py_buffer *records, Py_ssize_t at)
{
    struct weight w;
    const char *from = (const char *)records->buf + at * RECORD_BYTES;
    memcpy(&w.head, from, sizeof w.head);
    memcpy(&w.sums, from + 2 * sizeof w.head, sizeof w.sums);
    return w;
}

/* Returns the number of a key in a dict, or `none` if the dict lacks the key. On failure, returns -2 with an
 * exception. */
static int64_t number_of(PyObject *dict, PyObject *key, int64_t none)
{
    PyObject *value = key != NULL ? PyDict_GetItemWithError(dict, key) : NULL;
    if (value == NULL)
        return PyErr_Occurred() ? -2 : none;
    const int64_t number = PyLong_AsLongLong(value);
    return number == -1 && PyErr_Occurred() ? -2 : number;
}

static PyObject *tensor_key(const struct weight *w, const uint64_t *sites, size_t count)
{
    const uint64_t site = w->head.site < count ? sites[w->head.site] & ~BRICK_SITE_STATEFUL : 0;
    return (w->head.flags & BRICK_CHECKED_POSITION) != 0
               ? Py_BuildValue("(KK)", (unsigned long long)site, (unsigned long long)w->head.position)
               : Py_BuildValue("(Ki)", (unsigned long long)site, NOTHING);
}

static PyObject *content_key(const struct weight *w)
{
    char key[SUMS_BYTES + FORM_BYTES];
    memcpy(key, &w->sums, SUMS_BYTES);
    memcpy(key + SUMS_BYTES, &w->sums.shape, FORM_BYTES);
    return PyBytes_FromStringAndSize(key, sizeof key);
}

PyObject *reader_weights_of(PyObject *module, PyObject *args)
{
    Py_buffer records, sites;
    PyObject *tensors;
    if (!PyArg_ParseTuple(args, "y*y*O!:weights_of", &records, &sites, &PyDict_Type, &tensors))
        return NULL;
    const Py_ssize_t count = records.len / RECORD_BYTES;
    PyObject *of = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(int32_t));
    for (Py_ssize_t at = 0; of != NULL && at < count; at++) {
        const struct weight w = weight_at(&records, at);
        PyObject *key = tensor_key(&w, sites.buf, (size_t)sites.len / sizeof(uint64_t));
        const int64_t tensor = number_of(tensors, key, NOTHING);
        Py_XDECREF(key);
        ((int32_t *)(void *)PyBytes_AS_STRING(of))[at] = (int32_t)tensor;
        if (tensor == -2)
            Py_CLEAR(of);
    }
    PyBuffer_Release(&records);
    PyBuffer_Release(&sites);
    return of;
}

/* ---- contents ------------------------------------------------------------ */

/* The lists and the dict of analysis/weights/contents.py: the number of each content, the contents by number, and the
 * numbers that are not in use. */
struct contents {
    PyObject *numbers, *contents, *unused;
};

static PyObject *next_number(const struct contents *c)
{
    const Py_ssize_t unused = PyList_GET_SIZE(c->unused);
    if (unused == 0)
        return PyLong_FromSsize_t(PyList_GET_SIZE(c->contents));
    PyObject *number = Py_NewRef(PyList_GET_ITEM(c->unused, unused - 1));
    if (PyList_SetSlice(c->unused, unused - 1, unused, NULL) != 0)
        Py_CLEAR(number);
    return number;
}

/* Stores a record, without its first slot, under the next unused number, and returns this number. On failure, returns
 * -2 with an exception. */
static int64_t keep(const struct contents *c, PyObject *key, const char *record)
{
    PyObject *bytes = PyBytes_FromStringAndSize(record + SLOT_BYTES, RECORD_BYTES - SLOT_BYTES), *number = next_number(c);
    Py_ssize_t at = bytes != NULL && number != NULL ? PyLong_AsSsize_t(number) : -1;
    int failed = at < 0;
    if (!failed && at == PyList_GET_SIZE(c->contents))
        failed = PyList_Append(c->contents, bytes);
    else if (!failed)
        failed = PyList_SetItem(c->contents, at, Py_NewRef(bytes));
    if (!failed)
        failed = PyDict_SetItem(c->numbers, key, number);
    Py_XDECREF(bytes);
    Py_XDECREF(number);
    return failed ? -2 : at;
}

PyObject *reader_weights_held(PyObject *module, PyObject *args)
{
    Py_buffer records;
    struct contents c;
    Py_ssize_t most;
    if (!PyArg_ParseTuple(args, "y*O!O!O!n:weights_held", &records, &PyDict_Type, &c.numbers, &PyList_Type, &c.contents,
                          &PyList_Type, &c.unused, &most))
        return NULL;
    const Py_ssize_t count = records.len / RECORD_BYTES;
    PyObject *numbers = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(uint32_t));
    for (Py_ssize_t at = 0; numbers != NULL && at < count; at++) {
        const struct weight w = weight_at(&records, at);
        PyObject *key = content_key(&w);
        int64_t content = number_of(c.numbers, key, 0);
        if (content == 0 && PyDict_GET_SIZE(c.numbers) < most)
            content = keep(&c, key, (const char *)records.buf + at * RECORD_BYTES);
        Py_XDECREF(key);
        ((uint32_t *)(void *)PyBytes_AS_STRING(numbers))[at] = (uint32_t)content;
        if (content == -2)
            Py_CLEAR(numbers);
    }
    PyBuffer_Release(&records);
    return numbers;
}

/* ---- the state of a worker's tensors --------------------------------------- */

/* The columns of analysis/weights/worker_tensors.py, which have one row for each tensor of a worker. `now` has the
 * number of the tensor's content; 0 means that the content is unknown. */
struct rows {
    uint64_t *generations, *ticks, *first_ticks;
    uint32_t *now, *firsts;
    uint8_t *named;
    size_t count;
};

/* How often each content is used, and a list (`left`) that gets the contents that are no longer used. */
struct uses {
    uint32_t *uses;
    size_t count;
    PyObject *left;
};

struct put {
    uint64_t changes, refused;
    int failed;
};

static void leave(struct uses *u, uint32_t content, struct put *p)
{
    if (content == 0 || content >= u->count || u->uses[content] > 0)
        return;
    PyObject *number = PyLong_FromUnsignedLong(content);
    p->failed |= number == NULL || PyList_Append(u->left, number) != 0;
    Py_XDECREF(number);
}

static void release(struct uses *u, uint32_t content, struct put *p)
{
    if (content == 0 || content >= u->count)
        return;
    u->uses[content]--;
    leave(u, content, p);
}

enum { NOW = 1, FIRST = 2, BOTH = NOW | FIRST };

/* Of each tensor, two records are stored: the newest one, and the first one of the same generation. Returns which of
 * the two are replaced by a new record: both, if none is stored or if the new record begins a generation; the newest
 * one, if the new record is newer; the first one, if the new record is older; otherwise none. */
static int takes(const struct rows *r, size_t n, uint64_t generation, uint64_t ticks)
{
    if (r->now[n] == 0)
        return BOTH;
    if (ticks > r->ticks[n])
        return generation == r->generations[n] ? NOW : BOTH;
    return ticks < r->first_ticks[n] && generation == r->generations[n] ? FIRST : 0;
}

/* Clears the row of a tensor. This is done when there is no room for its new content, because otherwise its old content
 * would look current. */
static void clear(const struct rows *r, size_t n, struct uses *u, struct put *p)
{
    release(u, r->now[n], p);
    release(u, r->firsts[n], p);
    r->generations[n] = r->ticks[n] = r->first_ticks[n] = 0;
    r->now[n] = r->firsts[n] = r->named[n] = 0;
}

static void put(const struct rows *r, size_t n, const struct brick_checked *head, uint32_t content, struct uses *u,
                struct put *p)
{
    const int which = takes(r, n, head->step, head->ticks);
    if (which == 0)
        return;
    if (content == 0 || content >= u->count) {
        p->refused++;
        p->changes++;
        clear(r, n, u, p);
        return;
    }
    const uint32_t now = r->now[n], first = r->firsts[n];
    p->changes += head->step != r->generations[n] || ((which & NOW) != 0 && now != content)
            || ((which & FIRST) != 0 && first != content);
    u->uses[content] += (uint32_t)((which & NOW) != 0) + (uint32_t)((which & FIRST) != 0);
    if ((which & NOW) != 0) {
        r->generations[n] = head->step;
        r->ticks[n] = head->ticks;
        r->now[n] = content;
        release(u, now, p);
    }
    if ((which & FIRST) != 0) {
        r->first_ticks[n] = head->ticks;
        r->firsts[n] = content;
        release(u, first, p);
    }
    r->named[n] = (head->flags & BRICK_CHECKED_STEP) != 0;
}

enum { RECORDS, OF, HOLD, USES, GENERATIONS, TICKS, NOW_, FIRST_TICKS, FIRSTS, NAMED, BUFFERS };

static PyObject *put_all(const Py_buffer *b)
{
    const struct rows rows = {
        .generations = b[GENERATIONS].buf, .ticks = b[TICKS].buf, .first_ticks = b[FIRST_TICKS].buf,
        .now = b[NOW_].buf, .firsts = b[FIRSTS].buf, .named = b[NAMED].buf, .count = (size_t)b[NAMED].len};
    const Py_ssize_t count = b[RECORDS].len / RECORD_BYTES;
    const Py_ssize_t wide = b[NAMED].len * (Py_ssize_t)sizeof(uint64_t), narrow = b[NAMED].len * (Py_ssize_t)sizeof(uint32_t);
    if (b[OF].len != count * (Py_ssize_t)sizeof(int32_t) || b[HOLD].len != b[OF].len || b[GENERATIONS].len != wide
        || b[TICKS].len != wide || b[FIRST_TICKS].len != wide || b[NOW_].len != narrow || b[FIRSTS].len != narrow) {
        PyErr_Format(PyExc_ValueError, "the arrays do not fit %zd records and %zd rows", count, b[NAMED].len);
        return NULL;
    }
    struct uses uses = {.uses = b[USES].buf, .count = (size_t)b[USES].len / sizeof(uint32_t), .left = PyList_New(0)};
    struct put p = {.failed = uses.left == NULL};
    for (Py_ssize_t at = 0; !p.failed && at < count; at++) {
        const struct weight w = weight_at(&b[RECORDS], at);
        const int32_t n = ((const int32_t *)b[OF].buf)[at];
        if (n >= 0 && (size_t)n < rows.count) {
            put(&rows, (size_t)n, &w.head, ((const uint32_t *)b[HOLD].buf)[at], &uses, &p);
        } else if (n >= 0) {
            p.refused++;
            p.changes++;
        }
    }
    for (Py_ssize_t at = 0; !p.failed && at < count; at++)
        leave(&uses, ((const uint32_t *)b[HOLD].buf)[at], &p);
    if (!p.failed)
        return Py_BuildValue("(KKN)", (unsigned long long)p.changes, (unsigned long long)p.refused, uses.left);
    Py_XDECREF(uses.left);
    return NULL;
}

PyObject *reader_weights_put(PyObject *module, PyObject *args)
{
    Py_buffer b[BUFFERS];
    if (!PyArg_ParseTuple(args, "y*y*y*w*w*w*w*w*w*w*:weights_put", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5], &b[6], &b[7],
                          &b[8], &b[9]))
        return NULL;
    PyObject *result = put_all(b);
    for (size_t i = 0; i < BUFFERS; i++)
        PyBuffer_Release(&b[i]);
    return result;
}

/* ---- two records ------------------------------------------------------- */

PyObject *reader_tensor_error(PyObject *module, PyObject *args)
{
    struct brick_record one[SLOTS] = {{0}}, other[SLOTS] = {{0}};
    const Py_ssize_t size = RECORD_BYTES - SLOT_BYTES;
    Py_buffer a, b;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*y*:tensor_error", &a, &b))
        return NULL;
    if (a.len != size || b.len != size) {
        PyErr_Format(PyExc_ValueError, "%zd and %zd bytes, expected %zd each", a.len, b.len, size);
    } else {
        memcpy(one + 1, a.buf, (size_t)size);
        memcpy(other + 1, b.buf, (size_t)size);
        const float error = brick_tensor_error(one, other, 0);
        result = isfinite(error) ? PyFloat_FromDouble(error) : Py_NewRef(Py_None);
    }
    PyBuffer_Release(&a);
    PyBuffer_Release(&b);
    return result;
}
