/* python/own_totals.c - the totals of this process so far: BrickProfiler's statistics and graph without a daemon.
 *
 * This file is not on the record path and writes nothing. The functions copy each lane's summaries like any reader
 * (brick_shm.h, O5 to O8), because other threads continue to record. Times are in ticks; the result includes the length
 * of a tick.
 */
#include "methods.h"

#include "../writer/lifecycle.h"

#include <sched.h>

/* A thread changes an entry within a few nanoseconds. If it takes longer, the thread is interrupted, and the reader
 * yields so that the thread can run. */
#define TRIES 1000
#define TRIES_IN_A_ROW 50

/* Copies a summary. Returns 0 if the summary changed during every try; *to then has the last copy. */
static int copy_summary(const uint64_t *sequence, const struct brick_summary *from, struct brick_summary *to)
{
    const uint64_t *words = (const uint64_t *)(const void *)from;
    uint64_t *copies = (uint64_t *)(void *)to;
    for (int i = 0; i < TRIES; i++) {
        const uint64_t before = brick_load_acquire(sequence); /* O8 */
        for (size_t n = 0; n < sizeof *from / sizeof *words; n++)
            if (n != offsetof(struct brick_summary, squares) / sizeof *words)
                copies[n] = brick_load_relaxed(&words[n]);
        to->squares = brick_load_relaxed_f64(&from->squares);
        brick_fence_acquire();
        if ((before & 1) == 0 && brick_load_relaxed(sequence) == before)
            return 1;
        if (i % TRIES_IN_A_ROW == TRIES_IN_A_ROW - 1)
            sched_yield();
    }
    return 0;
}

static void add(struct brick_summary *sum, const struct brick_summary *s)
{
    if (s->count == 0)
        return;
    sum->min = sum->count == 0 || s->min < sum->min ? s->min : sum->min;
    sum->max = s->max > sum->max ? s->max : sum->max;
    sum->count += s->count;
    sum->total += s->total;
    sum->child += s->child;
    sum->again += s->again;
    sum->squares += s->squares;
    sum->elements += s->elements;
    sum->bytes += s->bytes;
    brick_summary_set_flops(sum, brick_summary_flops(sum) + brick_summary_flops(s));
    for (uint32_t b = 0; b < BRICK_BUCKETS; b++)
        sum->histogram[b] += s->histogram[b];
}

/* Sums a path's totals over all lanes. Returns how many copies are torn. If a thread has ever taken the lane, the
 * lane's sequences have memory, and so has each summary whose sequence is not 0. All other memory of the lane may be a
 * hole in the file, which must not be touched (brick_shm.h). */
static unsigned sum_of_lanes(const struct brick_segment *s, uint32_t path, struct brick_summary *sum)
{
    unsigned torn = 0;
    *sum = (struct brick_summary){0};
    for (uint32_t n = 0; n < s->header->lanes; n++) {
        if (brick_load_relaxed(&brick_lane_of(s, n)->opened) == 0)
            continue;
        const uint8_t *area = brick_area_of(s, n);
        const uint64_t *sequence = (const uint64_t *)(const void *)(area + s->layout.sequences) + path;
        if (brick_load_relaxed(sequence) == 0)
            continue;
        struct brick_summary copy;
        torn += !copy_summary(sequence, (const struct brick_summary *)(const void *)(area + s->layout.summaries) + path, &copy);
        add(sum, &copy);
    }
    return torn;
}

/* Returns the name as a new reference; None for an id without a name. */
static PyObject *name_of(const struct brick_segment *s, uint32_t number)
{
    const struct brick_name *name = &brick_names_of(s)[number];
    const uint32_t word = brick_load_acquire32(&name->word), length = word & BRICK_NAME_LENGTH;
    if ((word & BRICK_NAME_READY) == 0)
        Py_RETURN_NONE;
    return PyUnicode_DecodeUTF8((const char *)name->text, length < BRICK_NAME_MAX ? length : BRICK_NAME_MAX, "replace");
}

static PyObject *category_of(const struct brick_segment *s, uint32_t number)
{
    const uint32_t category = brick_load_relaxed32(&brick_names_of(s)[number].category);
    return category != 0 ? name_of(s, category) : Py_NewRef(Py_None);
}

