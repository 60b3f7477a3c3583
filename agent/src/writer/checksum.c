/* writer/checksum.c - checksums: writes the fingerprints of a site's tensors into the lane's event ring.
 *
 * A fingerprint is taken before its record is written, because the kernel may overwrite its inputs. Fingerprints are
 * taken outside of the busy section, which refuses calls from signal handlers. Tensors are not read while
 * recording is off, for a site that is off, or while the ring is full. This code makes no system call and allocates
 * nothing, except for the first checksum of a process, of a lane and of a site.
 */
#include "checksum.h"
#include "draw.h"
#include "key_file.h"

#include "brick_hash.h"
#include "../fingerprint/fp_modes.h"

#include <string.h>

BRICK_ASSERT((int)BRICK_AGREES_LOCAL == (int)BRICK_LOCAL && (int)BRICK_AGREES_REPLICATED == (int)BRICK_REPLICATED
                 && (int)BRICK_AGREES_PARTIAL == (int)BRICK_PARTIAL && (int)BRICK_AGREES_MOVED == (int)BRICK_MOVED,
             "the same numbers");

#define SHAPE_MAX (sizeof((struct brick_output *)0)->shape / sizeof(uint64_t))
BRICK_ASSERT(SHAPE_MAX == sizeof((struct brick_taken *)0)->shape / sizeof(uint64_t), "as many dimensions as in the record");

/* ---- sites -------------------------------------------------------------- */

struct brick_checked_place brick_checked_place_of(struct brick_thread *t, uint32_t kernel, const void *key,
                                                  const struct brick_at *at)
{
    struct brick_checked_place p = {.value = 0};
    uint32_t layer = BRICK_NO_LAYER;
    if (at->layer == NULL || at->step == NULL) {
        const struct brick_stack *s = brick_stack_of(t, key, 0);
        if (s != NULL && s->refused != 0) /* inside a span that was refused, layer and step are unknown */
            return p;
        if (s != NULL && s->top != NULL) {
            layer = s->top->layer;
            p.step = s->top->step;
            p.draw = s->top->draw;
            p.has_draw = p.has_step = (s->top->inherits & BRICK_FRAME_STEP) != 0;
        }
    }
    if (at->layer != NULL)
        layer = *at->layer <= BRICK_LAYER_MAX ? *at->layer : BRICK_NO_LAYER;
    if (at->step != NULL) {
        p.has_draw = p.has_draw && p.step == *at->step;
        p.step = *at->step;
        p.has_step = 1;
    }
    if (kernel > UINT16_MAX)
        return p;
    p.key = brick_site_entry(kernel, layer);
    p.value = brick_entry_find(&brick_agent.tables, p.key);
    if (BRICK_UNLIKELY(p.value == 0))
        p.value = brick_site_intern(&brick_agent.tables, t->segment, p.key);
    return p;
}

/* Counts a visit of a site, that is, one call of a checksum there. *before: visits before this one since the site's
 * step last changed. Returns 0 if there is no memory for the count. */
static int count_visit(struct brick_thread *t, const struct brick_checked_place *p, uint64_t *before)
{
    /* A power of two above the number of sites. */
    const uint64_t visits = (uint64_t)2 << (63 - __builtin_clzll(t->segment->header->sites));
    if (BRICK_UNLIKELY(t->visits == NULL)) {
        if (!brick_seldom(++t->unvisited))
            return 0;
        t->visits = (struct brick_visits *)brick_private_memory(visits * sizeof *t->visits);
        if (t->visits == NULL)
            return 0;
    }
    uint64_t i = brick_splitmix64(p->key) & (visits - 1);
    while (t->visits[i].site != p->key && t->visits[i].site != 0)
        i = (i + 1) & (visits - 1);
    struct brick_visits *v = &t->visits[i];
    if (v->site == 0 || v->step != p->step || v->has_step != p->has_step)
        *v = (struct brick_visits){.site = p->key, .step = p->step, .has_step = p->has_step & 1u};
    *before = v->count++;
    return 1;
}

/* ---- which steps, which sites -------------------------------------------- */

/* The result has the same upper half of the hash as `step`. This half decides in each epoch whether a step is drawn, so
 * a step with a cache is drawn exactly when the step without it would be. */
