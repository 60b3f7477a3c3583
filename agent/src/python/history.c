/* python/history.c - History, rows() and StepRows: rows of a step that are recorded with the history of their sequence.
 *
 * Owns the translation of Python arguments for the writer, and the chosen rows of the call that a thread makes. Must not
 * know how a history is computed or which rows are chosen. Invariants: only an unknown argument raises (in strict mode,
 * any error); a history that did not get all tokens of a step is unknown from then on.
 */
#include "arguments.h"
#include "brick_history.h"
#include "checked_request.h"
#include "context_key.h"
#include "json_digest.h"
#include "methods.h"
#include "opening.h"
#include "tensor.h"

#include <string.h>

typedef struct {
    PyObject_HEAD
    struct brick_history history;
} History;

typedef struct {
    PyObject_HEAD
    struct brick_history_rows rows;
} StepRows;

PyDoc_STRVAR(history_doc,
"History(content=None)\n--\n\n"
"The history of a sequence: which tokens filled its cache, and in which steps.\n\n"
"An engine keeps one for each sequence, and passes it to rows() in each step. content: an integer or a string that\n"
"stands for everything else that decides what the tokens mean, such as the name of an adapter. tokens: how many tokens\n"
"filled the cache. Never raises.\n\n"
">>> from array import array\n"
">>> sequence = brick.History()\n"
">>> step = brick.rows([sequence], array(\"i\", [11, 12, 13]), shape=[1, 3])\n"
">>> shared = sequence.copy()  # for a sequence that uses the same cached blocks\n"
">>> sequence.tokens\n"
"3\n");
PyDoc_STRVAR(copy_doc,
"copy($self, /)\n--\n\n"
"Return a history with the same tokens, for a sequence that uses the same cached beginning.\n\n"
">>> brick.History().copy().tokens\n"
"0\n");
PyDoc_STRVAR(truncate_doc,
"truncate($self, tokens, /)\n--\n\n"
"Remove the last tokens, whose keys and values are no longer used.\n\n"
"tokens: these tokens, as for rows().\n\n"
">>> from array import array\n"
">>> sequence = brick.History()\n"
">>> step = brick.rows([sequence], array(\"i\", [11, 12, 13]))\n"
">>> sequence.truncate(array(\"i\", [12, 13]))\n"
">>> sequence.tokens\n"
"1\n");
PyDoc_STRVAR(lose_doc,
"lose($self, reason, /)\n--\n\n"
"Declare that the cache holds something else than the result of these tokens, for example after an eviction.\n\n"
"Rows of this sequence are no longer recorded. Its steps are counted as unknown, with the reason, a name.\n\n"
">>> brick.History().lose(\"evicted\")\n");
const char core_history_rows_doc[] = PyDoc_STR(
"rows(histories, tokens, counts=None, *, at=None, shape=None)\n--\n\n"
"Add the tokens of a step to the histories of its sequences, and choose rows to record.\n\n"
"histories: a list with the history of each sequence. tokens: a tensor of int32 or int64 in this host's memory with the\n"
"tokens that the step computes; the kernels of the step have one row for each of its elements. counts: how many tokens\n"
"each sequence has; by default each has the same number. at: the index of the first token of each sequence in the flat\n"
"tensor; by default, there is no padding, and the tokens of a sequence follow those of the sequence before. shape: what\n"
"decides which kernels run, as JSON: the size of the batch, the length of the longest part and of the longest cache, the\n"
"side of the padding. Only rows that were computed with equal shapes are compared. Without a shape, all steps count as\n"
"steps of one shape. A shape that is not JSON makes the histories unknown.\n\n"
"The result is true if rows were chosen. Its method checksum() records them. Never raises.\n\n"
">>> from array import array\n"
">>> x, y = array(\"f\", [1, 2, 3]), array(\"f\", [2, 4, 6])\n"
">>> sequences = [brick.History(), brick.History()]\n"
">>> step = brick.rows(sequences, array(\"q\", [11, 12, 13]), [2, 1], shape=[2, 2, 2])\n"
">>> if step:\n"
"...     step.checksum(\"attention\", memoryview(bytes(y)).cast(\"f\", [3, 1]), input=memoryview(bytes(x)).cast(\"f\", [3, 1]))\n");
PyDoc_STRVAR(step_rows_doc,
"The chosen rows of a step: the result of rows(). False if no row was chosen.\n\n"
">>> from array import array\n"
">>> bool(brick.rows([], array(\"i\")))\n"
"False\n");
PyDoc_STRVAR(checksum_doc,
"checksum($self, kernel, output, /, *, input=None, layer=None, step=None, backend=None, params=None)\n--\n\n"
"Record the chosen rows of a kernel's output.\n\n"
"output: a tensor with one row for each token of the step, padding included. Its shape is (tokens, columns), not\n"
"(tokens, heads, columns). Other outputs are not recorded, and are counted with the reason `output`. input: the tensor\n"
"from which the kernel computed it, with as many rows. If the kernel overwrote it, leave it out: brickd then finds\n"
"differences, but cannot tell whether they began at this kernel. kernel, layer, step, backend, params: as for\n"
"checksum(). Never raises.\n\n"
">>> from array import array\n"
">>> step = brick.rows([brick.History()], array(\"i\", [11]))\n"
">>> step.checksum(\"attention\", memoryview(bytes(8)).cast(\"f\", [1, 2]), layer=0)\n");

