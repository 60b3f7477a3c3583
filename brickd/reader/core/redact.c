#include "redact.h"

#include "brick_siphash.h"
#include "record_walk.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

/* What a number stands for. If equal numbers stand for different things, they get different digests. */
enum domain { CHECKSUM = 1, STEP, POSITION, STREAM, PARAMS, KEY_NAME, LINEAGE };

int brick_redactor_begin(struct brick_redactor *r, enum brick_left left)
{
    memset(r, 0, sizeof *r);
    r->left = left;
    ssize_t got;
    do
        got = getrandom(r->key, sizeof r->key, 0);
    while (got < 0 && errno == EINTR);
    return got == (ssize_t)sizeof r->key;
}

void brick_redactor_end(struct brick_redactor *r) { explicit_bzero(r, sizeof *r); }

static uint64_t named(const struct brick_redactor *r, enum domain domain, uint64_t value)
{
    const uint64_t made = brick_siphash(r->key, (const uint64_t[]){domain, value}, 2);
    return made != 0 ? made : 1;
}

static uint64_t anew(const struct brick_redactor *r, enum domain domain, uint64_t value)
{
    return value != 0 && r->left == BRICK_LEFT_EQUAL ? named(r, domain, value) : value;
}

uint64_t brick_redacted_name(const struct brick_redactor *r, uint64_t name)
{
    return r->left == BRICK_LEFT_EQUAL ? named(r, KEY_NAME, name) : name;
}

uint64_t brick_redacted_step(const struct brick_redactor *r, uint64_t step) { return anew(r, STEP, step); }

/* ---- records of one slot ------------------------------------------------ */

/* A slot, as a record of each kind that this file knows. */
union slot {
    struct brick_record record;
    struct brick_span span;
    struct brick_defer defer;
    struct brick_finalize finalize;
    struct brick_measured measured;
    struct brick_step_text step_text;
    struct brick_checked checked;
    struct brick_output output;
    struct brick_tensor_sums sums;
    struct brick_tensor_sketch sketch;
};
BRICK_ASSERT(sizeof(union slot) == sizeof(struct brick_record), "each member is one slot");

static union slot unknown(const struct brick_record *s)
{
    return (union slot){.record = {.slots = s->slots, .kind = s->kind}};
}

static union slot span(const struct brick_redactor *r, const struct brick_span *s)
{
    return (union slot){.span = {.sequence = s->sequence, .path = s->path, .slots = s->slots, .kind = s->kind,
                                 .start = s->start, .duration = s->duration, .child = s->child,
                                 .step = anew(r, STEP, s->step), .elements = s->elements, .bytes = s->bytes}};
}

static union slot defer(const struct brick_redactor *r, const struct brick_defer *s)
{
    return (union slot){.defer = {.sequence = s->sequence, .path = s->path, .slots = s->slots, .kind = s->kind,
                                  .start = s->start, .stream = anew(r, STREAM, s->stream), .id = s->id,
                                  .step = anew(r, STEP, s->step), .elements = s->elements, .bytes = s->bytes}};
}

static union slot finalize(const struct brick_redactor *r, const struct brick_finalize *s)
{
    return (union slot){.finalize = {.sequence = s->sequence, .every = s->every != 0, .slots = s->slots,
                                     .kind = s->kind, .ticks = s->ticks, .stream = anew(r, STREAM, s->stream)}};
}

static union slot measured(const struct brick_measured *s)
{
    return (union slot){.measured = {.sequence = s->sequence, .slots = s->slots, .kind = s->kind, .id = s->id,
                                     .elapsed_ns = s->elapsed_ns}};
}

/* Removes the content of a record but keeps its sequence, because a missing sequence would be counted as a lost
 * record. */
static union slot emptied(const struct brick_record *s)
{
    return (union slot){.record = {.sequence = s->sequence, .slots = s->slots, .kind = s->kind}};
}

static union slot step_text(const struct brick_redactor *r, const struct brick_step_text *s)
{
    union slot made = emptied((const struct brick_record *)(const void *)s);
    if (r->left != BRICK_LEFT_EQUAL && brick_step_text_possible(s)) {
        made.step_text.length = s->length;
        memcpy(made.step_text.text, s->text, s->length);
    }
    return made;
}

static union slot alone(const struct brick_redactor *r, uint32_t ring, const union slot *s)
{
    if (s->record.slots != 1)
        return unknown(&s->record);
    const uint16_t kind = s->record.kind;
    if (ring == BRICK_RING_SPANS)
        return kind == BRICK_KIND_SPAN || kind == BRICK_KIND_STEP ? span(r, &s->span) : unknown(&s->record);
    return kind == BRICK_KIND_DEFER       ? defer(r, &s->defer)
           : kind == BRICK_KIND_FINALIZE  ? finalize(r, &s->finalize)
           : kind == BRICK_KIND_MEASURED  ? measured(&s->measured)
           : kind == BRICK_KIND_STEP_TEXT ? step_text(r, &s->step_text)
           : kind == BRICK_KIND_SOURCE    ? emptied(&s->record) /* see BRICK_CHUNK_SOURCE */
           : kind == BRICK_KIND_CANARY    ? emptied(&s->record) /* a result is for the daemon alone */
                                          : unknown(&s->record);
}