uint64_t brick_step_after(uint64_t step, uint64_t filled)
{
    const uint64_t drawn = brick_step_hash(step) & ~(uint64_t)UINT32_MAX;
    const uint64_t other = brick_splitmix64(step ^ brick_splitmix64(filled)) & UINT32_MAX;
    return filled == 0 ? step : brick_step_of_hash(drawn | other);
}

uint32_t brick_checked_rate(const struct brick_thread *t, uint32_t rate)
{
    const struct brick_control *control = __atomic_load_n(&t->control, __ATOMIC_RELAXED);
    const uint32_t ordered = brick_load_relaxed32(&control->fingerprint_rate); /* O15 */
    const uint32_t configured = ordered != 0 ? ordered : brick_agent.plan.rate;
    return configured != 0 ? configured : rate;
}

int brick_checked_on(const struct brick_thread *t, const struct brick_checked_place *p)
{
    const struct brick_control *control = __atomic_load_n(&t->control, __ATOMIC_RELAXED);
    const uint32_t site = (uint32_t)(p->value & 0xFFFF);
    return (brick_load_relaxed(&control->sites[site / 64 % 256]) >> (site % 64) & 1) == 0; /* O15 */
}

int brick_checked_drawn(const struct brick_thread *t, const struct brick_checked_place *p, uint32_t rate, uint32_t times)
{
    uint64_t *own = &brick_process_of(t->segment)->reserved[BRICK_PROCESS_RATE];
    if (BRICK_UNLIKELY(rate != BRICK_RATE_ALL && brick_load_relaxed(own) != rate)) /* O14 */
        brick_store_relaxed(own, rate);
    rate = brick_checked_rate(t, rate);
    if (BRICK_UNLIKELY(!brick_checked_on(t, p)))
        return 0;
    if (rate == BRICK_RATE_ALL || rate == BRICK_RATE_NONE || !p->has_step)
        return rate == BRICK_RATE_ALL;
    return (p->has_draw ? p->draw : brick_draw_now(t, p->step)) < (uint64_t)rate * times;
}

/* ---- taking ------------------------------------------------------------- */

static const struct brick_at here;

/* How many slots must be free after the record's first slot: the other slots of the record, and the slots reserved for
 * measurements and finalizes. */
static uint64_t kept_free(const struct brick_thread *t, uint32_t inputs)
{
    return brick_kept_from_starts(t) + BRICK_CHECKED_SLOTS(inputs) - 1u;
}

int brick_wants(uint32_t kernel, const void *key, const struct brick_at *at)
{
    return brick_wants_of(kernel, key, at, BRICK_RATE_ALL);
}

int brick_wants_of(uint32_t kernel, const void *key, const struct brick_at *at, uint32_t rate)
{
    unsigned outcome = BRICK_DONE;
    struct brick_thread *t = brick_enter(key, &outcome, ARRIVES_QUESTION);
    if (t == NULL)
        return 0;
    const struct brick_checked_place p = brick_checked_place_of(t, kernel, key, at != NULL ? at : &here);
    const int wanted = p.value != 0 && (p.value & BRICK_ENTRY_OFF) == 0 && brick_checked_drawn(t, &p, rate, 1)
                       && brick_event_room(t, kept_free(t, 0));
    brick_idle(t);
    return wanted;
}

int brick_in_step(const void *key)
{
    unsigned outcome = BRICK_DONE;
    struct brick_thread *t = brick_enter(key, &outcome, ARRIVES_QUESTION);
    if (t == NULL)
        return 0;
    const struct brick_stack *s = brick_stack_open(t, key);
    const int has_step = s != NULL && (s->top->inherits & BRICK_FRAME_STEP) != 0;
    brick_idle(t);
    return has_step;
}

uint64_t brick_step_given(uint64_t step, const struct brick_tensor *tensor)
{
    struct brick_secret secret;
    struct brick_fingerprint given;
    if (!brick_secret(&secret) || brick_fingerprint(tensor, secret.key, &given) != NULL)
        return step;
    return brick_splitmix64(step ^ given.checksum);
}

int brick_key_published(struct brick_process *process, struct brick_fingerprint_key *key)
{
    struct brick_secret secret;
    if (!brick_secret(&secret))
        return 0;
    uint64_t *name = &process->reserved[BRICK_PROCESS_KEY];
    if (BRICK_UNLIKELY(brick_load_relaxed(name) != secret.name))
        brick_store_relaxed(name, secret.name);
    *key = secret.key;
    return 1;
}