/* ---- errors --------------------------------------------------------------- */

/* Clears the exception. If it must be raised, keeps it and returns -1. */
static int forgive(void)
{
    if (core_must_raise() != 0)
        return -1;
    PyErr_Clear();
    return 0;
}

/* ---- histories ------------------------------------------------------------ */

static History *history_made(const struct brick_history *from)
{
    History *made = PyObject_New(History, core_state.history_type);
    if (made != NULL)
        made->history = *from;
    return made;
}

static PyObject *history_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"content", NULL};
    PyObject *content = Py_None;
    struct brick_history empty = {.tokens = 0};
    bool has;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O:History", names, &content)
        || core_number(content, &empty.content, &has, "a content must be an integer or a string") != 0)
        return NULL;
    if (content != Py_None && !has) /* equal digests must not stand for different contents */
        empty.unknown = BRICK_HISTORY_UNSEEN;
    return (PyObject *)history_made(&empty);
}

static PyObject *history_copy(PyObject *self, PyObject *unused)
{
    return (PyObject *)history_made(&((History *)self)->history);
}

/* Holds a tensor of tokens whose elements follow each other. Returns 1, or 0 if it cannot be read as such; -1 with an
 * exception set. */
static int hold_tokens(PyObject *tokens, CoreTensor *t, uint64_t *count)
{
    if (core_tensor_hold(tokens, t) != 0)
        return forgive();
    int64_t dense = (int64_t)brick_dtype_size(t->tensor.dtype);
    bool is_dense = t->tensor.dtype == BRICK_INT32 || t->tensor.dtype == BRICK_INT64;
    *count = 1;
    for (uint32_t d = t->tensor.dims; d-- > 0;) {
        const int64_t extent = t->tensor.shape[d];
        is_dense &= extent <= 1 || t->tensor.strides == NULL || t->tensor.strides[d] == dense;
        dense *= extent;
        *count *= (uint64_t)extent;
    }
    if (is_dense)
        return 1;
    core_tensor_release(t);
    return core_complain("tokens must be a contiguous tensor of int32 or int64", tokens);
}

static PyObject *history_truncate(PyObject *self, PyObject *tokens)
{
    struct brick_history *h = &((History *)self)->history;
    CoreTensor t;
    uint64_t count;
    const int held = hold_tokens(tokens, &t, &count);
    if (held < 0)
        return NULL;
    if (held == 0)
        brick_history_lose(h, "unreadable", 10);
    else
        brick_history_truncate(h, t.tensor.data, t.tensor.dtype, count);
    if (held > 0)
        core_tensor_release(&t);
    Py_RETURN_NONE;
}