/* Returns the parent path; if `marks` is 0, the nearest ancestor that is not a mark. */
static uint32_t around(const struct brick_segment *s, uint64_t key, int marks)
{
    uint32_t parent = brick_key_parent(key);
    while (!marks && parent != BRICK_ROOT && brick_is_mark(brick_key_unit(brick_paths_of(s)[parent])))
        parent = brick_key_parent(brick_paths_of(s)[parent]);
    return parent;
}

static PyObject *row_of(const struct brick_segment *s, uint32_t path, uint32_t parent, uint64_t key,
                        const struct brick_summary *sum)
{
    const uint32_t layer = brick_key_layer(key), number = brick_key_name(key);
    return Py_BuildValue(
        "(IlNNlIKKKdKKKKdy#K)", path, parent == BRICK_ROOT ? -1L : (long)parent, name_of(s, number), category_of(s, number),
        layer > BRICK_LAYER_MAX ? -1L : (long)layer, brick_key_unit(key), (unsigned long long)sum->count,
        (unsigned long long)sum->total, (unsigned long long)sum->child, sum->squares, (unsigned long long)sum->min,
        (unsigned long long)sum->max, (unsigned long long)sum->elements, (unsigned long long)sum->bytes,
        brick_summary_flops(sum), (const char *)sum->histogram, (Py_ssize_t)sizeof sum->histogram,
        (unsigned long long)sum->again);
}

static PyObject *ledger_of(const struct brick_segment *s)
{
    unsigned long long open = 0, abandoned = 0, rejected = 0, nested = 0, unmatched = 0, amounts = 0;
    for (uint32_t n = 0; n < s->header->lanes; n++) {
        const struct brick_lane *line = brick_lane_of(s, n);
        open += brick_load_relaxed(&line->open);
        abandoned += brick_load_relaxed(&line->abandoned);
        for (int reason = 0; reason < BRICK_REJECTED_REASONS; reason++)
            rejected += brick_load_relaxed(&line->rejected[reason]);
        nested += brick_load_relaxed(&line->nested);
        unmatched += brick_load_relaxed(&line->unmatched);
        amounts += brick_load_relaxed(&line->amounts);
    }
    return Py_BuildValue("{sKsKsKsKsKsKsK}", "open", open, "abandoned", abandoned, "rejected", rejected, "nested", nested,
                         "unmatched", unmatched, "amounts", amounts, "no_lane",
                         (unsigned long long)brick_load_relaxed(&brick_process_of(s)->no_lane));
}

PyObject *core_totals(PyObject *module, PyObject *marks)
{
    PyObject *rows = PyList_New(0);
    if (rows == NULL || !brick_agent_owns())
        return rows == NULL ? NULL : Py_BuildValue("(dIN{})", 0.0, 0u, rows);
    const struct brick_segment *s = brick_segment_now();
    unsigned torn = 0;
    for (uint32_t path = 0; path < s->header->paths; path++) {
        const uint64_t key = brick_load_acquire(&brick_paths_of(s)[path]); /* O3 */
        if ((key & BRICK_KEY_READY) == 0 || brick_key_unit(key) == BRICK_UNIT_ROWS
            || (marks != Py_True && brick_is_mark(brick_key_unit(key))))
            continue;
        struct brick_summary sum;
        torn += sum_of_lanes(s, path, &sum);
        PyObject *row = row_of(s, path, around(s, key, marks == Py_True), key, &sum);
        if (row == NULL || PyList_Append(rows, row) != 0) {
            Py_XDECREF(row);
            Py_DECREF(rows);
            return NULL;
        }
        Py_DECREF(row);
    }
    return Py_BuildValue("(dINN)", brick_clock_tick_ns(s->header), torn, rows, ledger_of(s));
}

PyObject *core_recorded(PyObject *module, PyObject *unused)
{
    if (!brick_agent_owns())
        Py_RETURN_FALSE;
    const struct brick_segment *s = brick_segment_now();
    uint64_t records = brick_load_relaxed(&brick_process_of(s)->no_lane);
    for (uint32_t n = 0; n < s->header->lanes; n++) {
        const struct brick_lane *line = brick_lane_of(s, n);
        records += brick_load_relaxed(&line->begun) + brick_load_relaxed(&line->event_attempts)
                   + brick_load_relaxed(&line->reserved2[BRICK_LANE_MARKS]);
    }
    const uint32_t flags = brick_load_relaxed32(&brick_control_of(s)->flags);
    return PyBool_FromLong(records != 0 || brick_agent.wanted_off || (flags & BRICK_CONTROL_OFF) != 0);
}