void brick_taken_of(struct brick_taken *taken, const struct brick_tensor *tensor)
{
    uint64_t digest = brick_splitmix64(tensor->dims);
    for (uint32_t d = 0; d < tensor->dims; d++) {
        const uint64_t size = (uint64_t)tensor->shape[d];
        digest = brick_splitmix64(digest ^ size);
        if (d < SHAPE_MAX)
            taken->shape[d] = size;
    }
    taken->dtype = tensor->dtype;
    taken->dims = tensor->dims;
    taken->extents = (uint32_t)(digest >> 32);
    taken->valid = tensor->valid;
}

const char *brick_take(uint32_t kernel, const void *key, const struct brick_at *at, const struct brick_tensor *tensor,
                       struct brick_taken *taken)
{
    memset(taken, 0, sizeof *taken);
    if (!brick_wants(kernel, key, at))
        return NULL;
    struct brick_process *process = brick_process_of(brick_segment_now());
    struct brick_fingerprint_key secret;
    if (tensor != NULL && !brick_key_published(process, &secret))
        return NULL; /* brick_secret has already reported why; the checksum is dropped */
    const char *refused = tensor == NULL ? "no tensor was given" : brick_fingerprint(tensor, secret, &taken->fingerprint);
    if (refused != NULL) {
        brick_fetch_add(&process->reserved[BRICK_PROCESS_TENSORS_REFUSED], 1);
        taken->refused = 1;
        return refused;
    }
    brick_taken_of(taken, tensor);
    return NULL;
}

/* ---- recording ---------------------------------------------------------- */

static uint32_t saturated(uint64_t n) { return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX; }

/* Not inlined, for the reason given in fingerprint/fp_modes.h. */
static __attribute__((noinline)) void narrow(float to[2], double least, double most)
{
    to[0] = (float)least;
    to[1] = (float)most;
}

void brick_put_tensor(const struct brick_thread *t, uint64_t ahead, const struct brick_taken *taken)
{
    const struct brick_fingerprint *f = &taken->fingerprint;
    float bounds[2];
    const unsigned hosts = brick_modes_usual();
    narrow(bounds, f->min, f->max);
    brick_modes_restore(hosts);
    const struct brick_tensor_sums sums = {
        .checksum = f->checksum,
        .elements = f->elements,
        .mean = f->mean,
        .l2 = f->l2,
        .min = bounds[0],
        .max = bounds[1],
        .nan = saturated(f->nan),
        .pos_inf = saturated(f->pos_inf),
        .neg_inf = saturated(f->neg_inf),
        .shape = taken->extents,
        .dtype = (uint8_t)taken->dtype,
    };
    memcpy(brick_event_at(t, ahead), &sums, sizeof sums);
    memcpy(brick_event_at(t, ahead + 1), f->sketch, sizeof f->sketch);
}

void brick_put_output(const struct brick_thread *t, const struct brick_taken *taken)
{
    struct brick_output output = {.fnv1a = taken->fingerprint.fnv1a, .dims = taken->dims};
    memcpy(output.shape, taken->shape, sizeof output.shape);
    memcpy(brick_event_at(t, 1), &output, sizeof output);
    brick_put_tensor(t, 2, taken);
}

/* Combines several inputs into one, whose checksum changes if the checksum of any input changes. */
static struct brick_taken all_of(const struct brick_taken *inputs, uint32_t count)
{
    struct brick_taken all = {.dtype = inputs[0].dtype};
    for (uint32_t n = 0; n < count; n++) {
        const struct brick_fingerprint *f = &inputs[n].fingerprint;
        if (inputs[n].dtype == 0)
            return (struct brick_taken){.dtype = 0};
        all.fingerprint.checksum = brick_splitmix64(all.fingerprint.checksum ^ f->checksum);
        all.fingerprint.elements += f->elements;
    }
    return all;
}

static void put_inputs(const struct brick_thread *t, const struct brick_taken *inputs, uint32_t count)
{
    const uint32_t apart = count <= BRICK_INPUTS_MAX ? count : BRICK_INPUTS_MAX - 1;
    for (uint32_t n = 0; n < apart; n++)
        brick_put_tensor(t, BRICK_CHECKED_SLOTS(n), &inputs[n]);
    if (apart < count) {
        const struct brick_taken others = all_of(inputs + apart, count - apart);
        brick_put_tensor(t, BRICK_CHECKED_SLOTS(apart), &others);
    }
}

