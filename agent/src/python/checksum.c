/* python/checksum.c - checksum() and take(): record the fingerprints of a kernel's tensors.
 *
 * Owns the translation of Python arguments for the writer. Must not know how a fingerprint is computed or where it is
 * written. Invariants: only an unknown argument raises (in strict mode, any error); a tensor is read only if its
 * checksum would be recorded.
 */
#include "arguments.h"
#include "checked_request.h"
#include "methods.h"
#include "tensor.h"

#include <stdio.h>
#include <string.h>

const char core_take_doc[] = PyDoc_STR(
"take(kernel, tensor, /, *, valid=None, layer=None, step=None)\n--\n\n"
"Take the fingerprint of an input now; pass it as the `input` of a later checksum().\n\n"
"Use this for a kernel that overwrites its input. kernel, layer, step: the same as for that checksum(). tensor, valid: as\n"
"for fingerprint(). Never raises.\n\n"
">>> from array import array\n"
">>> x = array(\"f\", [1, 2, 3])\n"
">>> before = brick.take(\"scale\", x)\n"
">>> x[0] = 7  # in place\n"
">>> brick.checksum(\"scale\", x, input=before)\n");
const char core_checksum_doc[] = PyDoc_STR(
"checksum(kernel, output, /, *, input=None, layer=None, position=None, step=None, relation='local', valid=None,\n"
"         backend=None, params=None, stateful=None)\n--\n\n"
"Record the fingerprints of a kernel's tensors, so that they can be compared with other workers.\n\n"
"kernel: a name or a handle. output: a tensor, as for fingerprint(). input: a tensor, a result of take(), or a list or\n"
"tuple of these. layer, step: by default those of the surrounding layer and span. position: an integer or a string; by\n"
"default how often this thread has recorded this kernel before in this layer and step. relation: which workers must have\n"
"the same output for equal inputs: \"local\" (those with the same weights), \"replicated:GROUP\", \"partial:GROUP\" or\n"
"\"moved:LINK\". Moved data has the same position at both ends, such as the hash of its block or the key of its message. A\n"
"link is a name, and there is room for 4,096 names. valid: the number of valid rows of the output, and of each input\n"
"with the same number of rows. backend: a name. params: other parameters that decide the output, as JSON. stateful:\n"
"whether the output depends on state that is not an input, such as a cache or a random number; by default the kernel's\n"
"name decides (attention, cache, sampling, ...). brickd does not compare a stateful kernel by its input. For a kernel that\n"
"reads a cache, pass stateful=False if the inputs include the data that filled the cache, such as the earlier tokens.\n\n"
"Never raises. A tensor that cannot be read (on a device, of an unknown type) is counted, and reported once. Kernels with\n"
"embed, logit, lm_head, token, input_ids, wte, multinomial or sample in their name need BRICKD_SENSITIVE=1, because their\n"
"numbers reveal text of customers. (A rotary or rope embedding looks up no token, so it needs no setting.)\n\n"
">>> from array import array\n"
">>> x, y = array(\"f\", [1, 2]), array(\"f\", [2, 4])\n"
">>> with brick.step(17), brick.layer(3):\n"
"...     brick.checksum(\"scale\", y, input=x, params={\"by\": 2})\n");

PyDoc_STRVAR(taken_doc,
"The result of take(): a tensor's fingerprint, to pass to checksum() after the kernel has overwritten the tensor.\n\n"
">>> type(brick.take(\"scale\", bytes(8))) is brick.Taken\n"
"True\n");

typedef struct {
    PyObject_HEAD
    struct brick_taken taken;
} Taken;

static PyType_Slot taken_slots[] = {
    {Py_tp_dealloc, core_plain_dealloc},
    {Py_tp_doc, (void *)taken_doc},
    {0, NULL},
};
PyType_Spec core_taken_spec = {
    "brick_agent.Taken", sizeof(Taken), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, taken_slots,
};

/* ---- errors --------------------------------------------------------------- */

static int forgive(void)
{
    static bool warned;
    if (core_must_raise() != 0)
        return -1;
    if (warned) {
        PyErr_Clear();
        return 0;
    }
    warned = true;
    char line[400];
    const CoreRaised raised = core_put_aside();
    PyObject *message = raised.value != NULL ? PyObject_Str(raised.value) : NULL;
    const char *text = message != NULL ? PyUnicode_AsUTF8(message) : NULL, *own = "brick_agent: ";
    if (text != NULL && strncmp(text, own, strlen(own)) == 0)
        text += strlen(own);
    snprintf(line, sizeof line, "brickd: a tensor has no checksum: %.300s\n", text != NULL ? text : "reading it raised an exception");
    core_warn(line);
    PyErr_Clear();
    Py_XDECREF(message);
    core_forget(raised);
    return 0;
}