/* ---- checksums ----------------------------------------------------------- */

static union slot checked(const struct brick_redactor *r, const struct brick_checked *s)
{
    const int step_counted = (s->flags & (BRICK_CHECKED_STEP | BRICK_CHECKED_WEIGHT)) == BRICK_CHECKED_WEIGHT;
    const int place_counted = (s->flags & BRICK_CHECKED_POSITION) == 0 || (s->flags & BRICK_CHECKED_WEIGHT) != 0;
    const int has_lineage = (s->flags & BRICK_CHECKED_HISTORY) != 0;
    return (union slot){.checked = {.sequence = s->sequence, .site = s->site, .slots = s->slots, .kind = s->kind,
                                    .ticks = s->ticks, .step = step_counted ? s->step : anew(r, STEP, s->step),
                                    .position = place_counted ? s->position : anew(r, POSITION, s->position),
                                    .params = anew(r, PARAMS, s->params),
                                    .valid = has_lineage ? anew(r, LINEAGE, s->valid) : s->valid,
                                    .backend = s->backend, .of = s->of, .relation = s->relation, .inputs = s->inputs, .flags = s->flags}};
}

static union slot output(const struct brick_redactor *r, const struct brick_output *s)
{
    union slot made = {.output = {.dims = s->dims, .token = r->left != BRICK_LEFT_EQUAL ? s->token : 0}};
    memcpy(made.output.shape, s->shape, sizeof s->shape);
    return made;
}

static union slot sums(const struct brick_redactor *r, const struct brick_tensor_sums *s)
{
    return (union slot){.sums = {.checksum = anew(r, CHECKSUM, s->checksum), .elements = s->elements, .nan = s->nan,
                                 .pos_inf = s->pos_inf, .neg_inf = s->neg_inf, .shape = s->shape, .dtype = s->dtype}};
}

/* Redacts the slot of a checksum that follows its first `done` slots. */
static union slot within(const struct brick_redactor *r, uint64_t done, const union slot *s)
{
    return done == 1 ? output(r, &s->output) : done % 2 == 0 ? sums(r, &s->sums) : (union slot){.sketch = {{0}}};
}

/* ---- a piece -------------------------------------------------------------- */

/* Redacts `count` slots of a checksum, which follow its first `done` slots. */
static void go_on(const struct brick_redactor *r, union slot *slots, uint64_t count, uint64_t done)
{
    for (uint64_t n = 0; n < count; n++)
        slots[n] = within(r, done + n, &slots[n]);
}

void brick_redact_tensor(const struct brick_redactor *r, void *slots)
{
    if (r->left != BRICK_LEFT_ALL)
        go_on(r, slots, BRICK_TENSOR_SLOTS, 1);
}

static int continues(const struct brick_redactor *r, const struct brick_records *of)
{
    const struct brick_records *p = &r->place;
    return r->done > 0 && of->worker == p->worker && of->lane == p->lane && of->ring == p->ring && of->first == p->first
           && of->inside == p->inside;
}

/* Remembers a checksum whose last `owed` slots come in the next piece. */
static void leave(struct brick_redactor *r, const struct brick_records *of, uint64_t count, uint32_t done, uint32_t owed)
{
    r->place = *of;
    r->place.first += count;
    r->place.inside = owed;
    r->done = done;
}

void brick_redact(struct brick_redactor *r, const struct brick_records *of, void *from, uint64_t count)
{
    union slot *slots = from;
    uint64_t at = brick_least(of->inside, count);
    const uint32_t done = continues(r, of) ? r->done : 0;
    r->done = 0;
    if (done > 0)
        go_on(r, slots, at, done);
    else
        memset(slots, 0, at * sizeof *slots);
    if (done > 0 && of->inside > count)
        leave(r, of, count, done + (uint32_t)count, of->inside - (uint32_t)count);
    while (at < count && slots[at].record.slots != 0) {
        union slot *s = &slots[at];
        const uint64_t whole = s->record.slots, there = brick_least(whole, count - at);
        if (of->ring == BRICK_RING_EVENTS && s->record.kind == BRICK_KIND_CHECKED && brick_checked_possible(&s->checked)) {
            *s = checked(r, &s->checked);
            go_on(r, s + 1, there - 1, 1);
            if (there < whole)
                leave(r, of, count, (uint32_t)there, (uint32_t)(whole - there));
        } else {
            *s = alone(r, of->ring, s);
            memset(s + 1, 0, (there - 1) * sizeof *s);
        }
        at += there;
    }
    memset(&slots[at], 0, (count - at) * sizeof *slots); /* the start of the next record cannot be known */
}
