/* python/step_parts.c - which part of a step each sequence of a batch has, according to its mask and its positions.
 *
 * Owns the rules for a plain mask and for plain positions. Must not know histories or torch. In a plain mask, each row
 * has zeros (padding), then ones (tokens), then zeros (padding). Plain positions grow by one from token to token.
 * Invariants: nothing but an interrupt is raised; only the given tensors are read, and nothing outside of them.
 */
#include "methods.h"
#include "tensor.h"

#include <string.h>

/* A matrix of integers. */
typedef struct {
    CoreTensor held;
    int64_t row, column; /* strides in bytes */
    bool is_given;
} Numbers;

/* The part of a row in a step. The columns are those of the mask, which begins with the first cached column. */
struct part {
    int64_t left;         /* the column of the sequence's first token */
    int64_t begin, count; /* the columns of its tokens in this step */
    int64_t shift;        /* the position of the sequence's first token; -1: unknown */
};

/* Holds a matrix with these extents; one row may stand for all rows if `one_for_all`. Returns 1, 0 if the object is
 * something else, or -1 with an interrupt set. */
static int hold_matrix(PyObject *value, int64_t rows, int64_t columns, bool one_for_all, Numbers *n)
{
    n->is_given = value != Py_None;
    if (!n->is_given)
        return 1;
    if (core_tensor_hold(value, &n->held) != 0) {
        if (!PyErr_ExceptionMatches(PyExc_Exception))
            return -1;
        PyErr_Clear();
        return 0;
    }
    const struct brick_tensor *t = &n->held.tensor;
    const int64_t size = brick_dtype_size(t->dtype);
    const bool is_integer = t->dtype == BRICK_BOOL || t->dtype == BRICK_UINT8 || t->dtype == BRICK_INT32 || t->dtype == BRICK_INT64;
    if (is_integer && t->dims == 2 && t->shape[1] == columns && (t->shape[0] == rows || (one_for_all && t->shape[0] == 1))) {
        n->row = t->shape[0] == 1 ? 0 : t->strides != NULL ? t->strides[0] : size * columns;
        n->column = t->strides != NULL ? t->strides[1] : size;
        return 1;
    }
    core_tensor_release(&n->held);
    return 0;
}

static int64_t number_at(const Numbers *n, int64_t row, int64_t column)
{
    const char *at = (const char *)n->held.tensor.data + row * n->row + column * n->column;
    int64_t wide;
    int32_t narrow;
    switch (n->held.tensor.dtype) {
    case BRICK_INT64: memcpy(&wide, at, sizeof wide); return wide;
    case BRICK_INT32: memcpy(&narrow, at, sizeof narrow); return narrow;
    default: return (unsigned char)*at;
    }
}

/* Returns the first column from `from` on that does not have this value, or `end`. */
static int64_t end_of(const Numbers *mask, int64_t row, int64_t from, int64_t end, int64_t value)
{
    while (from < end && number_at(mask, row, from) == value)
        from++;
    return from;
}

/* Returns whether the mask of this row is plain, and has a token of this step. */
static bool find_tokens(const Numbers *mask, int64_t row, int64_t cached, int64_t end, struct part *p)
{
    p->left = mask->is_given ? end_of(mask, row, 0, end, 0) : 0;
    const int64_t after = mask->is_given ? end_of(mask, row, p->left, end, 1) : end;
    p->begin = p->left > cached ? p->left : cached;
    p->count = after - p->begin;
    return p->count > 0 && (after == end || end_of(mask, row, after, end, 0) == end);
}

/* By default, the position of a token is its column. */
static int64_t shift_of(const Numbers *positions, int64_t row, int64_t cached, const struct part *p)
{
    if (!positions->is_given)
        return p->left;
    const int64_t first = number_at(positions, row, p->begin - cached);
    if (first < 0 || first > INT32_MAX)
        return -1;
    const int64_t shift = first - (p->begin - p->left);
    for (int64_t n = 1; n < p->count; n++)
        if (number_at(positions, row, p->begin - cached + n) != first + n)
            return -1;
    return shift >= 0 && shift <= p->left ? shift : -1;
}

static PyObject *parts_of(const Numbers *mask, const Numbers *positions, int64_t rows, int64_t cached, int64_t columns)
{
    PyObject *all = PyList_New(rows);
    for (int64_t row = 0; all != NULL && row < rows; row++) {
        struct part p;
        PyObject *one = !find_tokens(mask, row, cached, cached + columns, &p)
                            ? Py_NewRef(Py_None)
                            : Py_BuildValue("LLLL", (long long)p.left, (long long)(p.begin - cached), (long long)p.count,
                                            (long long)shift_of(positions, row, cached, &p));
        if (one == NULL)
            Py_CLEAR(all);
        else
            PyList_SET_ITEM(all, row, one);
    }
    return all;
}

PyObject *core_step_parts(PyObject *module, PyObject *args)
{
    PyObject *mask, *positions, *result = NULL;
    long long rows, cached, columns;
    Numbers of_mask, of_positions;
    if (!PyArg_ParseTuple(args, "OOLLL:_step_parts", &mask, &positions, &rows, &cached, &columns))
        return NULL;
    if (rows < 0 || cached < 0 || columns < 0 || columns > INT32_MAX || cached > INT32_MAX)
        return PyUnicode_FromString("mask");
    const int has_mask = hold_matrix(mask, rows, cached + columns, false, &of_mask);
    if (has_mask <= 0)
        return has_mask < 0 ? NULL : PyUnicode_FromString("mask");
    const int has_positions = hold_matrix(positions, rows, columns, true, &of_positions);
    if (has_positions == 0)
        result = PyUnicode_FromString("positions");
    else if (has_positions > 0)
        result = parts_of(&of_mask, &of_positions, rows, cached, columns);
    if (has_positions > 0 && of_positions.is_given)
        core_tensor_release(&of_positions.held);
    if (of_mask.is_given)
        core_tensor_release(&of_mask.held);
    return result;
}