static PyObject *history_lose(PyObject *self, PyObject *reason)
{
    PyObject *text = core_text(reason);
    Py_ssize_t length = 0;
    const char *word = text != NULL ? PyUnicode_AsUTF8AndSize(text, &length) : NULL;
    if (word != NULL && core_open_once() == 0)
        brick_history_lose(&((History *)self)->history, word, (size_t)length);
    Py_XDECREF(text);
    return PyErr_Occurred() && core_must_raise() != 0 ? NULL : (PyErr_Clear(), Py_NewRef(Py_None));
}

static PyObject *history_tokens(PyObject *self, void *unused)
{
    return PyLong_FromUnsignedLong(((History *)self)->history.tokens);
}

static PyMethodDef history_methods[] = {
    {"copy", history_copy, METH_NOARGS, copy_doc},
    {"__copy__", history_copy, METH_NOARGS, "As copy(): an engine may copy its sequences."},
    {"__deepcopy__", history_copy, METH_O, "As copy(): an engine may copy its sequences."},
    {"truncate", history_truncate, METH_O, truncate_doc},
    {"lose", history_lose, METH_O, lose_doc},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef history_fields[] = {
    {"tokens", history_tokens, NULL, "How many tokens filled the cache.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot history_slots[] = {
    {Py_tp_new, history_new},
    {Py_tp_dealloc, core_plain_dealloc},
    {Py_tp_methods, history_methods},
    {Py_tp_getset, history_fields},
    {Py_tp_doc, (void *)history_doc},
    {0, NULL},
};
PyType_Spec core_history_spec = {"brick_agent.History", sizeof(History), 0, Py_TPFLAGS_DEFAULT, history_slots};

/* ---- the rows of a step ---------------------------------------------------- */

/* The sequences of a step. The two lists are NULL if they are not given. */
struct sequences {
    PyObject *histories, *counts, *at; /* tuples */
};

/* Makes all histories of a tuple unknown. Other objects in the tuple are ignored. */
static int lose_all(PyObject *histories, const char *reason)
{
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(histories); n++)
        if (Py_IS_TYPE(PyTuple_GET_ITEM(histories, n), core_state.history_type))
            brick_history_lose(&((History *)PyTuple_GET_ITEM(histories, n))->history, reason, strlen(reason));
    return 0;
}

/* Returns item `n` of a list of integers, or UINT64_MAX if it is not a natural number. */
static uint64_t natural(PyObject *list, Py_ssize_t n)
{
    int overflow;
    const long long number = PyLong_AsLongLongAndOverflow(PyTuple_GET_ITEM(list, n), &overflow);
    PyErr_Clear();
    return number >= 0 && !overflow ? (uint64_t)number : UINT64_MAX;
}

/* Adds the tokens to each history. A history whose tokens are not all in the tensor gets none, and is unknown. */
static void extend(const struct sequences *s, const struct brick_tensor *tokens, uint64_t total,
                   struct brick_history_rows *rows)
{
    const Py_ssize_t sequences = PyTuple_GET_SIZE(s->histories);
    const uint64_t each = sequences > 0 && total % (uint64_t)sequences == 0 ? total / (uint64_t)sequences : UINT64_MAX;
    const uint64_t size = brick_dtype_size(tokens->dtype);
    uint64_t next = 0;
    for (Py_ssize_t n = 0; n < sequences; n++) {
        const uint64_t count = s->counts != NULL ? natural(s->counts, n) : each;
        const uint64_t at = s->at != NULL ? natural(s->at, n) : next;
        const bool fits = at <= total && count <= total - at;
        const void *first = fits ? (const char *)tokens->data + at * size : NULL;
        brick_history_extend(rows, &((History *)PyTuple_GET_ITEM(s->histories, n))->history, first, tokens->dtype, count, at);
        next = fits ? at + count : UINT64_MAX;
    }
}

/* Makes a tuple of a list that has one item per sequence. */
static int one_each(PyObject *list, const struct sequences *s, const char *what, PyObject **tuple)
{
    if (!core_is_given(list))
        return 0;
    *tuple = PySequence_Tuple(list);
    if (*tuple != NULL && PyTuple_GET_SIZE(*tuple) == PyTuple_GET_SIZE(s->histories))
        return 0;
    if (*tuple == NULL && forgive() != 0)
        return -1;
    Py_XSETREF(*tuple, PyTuple_New(0)); /* of no sequence */
    return *tuple == NULL ? -1 : core_complain(what, list);
}

static int histories_of(PyObject *list, PyObject **tuple)
{
    *tuple = PySequence_Tuple(list);
    if (*tuple == NULL) {
        if (Py_IS_TYPE(list, core_state.history_type))
            brick_history_lose(&((History *)list)->history, "arguments", 9);
        return forgive() != 0 ? -1 : core_complain("histories must be a list of History objects", list);
    }
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(*tuple); n++)
        if (!Py_IS_TYPE(PyTuple_GET_ITEM(*tuple, n), core_state.history_type)) {
            lose_all(*tuple, "arguments");
            Py_CLEAR(*tuple);
            return core_complain("histories must be a list of History objects", list);
        }
    return 0;
}

