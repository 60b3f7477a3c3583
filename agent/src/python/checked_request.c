/* python/checked_request.c - the arguments that checksums and rows of histories share (checked_request.h). */
#include "checked_request.h"
#include "arguments.h"
#include "brick.h"
#include "context_key.h"
#include "json_digest.h"
#include "opening.h"

int core_must_raise(void) { return core_strict() || !PyErr_ExceptionMatches(PyExc_Exception) ? -1 : 0; }

int core_request_layer(CoreRequest *p, PyObject *value)
{
    if (!core_is_given(value))
        return 0;
    p->at.layer = &p->layer;
    return core_to_layer(value, &p->layer);
}

int core_request_step(CoreRequest *p, PyObject *value)
{
    bool has;
    if (!core_is_given(value))
        return 0;
    const int wrong = core_step_key(value, &p->step, &has);
    p->at.step = has ? &p->step : NULL;
    return wrong;
}

int core_request_kernel(CoreRequest *p, PyObject *kernel)
{
    p->kernel = Py_IS_TYPE(kernel, core_state.brick_type) ? (Brick *)kernel : core_handle(kernel, Py_None);
    if (p->kernel == NULL || (p->kernel->number == BRICK_UNNAMED && core_resolve(p->kernel) != 0))
        return -1;
    p->key = core_key();
    core_watch();
    return 0;
}

uint32_t core_number_of_name(PyObject *name)
{
    Brick *b = core_handle(name, Py_None);
    if (b == NULL || (b->number == BRICK_UNNAMED && core_resolve(b) != 0)) {
        PyErr_Clear();
        return 0;
    }
    return b->number;
}

int core_request_backend(CoreRequest *p, PyObject *value)
{
    if (!core_is_given(value))
        return 0;
    if (!PyUnicode_Check(value))
        return core_complain("a backend must be a string", value);
    p->at.backend = core_number_of_name(value);
    return 0;
}

int core_request_params(CoreRequest *p, PyObject *value)
{
    if (!core_is_given(value))
        return 0;
    if (core_digest_json(value, &p->at.params) != 0) {
        if (core_must_raise() != 0)
            return -1;
        PyErr_Clear();
        p->at.params = core_digest_type(value);
    }
    p->at.params += p->at.params == 0;
    return 0;
}