/* ---- arguments ------------------------------------------------------------ */

static int to_position(CoreRequest *p, PyObject *value)
{
    bool has;
    if (!core_is_given(value))
        return 0;
    const int wrong = core_number(value, &p->position, &has, "a position must be an integer or a string");
    p->at.position = has ? &p->position : NULL;
    return wrong;
}

#define A_RELATION "a relation must be local, replicated:GROUP, partial:GROUP or moved:LINK"

static int to_relation(CoreRequest *p, PyObject *value)
{
    static const char *const names[] = {
        [BRICK_AGREES_REPLICATED] = "replicated:", [BRICK_AGREES_PARTIAL] = "partial:", [BRICK_AGREES_MOVED] = "moved:"};
    Py_ssize_t length;
    const char *text = PyUnicode_Check(value) ? PyUnicode_AsUTF8AndSize(value, &length) : NULL;
    if (text != NULL && strcmp(text, "local") == 0)
        return 0;
    for (uint32_t n = BRICK_AGREES_REPLICATED; text != NULL && n <= BRICK_AGREES_MOVED; n++) {
        const size_t head = strlen(names[n]);
        if (strncmp(text, names[n], head) != 0 || text[head] == '\0')
            continue;
        PyObject *of = PyUnicode_FromStringAndSize(text + head, length - (Py_ssize_t)head);
        p->at.of = of != NULL ? core_number_of_name(of) : 0;
        p->at.relation = n;
        Py_XDECREF(of);
        PyErr_Clear();
        return 0;
    }
    p->at.relation = UINT32_MAX; /* the writer counts this value as invalid, and records the relation local */
    return core_complain(A_RELATION, value);
}

static int to_stateful(CoreRequest *p, PyObject *value)
{
    if (!core_is_given(value))
        return 0;
    p->at.state = value == Py_False ? BRICK_STATELESS : BRICK_STATEFUL; /* an invalid value counts as stateful */
    return PyBool_Check(value) ? 0 : core_complain("stateful must be a bool or None", value);
}

/* ---- tensors -------------------------------------------------------------- */

/* Counts a tensor that could not be held. Returns -1 if the exception must be raised. */
static int unread(const CoreRequest *p, PyObject *tensor, struct brick_taken *taken)
{
    if (PyErr_ExceptionMatches(PyExc_Exception))
        brick_take(p->kernel->number, p->key, &p->at, NULL, taken);
    if (!core_torch_fake(tensor) || core_must_raise() != 0)
        return forgive();
    PyErr_Clear(); /* tensors without numbers are normal while torch traces the model into a program */
    return 0;
}

/* Takes a tensor. For the output, sets *rows: `valid` applies to the output and to inputs with the same number of
 * rows. */
static int take(const CoreRequest *p, PyObject *tensor, bool is_output, int64_t *rows, struct brick_taken *taken)
{
    CoreTensor t;
    memset(taken, 0, sizeof *taken);
    if (Py_IS_TYPE(tensor, core_state.taken_type)) {
        *taken = ((Taken *)tensor)->taken;
        return 0;
    }
    if (!brick_wants(p->kernel->number, p->key, &p->at))
        return 0;
    if (core_tensor_hold(tensor, &t) != 0)
        return unread(p, tensor, taken);
    if (is_output && t.tensor.dims > 0)
        *rows = t.tensor.shape[0];
    if ((is_output || (t.tensor.dims > 0 && t.tensor.shape[0] == *rows)) && core_take_valid(p->valid, &t.tensor) != 0) {
        core_tensor_release(&t);
        return unread(p, tensor, taken);
    }
    PyThreadState *unlocked = core_tensor_large(&t.tensor) ? PyEval_SaveThread() : NULL;
    const char *refused = brick_take(p->kernel->number, p->key, &p->at, &t.tensor, taken);
    if (unlocked != NULL)
        PyEval_RestoreThread(unlocked);
    core_tensor_release(&t);
    if (refused == NULL)
        return 0;
    PyErr_Format(PyExc_ValueError, "brick_agent: a tensor has no fingerprint: %s", refused);
    return forgive();
}