/* Returns 1, or 0 if the shape is not JSON; -1 with an exception set. Other values have no digest that tells them apart,
 * so workers would be compared whose steps have different shapes. */
static int digest_of_shape(PyObject *shape, uint64_t *digest)
{
    *digest = 0;
    if (!core_is_given(shape))
        return 1;
    if (core_digest_json(shape, digest) != 0)
        return forgive() != 0 ? -1 : core_complain("a shape must be JSON: numbers, texts, lists and dicts", shape);
    *digest += *digest == 0;
    return 1;
}

static int step_of(const struct sequences *s, PyObject *tokens, PyObject *given_shape, struct brick_history_rows *rows)
{
    CoreTensor t;
    uint64_t total, shape;
    const Py_ssize_t sequences = PyTuple_GET_SIZE(s->histories);
    const int is_known = digest_of_shape(given_shape, &shape);
    if (is_known < 0)
        return -1;
    if (!is_known || (s->counts != NULL && PyTuple_GET_SIZE(s->counts) != sequences)
        || (s->at != NULL && PyTuple_GET_SIZE(s->at) != sequences))
        return lose_all(s->histories, "arguments");
    const int held = hold_tokens(tokens, &t, &total);
    if (held <= 0)
        return held < 0 ? -1 : lose_all(s->histories, "unreadable");
    brick_history_begin(core_key(), shape, total, BRICK_HISTORY_RATE, rows);
    extend(s, &t.tensor, total, rows);
    brick_history_end(rows);
    core_tensor_release(&t);
    return 0;
}

PyObject *core_history_rows(PyObject *module, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    enum { HISTORIES, TOKENS, COUNTS, AT, SHAPE };
    static const char *const known[] = {"histories", "tokens", "counts", "at", "shape"};
    static CoreCall call = {"rows", 2, 3, 5, known, {NULL}};
    PyObject *of[CORE_ARGUMENTS];
    struct sequences s = {.histories = NULL};
    if (core_arguments(&call, args, given, names, of) != 0)
        return NULL;
    StepRows *made = PyObject_New(StepRows, core_state.step_rows_type);
    if (made == NULL)
        return NULL;
    made->rows = (struct brick_history_rows){.count = 0};
    int wrong = histories_of(of[HISTORIES], &s.histories);
    if (wrong == 0 && s.histories != NULL) {
        core_watch();
        wrong = one_each(of[COUNTS], &s, "counts must have one number for each history", &s.counts) != 0
                || one_each(of[AT], &s, "at must have one number for each history", &s.at) != 0
                || core_open_once() != 0 || step_of(&s, of[TOKENS], of[SHAPE], &made->rows) != 0;
        if (wrong)
            lose_all(s.histories, "arguments");
    }
    Py_XDECREF(s.histories);
    Py_XDECREF(s.counts);
    Py_XDECREF(s.at);
    if (wrong)
        Py_CLEAR(made);
    return (PyObject *)made;
}

/* ---- the call of a model that this thread makes ----------------------------- */

static _Thread_local PyObject *chosen; /* its StepRows, or NULL */

bool core_history_is_chosen(void) { return chosen != NULL; }

