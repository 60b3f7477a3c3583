/* python/fn_spans.c - functions of brickd.shm._reader that turn recorded slots into rows of spans, and rows into
 * text. */
#include "../core/span_lines.h"
#include "../core/span_rows.h"
#include "py_types.h"

/* Returns how many elements of this size a buffer has. If its size is no multiple of `size`, or if it is not aligned,
 * returns -1 with an exception. */
static Py_ssize_t elements_in(const Py_buffer *buffer, size_t size, const char *what)
{
    if (buffer->len % (Py_ssize_t)size == 0 && (uintptr_t)buffer->buf % 8 == 0)
        return buffer->len / (Py_ssize_t)size;
    PyErr_Format(PyExc_ValueError, "%zd bytes of %s, expected a multiple of %zu, aligned to 8", buffer->len, what, size);
    return -1;
}

int pieces_of(const Py_buffer *text, const Py_buffer *offsets, struct brick_pieces *p)
{
    const size_t count = (size_t)offsets->len / sizeof *p->offsets;
    *p = (struct brick_pieces){text->buf, offsets->buf, count > 0 ? count - 1 : 0};
    int valid = (size_t)offsets->len % sizeof *p->offsets == 0 && count > 0 && p->offsets[count - 1] <= (size_t)text->len;
    for (size_t i = 0; valid && i + 1 < count; i++)
        valid = p->offsets[i] <= p->offsets[i + 1];
    if (!valid)
        PyErr_Format(PyExc_ValueError,
                     "%zd bytes of offsets into %zd bytes of text, expected increasing offsets within the text",
                     offsets->len, text->len);
    return valid;
}

PyObject *reader_span_rows(PyObject *module, PyObject *args)
{
    Py_buffer slots, paths, knots, into;
    unsigned long long sequence, lost, step;
    long long longer_ns;
    int has_step;
    if (!PyArg_ParseTuple(args, "y*KKy*y*LpKw*:span_rows", &slots, &sequence, &lost, &paths, &knots, &longer_ns, &has_step,
                          &step, &into))
        return NULL;
    const Py_ssize_t count = elements_in(&slots, sizeof(struct brick_record), "slots");
    const Py_ssize_t pairs = count < 0 ? -1 : elements_in(&knots, sizeof(struct brick_knot), "clock pairs");
    struct brick_row_state state = {.sequence = sequence, .lost = lost};
    size_t made = 0;
    const int valid = pairs > 0 && paths.len > 0 && into.len >= count * (Py_ssize_t)sizeof(struct brick_span_row)
                      && (uintptr_t)into.buf % 8 == 0;
    if (valid) {
        const struct brick_row_rules rules = {paths.buf, (uint32_t)(paths.len - 1), knots.buf, (size_t)pairs, longer_ns,
                                              has_step, step};
        Py_BEGIN_ALLOW_THREADS
        made = brick_span_rows(slots.buf, (size_t)count, &rules, &state, into.buf);
        Py_END_ALLOW_THREADS
    } else if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_ValueError, "%zd clock pairs, %zd paths, room for %zd bytes: expected at least 1, 1 and %zd", pairs,
                     paths.len, into.len, count * (Py_ssize_t)sizeof(struct brick_span_row));
    }
    PyBuffer_Release(&slots);
    PyBuffer_Release(&paths);
    PyBuffer_Release(&knots);
    PyBuffer_Release(&into);
    return !valid ? NULL
                  : Py_BuildValue("(nKKKKK)", (Py_ssize_t)made, (unsigned long long)state.sequence,
                                  (unsigned long long)state.lost, (unsigned long long)state.missing,
                                  (unsigned long long)state.rejected, (unsigned long long)state.skipped);
}

PyObject *reader_deferred_slots(PyObject *module, PyObject *args)
{
    Py_buffer slots;
    unsigned long long at, sequence;
    if (!PyArg_ParseTuple(args, "y*KK:deferred_slots", &slots, &at, &sequence))
        return NULL;
    const Py_ssize_t count = elements_in(&slots, sizeof(struct brick_record), "slots");
    struct brick_row_state state = {.sequence = sequence};
    PyObject *found = count < 0 ? NULL : PyBytes_FromStringAndSize(NULL, slots.len);
    if (found != NULL) {
        const size_t made = brick_deferred_slots(slots.buf, at, (size_t)count, &state,
                                                 (struct brick_record *)(void *)PyBytes_AS_STRING(found));
        _PyBytes_Resize(&found, (Py_ssize_t)(made * sizeof(struct brick_record)));
    }
    PyBuffer_Release(&slots);
    return found == NULL ? NULL
                         : Py_BuildValue("(NKKK)", found, (unsigned long long)state.sequence,
                                         (unsigned long long)state.missing, (unsigned long long)state.rejected);
}

/* Sets `texts` to the content of a tuple of `count` bytes objects. Returns 0 with an exception on failure. */
static int texts_of(PyObject *tuple, struct brick_text *texts, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; PyTuple_GET_SIZE(tuple) == count && i < count; i++) {
        char *text;
        Py_ssize_t length;
        if (PyBytes_AsStringAndSize(PyTuple_GET_ITEM(tuple, i), &text, &length) != 0)
            return 0;
        texts[i] = (struct brick_text){text, (size_t)length};
    }
    if (PyTuple_GET_SIZE(tuple) == count)
        return 1;
    PyErr_Format(PyExc_ValueError, "%zd texts, expected %zd", PyTuple_GET_SIZE(tuple), count);
    return 0;
}

PyObject *reader_span_lines(PyObject *module, PyObject *args)
{
    struct brick_line_form form;
    Py_buffer rows, places, offsets, into;
    PyObject *kinds, *before;
    Py_ssize_t track, end, none, quote;
    long long epoch_ns;
    if (!PyArg_ParseTuple(args, "y*y#y*y*O!O!y#y#y#Lw*:span_lines", &rows, &form.track.text, &track, &places, &offsets,
                          &PyTuple_Type, &kinds, &PyTuple_Type, &before, &form.end.text, &end, &form.none.text, &none,
                          &form.quote.text, &quote, &epoch_ns, &into))
        return NULL;
    form.track.length = (size_t)track;
    form.end.length = (size_t)end;
    form.none.length = (size_t)none;
    form.quote.length = (size_t)quote;
    form.epoch_ns = epoch_ns;
    size_t done = 0, used = 0;
    const Py_ssize_t count = elements_in(&rows, sizeof(struct brick_span_row), "rows");
    const int valid = count >= 0 && pieces_of(&places, &offsets, &form.places) && texts_of(kinds, form.kinds, BRICK_ROW_KINDS)
                      && texts_of(before, form.before, BRICK_LINE_NUMBERS);
    if (valid) {
        Py_BEGIN_ALLOW_THREADS
        done = brick_span_lines(rows.buf, (size_t)count, &form, into.buf, (size_t)into.len, &used);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&rows);
    PyBuffer_Release(&places);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&into);
    return valid ? Py_BuildValue("(nn)", (Py_ssize_t)done, (Py_ssize_t)used) : NULL;
}