PyObject *core_take(PyObject *module, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    enum { VALID, LAYER, STEP };
    static const char *const known[] = {"valid", "layer", "step"};
    static CoreCall call = {"take", 0, 0, 3, known, {NULL}};
    PyObject *of[CORE_ARGUMENTS];
    CoreRequest p = {.valid = NULL};
    int64_t rows = -1;
    if (given != 2) {
        PyErr_SetString(PyExc_TypeError, "brick_agent: take takes a kernel and a tensor, then keywords: valid, layer, step");
        return NULL;
    }
    if (core_arguments(&call, args + 2, 0, names, of) != 0 || core_request_layer(&p, of[LAYER]) != 0
        || core_request_step(&p, of[STEP]) != 0)
        return NULL;
    p.valid = of[VALID];
    Taken *result = PyObject_New(Taken, core_state.taken_type);
    if (result == NULL)
        return NULL;
    memset(&result->taken, 0, sizeof result->taken);
    if (!brick_is_off() && (core_request_kernel(&p, args[0]) != 0 || take(&p, args[1], true, &rows, &result->taken) != 0))
        Py_CLEAR(result);
    return (PyObject *)result;
}

#define FEW 8

static int record(CoreRequest *p, PyObject *output, PyObject *input)
{
    struct brick_taken out, few[FEW], *inputs = few, *last = &out;
    int64_t rows = -1;
    const bool is_several = PyList_Check(input) || PyTuple_Check(input);
    PyObject *held = is_several ? PySequence_Tuple(input) : Py_NewRef(input); /* a list may change during the loop */
    const Py_ssize_t count = !is_several ? input != Py_None : held != NULL ? PyTuple_GET_SIZE(held) : 0;
    if (count > FEW)
        inputs = PyMem_Calloc((size_t)count, sizeof *inputs);
    const bool is_whole = held != NULL && inputs != NULL;
    int wrong = 0;
    if (is_whole) {
        wrong = take(p, output, true, &rows, last);
    } else { /* no memory */
        PyErr_Clear();
        memset(&out, 0, sizeof out);
    }
    for (Py_ssize_t n = 0; is_whole && wrong == 0 && n < count; n++)
        wrong = take(p, is_several ? PyTuple_GET_ITEM(held, n) : input, false, &rows, last = &inputs[n]);
    if (is_whole && wrong == 0)
        brick_checksum(p->kernel->number, p->key, &p->at, &out, inputs, (uint32_t)count);
    else /* not recorded, but counted as a checksum without an output */
        brick_checksum(p->kernel->number, p->key, &p->at, last, NULL, 0);
    if (inputs != few)
        PyMem_Free(inputs);
    Py_XDECREF(held);
    return wrong;
}

PyObject *core_checksum(PyObject *module, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    enum { INPUT, LAYER, POSITION, STEP, RELATION, VALID, BACKEND, PARAMS, STATEFUL };
    static const char *const known[] = {"input", "layer",   "position", "step",    "relation",
                                        "valid", "backend", "params",   "stateful"};
    static CoreCall call = {"checksum", 0, 0, 9, known, {NULL}};
    PyObject *of[CORE_ARGUMENTS];
    CoreRequest p = {.valid = NULL};
    if (given != 2) {
        PyErr_SetString(PyExc_TypeError, "brick_agent: checksum takes a kernel and its output, then keywords: input, layer, "
                                         "position, step, relation, valid, backend, params, stateful");
        return NULL;
    }
    if (brick_is_off())
        Py_RETURN_NONE;
    if (core_request_kernel(&p, args[0]) != 0 || core_arguments(&call, args + 2, 0, names, of) != 0 || core_request_layer(&p, of[LAYER]) != 0
        || to_position(&p, of[POSITION]) != 0
        || core_request_step(&p, of[STEP]) != 0
        || (of[RELATION] != NULL && to_relation(&p, of[RELATION]) != 0) || core_request_backend(&p, of[BACKEND]) != 0
        || core_request_params(&p, of[PARAMS]) != 0 || to_stateful(&p, of[STATEFUL]) != 0)
        return NULL;
    p.valid = of[VALID];
    return record(&p, args[1], of[INPUT] != NULL ? of[INPUT] : Py_None) == 0 ? Py_NewRef(Py_None) : NULL;
}