PyObject *core_choose(PyObject *module, PyObject *rows)
{
    PyObject *before = chosen;
    chosen = Py_IS_TYPE(rows, core_state.step_rows_type) ? Py_NewRef(rows) : NULL;
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

PyObject *core_chosen(PyObject *module, PyObject *unused) { return Py_NewRef(chosen != NULL ? chosen : Py_None); }

/* ---- recording ------------------------------------------------------------- */

/* Holds a tensor of rows. Returns 1, or 0 if it cannot be read; -1 with an exception set. */
static int hold_rows(PyObject *tensor, CoreTensor *t)
{
    if (!core_is_given(tensor))
        return 0;
    return core_tensor_hold(tensor, t) == 0 ? 1 : forgive();
}

/* Reports an output that was not recorded. Shows the shape, because the values may belong to a customer. */
static int complain_of_output(PyObject *output, bool is_readable)
{
    if (!is_readable)
        return core_complain("output must be a tensor in this host's memory", (PyObject *)Py_TYPE(output));
    PyObject *shape = PyObject_GetAttrString(output, "shape");
    PyErr_Clear();
    const int wrong = core_complain("output must have one row for each token: the shape (tokens, columns)",
                                    shape != NULL ? shape : (PyObject *)Py_TYPE(output));
    Py_XDECREF(shape);
    return wrong;
}

static int record(const CoreRequest *p, PyObject *output, PyObject *input, const struct brick_history_rows *rows)
{
    CoreTensor out, in;
    const int has_output = hold_rows(output, &out);
    const int has_input = has_output > 0 ? hold_rows(input, &in) : 0;
    int wrong = has_output < 0 || has_input < 0 ? -1 : 0;
    if (wrong == 0
        && (brick_history_record(p->kernel->number, p->key, &p->at, has_output > 0 ? &out.tensor : NULL,
                                 has_input > 0 ? &in.tensor : NULL, rows) & BRICK_REFUSED) != 0)
        wrong = complain_of_output(output, has_output > 0);
    if (has_input > 0)
        core_tensor_release(&in);
    if (has_output > 0)
        core_tensor_release(&out);
    return wrong;
}

static PyObject *step_rows_checksum(PyObject *self, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    enum { INPUT, LAYER, STEP, BACKEND, PARAMS };
    static const char *const known[] = {"input", "layer", "step", "backend", "params"};
    static CoreCall call = {"checksum", 0, 0, 5, known, {NULL}};
    const struct brick_history_rows *rows = &((StepRows *)self)->rows;
    PyObject *of[CORE_ARGUMENTS];
    CoreRequest p = {.valid = NULL};
    if (given != 2) {
        PyErr_SetString(PyExc_TypeError, "brick_agent: checksum takes a kernel and its output, then keywords: input, layer, "
                                         "step, backend, params");
        return NULL;
    }
    if (core_arguments(&call, args + 2, 0, names, of) != 0)
        return NULL;
    if (rows->count == 0 || brick_is_off())
        Py_RETURN_NONE;
    if (core_request_kernel(&p, args[0]) != 0 || core_request_layer(&p, of[LAYER]) != 0
        || core_request_step(&p, of[STEP]) != 0 || core_request_backend(&p, of[BACKEND]) != 0
        || core_request_params(&p, of[PARAMS]) != 0)
        return NULL;
    return record(&p, args[1], of[INPUT], rows) == 0 ? Py_NewRef(Py_None) : NULL;
}

static int step_rows_bool(PyObject *self) { return ((StepRows *)self)->rows.count > 0; }

static PyMethodDef step_rows_methods[] = {
    {"checksum", (PyCFunction)(void (*)(void))step_rows_checksum, METH_FASTCALL | METH_KEYWORDS, checksum_doc},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot step_rows_slots[] = {
    {Py_tp_dealloc, core_plain_dealloc},
    {Py_nb_bool, step_rows_bool},
    {Py_tp_methods, step_rows_methods},
    {Py_tp_doc, (void *)step_rows_doc},
    {0, NULL},
};
PyType_Spec core_step_rows_spec = {
    "brick_agent.StepRows", sizeof(StepRows), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, step_rows_slots,
};