/* An invalid relation is counted as an invalid amount and recorded as local, so that no group has to agree. */
static void put_relation(struct brick_thread *t, const struct brick_at *at, struct brick_checked *r)
{
    const int named = at->of != 0 && at->of <= UINT16_MAX;
    const int can_be = at->relation == BRICK_LOCAL || (at->relation < BRICK_RELATIONS && named);
    r->relation = can_be ? (uint8_t)at->relation : BRICK_LOCAL;
    r->of = r->relation != BRICK_LOCAL ? (uint16_t)at->of : 0;
    r->backend = at->backend <= UINT16_MAX ? (uint16_t)at->backend : 0;
    brick_add(&t->line->amounts, !can_be);
}

uint64_t brick_params_of(const struct brick_at *at, uint8_t relation)
{
    const uint64_t generation = brick_load_relaxed(&brick_agent.generation);
    if (generation == 0 || relation == BRICK_MOVED)
        return at->params;
    const uint64_t params = brick_splitmix64(at->params ^ generation);
    return params != 0 ? params : 1;
}

unsigned brick_checksum(uint32_t kernel, const void *key, const struct brick_at *at, const struct brick_taken *output,
                        const struct brick_taken *inputs, uint32_t count)
{
    unsigned outcome = BRICK_DONE;
    struct brick_thread *t = brick_enter(key, &outcome, ARRIVES_ENDED);
    if (t == NULL)
        return outcome;
    at = at != NULL ? at : &here;
    const uint64_t now = brick_ticks(brick_agent.clock);
    const struct brick_checked_place p = brick_checked_place_of(t, kernel, key, at);
    if ((p.value & BRICK_ENTRY_OFF) != 0 || !brick_checked_drawn(t, &p, BRICK_RATE_ALL, 1)) {
        brick_idle(t);
        return outcome;
    }
    uint64_t position = at->position != NULL ? *at->position : 0;
    /* Call count_visit even if no record follows, because it counts all visits. */
    int placed = p.value != 0 && (at->position != NULL || count_visit(t, &p, &position));
    if (output->refused) { /* brick_take has counted this as refused, so it is not also counted as a dropped record */
        brick_event_over(t, now);
        return outcome | BRICK_REFUSED;
    }
    const uint32_t kept = count <= BRICK_INPUTS_MAX ? count : BRICK_INPUTS_MAX;
    const uint16_t slots = (uint16_t)BRICK_CHECKED_SLOTS(kept);
    if (p.value == 0)
        brick_fetch_add(&brick_process_of(t->segment)->reserved[BRICK_PROCESS_SITES_REFUSED], 1);
    brick_add(&t->line->amounts, at->layer != NULL && *at->layer > BRICK_LAYER_MAX); /* then the record has no layer */
    brick_event_attempt(t);
    struct brick_checked *r = placed && output->dtype != 0 ? brick_event_slot(t, kept_free(t, kept)) : NULL;
    if (r == NULL) {
        outcome |= brick_event_dropped(t, BRICK_KIND_CHECKED);
    } else {
        brick_put_output(t, output);
        put_inputs(t, inputs, count);
        BRICK_POINT("checked");
        r->site = (uint32_t)(p.value & 0xFFFF);
        r->ticks = now;
        r->step = p.step;
        r->position = position;
        r->valid = output->valid;
        put_relation(t, at, r);
        r->params = brick_params_of(at, r->relation);
        r->inputs = (uint8_t)kept;
        r->flags = (uint8_t)((at->position != NULL ? BRICK_CHECKED_POSITION : 0) | (p.has_step ? BRICK_CHECKED_STEP : 0)
                             | (count > kept ? BRICK_CHECKED_MORE : 0)
                             | (at->state == BRICK_STATELESS ? BRICK_CHECKED_STATELESS : 0)
                             | (at->state >= BRICK_STATEFUL ? BRICK_CHECKED_STATEFUL : 0));
        r->reserved = 0;
        brick_event_publish(t, r, BRICK_KIND_CHECKED, slots);
        if (p.has_step)
            brick_step_tell(t, p.step);
    }
    brick_event_over(t, now);
    return outcome;
}
