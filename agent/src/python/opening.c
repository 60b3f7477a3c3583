/* python/opening.c - the first use of a handle opens the segment and gives the handle its id; a later init with
 * other settings is refused. */
#include "opening.h"
#include "arguments.h"
#include "context_key.h"

#include "../writer/config.h"
#include "../writer/lifecycle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The name is "app" for /srv/app.py, "worker" for /srv/worker/__main__.py, and "python" for a prompt. */
static void program_name(char *name, size_t size)
{
    const char *path = "";
    PyObject *argv = PySys_GetObject("argv"), *first;
    if (argv != NULL && PyList_Check(argv) && PyList_GET_SIZE(argv) > 0
        && PyUnicode_Check(first = PyList_GET_ITEM(argv, 0)) && (path = PyUnicode_AsUTF8(first)) == NULL) {
        PyErr_Clear();
        path = "";
    }
    const char *end = path + strlen(path), *slash = strrchr(path, '/');
    if (slash != NULL && strcmp(slash, "/__main__.py") == 0) {
        end = slash;
        while (slash > path && slash[-1] != '/')
            slash--;
        path = slash;
    } else if (slash != NULL) {
        path = slash + 1;
    }
    if (end - path > 3 && strcmp(end - 3, ".py") == 0)
        end -= 3;
    size_t length = (size_t)(end - path) < size ? (size_t)(end - path) : size - 1;
    memcpy(name, path, length);
    name[length] = 0;
    if (length == 0 || name[0] == '-')
        strcpy(name, "python");
}

void core_note_program(void)
{
    if (brick_state() == BRICK_NEW)
        program_name(core_state.program, sizeof core_state.program);
}

static enum brick_state open_segment(struct brick_config *config)
{
    const char *service = getenv("BRICKD_SERVICE");
    if (config->service == NULL && (service == NULL || *service == 0))
        config->service = core_state.program;
    enum brick_state now = brick_init(config);
    if (now == BRICK_ON) /* atomic: other threads may run this without the lock */
        for (unsigned n = __atomic_exchange_n(&core_state.refused, 0, __ATOMIC_RELAXED); n > 0; n--)
            brick_name("", 0, NULL); /* counts the refusal */
    return now;
}

int core_open(struct brick_config *config)
{
    if (open_segment(config) != BRICK_FAILED || !core_strict())
        return 0;
    PyErr_Format(PyExc_RuntimeError, "brick_agent: %s (BRICKD_STRICT=1)", brick_problem());
    return -1;
}

/* Gives the handle its id, if recording is on. The handle's strings are already UTF-8, so this needs no interpreter
 * lock. */
static void number_now(Brick *b)
{
    if (brick_state() != BRICK_ON)
        return;
    Py_ssize_t length;
    const char *name = PyUnicode_AsUTF8AndSize(b->name, &length);
    const char *category = b->category == Py_None ? NULL : PyUnicode_AsUTF8(b->category);
    const uint32_t number = b == core_state.other ? BRICK_OTHER : brick_name(name, (size_t)length, category);
    __atomic_store_n(&b->number, number, __ATOMIC_RELAXED);
}

int core_open_once(void)
{
    struct brick_config config = {0};
    return brick_state() == BRICK_NEW ? core_open(&config) : 0;
}

int core_resolve(Brick *b)
{
    if (core_open_once() != 0)
        return -1;
    number_now(b);
    return 0;
}

void core_open_unlocked(void)
{
    struct brick_config config = {0};
    if (brick_state() == BRICK_NEW)
        open_segment(&config);
}

void core_resolve_unlocked(Brick *b)
{
    core_open_unlocked();
    number_now(b);
}

/* ---- a later init ------------------------------------------------------- */

static int refuse(const char *what, const char *present, PyObject *given)
{
    char text[240];
    brick_count_refused(core_key());
    snprintf(text, sizeof text, "init must give the %s with which this process already records (%s)", what, present);
    return core_complain_once(what, text, given);
}

static int check_name(const char *what, PyObject *given, const char *service, const char *worker, const char *present)
{
    return given == Py_None || brick_segment_is_of(service, worker) ? 0 : refuse(what, present, given);
}

static int check_size(const char *what, uint32_t given, uint32_t here)
{
    if (given == 0 || given == here)
        return 0;
    char present[16];
    snprintf(present, sizeof present, "%u", here);
    PyObject *value = PyLong_FromUnsignedLong(given);
    const int failed = value == NULL ? -1 : refuse(what, present, value);
    Py_XDECREF(value);
    return failed;
}

int core_check_init(PyObject *service, PyObject *worker, const struct brick_config *given)
{
    if (brick_state() != BRICK_ON)
        return 0;
    const struct brick_header *here = brick_segment_settings();
    struct brick_config c = *given;
    brick_config_round(&c);
    char name[sizeof here->coordinates] = "no number";
    if (here->coordinates[0] != 0)
        memcpy(name, here->coordinates, sizeof name); /* ends with a zero */
    else if (here->index >= 0)
        snprintf(name, sizeof name, "%d", here->index);
    return check_name("service", service, c.service, NULL, (const char *)here->service) != 0
                   || check_name("worker", worker, NULL, c.worker, name) != 0
                   || check_size("lanes", c.lanes, here->lanes) != 0 || check_size("paths", c.paths, here->paths) != 0
                   || check_size("names", c.names, here->names) != 0 || check_size("sites", c.sites, here->sites) != 0
               ? -1
               : 0;
}
