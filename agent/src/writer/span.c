/* writer/span.c - the record path: begins a span, ends a span, records a span with a given time.
 *
 * This path makes no system call, allocates nothing, takes no lock and calls no host code; rare cases are elsewhere.
 */
#include "draw.h"
#include "summary.h"

/* ---- rings ------------------------------------------------------------- */

static void record_span(struct brick_thread *t, uint16_t kind, const struct brick_frame *f, uint64_t duration,
                        uint64_t elements, uint64_t bytes)
{
    struct brick_ring *ring = &t->span_ring;
    struct brick_lane *line = t->line;
    uint64_t sequence = brick_load_relaxed(&line->span_attempts) + 1;
    brick_store_relaxed(&line->span_attempts, sequence);
    if (ring->memory != BRICK_MEMORY_THERE) {
        brick_add(&line->span_dropped[BRICK_DROPPED_MEMORY], 1);
        return;
    }
    if (!brick_ring_room(t, ring, &brick_consumer_of(t->segment, t->number)->span, 0)) {
        brick_add(&line->span_dropped[BRICK_DROPPED_FULL], 1);
        return;
    }
    struct brick_span *r = (struct brick_span *)(void *)&ring->records[ring->head & (ring->slots - 1)];
    BRICK_POINT("record");
    r->path = f->path;
    r->slots = 1;
    r->kind = kind;
    r->start = f->start;
    r->duration = duration;
    r->child = f->child;
    r->step = f->step;
    r->elements = elements;
    r->bytes = bytes;
    BRICK_POINT("record_sequence");
    brick_store_release(&r->sequence, sequence); /* O9 */
    BRICK_POINT("record_head");
    brick_store_release(&line->span_head, ++ring->head); /* O10 */
}

/* ---- begin ------------------------------------------------------------- */

static unsigned begin_refused(struct brick_thread *t, struct brick_stack *s)
{
    if (s != NULL && s->top != NULL)
        s->refused++;
    brick_add(&t->line->begun, 1);
    brick_add(&t->line->rejected[BRICK_REJECTED_ROOM], 1);
    brick_idle(t);
    return BRICK_REFUSED;
}

static inline struct brick_frame *frame_push(struct brick_thread *t, struct brick_stack *s)
{
    struct brick_frame *f = (struct brick_frame *)(void *)brick_node_take(t);
    if (BRICK_UNLIKELY(f == NULL))
        return NULL;
    f->below = s->top;
    s->top = f;
    return f;
}

int brick_is_off(void) { return brick_off_here(); }

unsigned brick_begin(uint32_t brick, const void *key, const uint64_t *step)
{
    unsigned outcome = BRICK_DONE;
    struct brick_thread *t = brick_enter(key, &outcome, ARRIVES_SPAN);
    if (BRICK_UNLIKELY(t == NULL))
        return outcome;
    struct brick_stack *s = t->current;
    if (BRICK_UNLIKELY(s == NULL || s->key != key))
        s = brick_stack_of(t, key, 1);
    if (BRICK_UNLIKELY(s == NULL || s->refused != 0 || brick > UINT16_MAX))
        return outcome | begin_refused(t, s);

    const struct brick_frame *above = s->top;
    uint32_t parent = BRICK_ROOT, layer = BRICK_NO_LAYER, inherits = 0, draw = 0;
    uint64_t of_step = 0;
    if (above != NULL) {
        parent = above->path;
        layer = above->layer;
        inherits = above->inherits;
        of_step = above->step;
        draw = above->draw;
    }
    if (step != NULL) {
        inherits |= BRICK_FRAME_STEP;
        of_step = *step;
        draw = brick_draw_now(t, of_step);
    }
    uint64_t path = brick_path_of(t, brick_path_key(parent, brick, layer, BRICK_UNIT_TICKS));
    struct brick_frame *f = frame_push(t, s);
    if (BRICK_UNLIKELY(f == NULL))
        return outcome | begin_refused(t, s);
    if (above == NULL) {
        outcome |= BRICK_FIRST;
        s->borrowed = 0;
    }
    f->scope = 0;
    f->child = 0;
    f->brick = (uint16_t)brick;
    f->path = (uint16_t)(path & 0xFFFF);
    f->layer = layer;
    f->inherits = (uint16_t)(inherits | (path / BRICK_ENTRY_AGAIN & BRICK_FRAME_AGAIN));
    f->step = of_step;
    f->draw = draw;
    f->older = t->newest;
    f->newer = NULL;
    if (f->older != NULL)
        f->older->newer = f;
    t->newest = f;

    struct brick_lane *line = t->line;
    brick_add(&line->begun, 1); /* O14 */
    brick_fence_signal();
    BRICK_POINT("begun");
    brick_add(&line->open, 1);
    BRICK_POINT("open");
    f->start = brick_ticks(brick_agent.clock);
    brick_store_relaxed(&line->current, brick_open_word(f->start, f->path));
    brick_idle(t);
    return outcome;
}

/* ---- end --------------------------------------------------------------- */

/* Returns the innermost frame of this brick. The frames inside this frame will never be ended. */
static struct brick_frame *frame_find(struct brick_stack *s, uint32_t brick)
{
    struct brick_frame *f = s->top;
    while (f != NULL && (f->scope || f->brick != brick))
        f = f->below;
    return f;
}

static int path_open_below(const struct brick_frame *f)
{
    for (const struct brick_frame *g = f->below; g != NULL; g = g->below)
        if (!g->scope && g->path == f->path)
            return 1;
    return 0;
}

static inline unsigned last_of(const struct brick_stack *s)
{
    return BRICK_UNLIKELY(s->top == NULL) && !s->borrowed ? BRICK_LAST : BRICK_DONE;
}

static unsigned unmatched(struct brick_thread *t, unsigned outcome)
{
    brick_add(&t->line->unmatched, 1);
    brick_idle(t);
    return outcome | BRICK_UNMATCHED;
}

/* Like brick_enter_slowly, but open spans can also end while recording is off. */
static struct brick_thread *leave_slowly(struct brick_thread *t, const void *key, unsigned *outcome)
{
    uint32_t gate = brick_load_relaxed32(brick_agent.gate);
    /* This thread has no open span, so the end has no begin here: the thread needs a lane to count this. */
    if (t == NULL && gate == BRICK_ON && brick_never_refused())
        t = brick_join(outcome, 0);
    t = brick_enter_still(t, outcome);
    if (t != NULL && (gate == BRICK_OFF || (t->flags & BRICK_CONTROL_OFF) != 0) && brick_stack_open(t, key) == NULL) {
        brick_idle(t);
        return NULL;
    }
    return t;
}

static inline struct brick_thread *leave(const void *key, unsigned *outcome)
{
    struct brick_thread *t = brick_self;
    if (BRICK_UNLIKELY(t == NULL || brick_load_relaxed32(brick_agent.gate) != BRICK_ON || t->busy
                       || brick_wants_attention(t)))
        return leave_slowly(t, key, outcome);
    brick_busy(t);
    return t;
}

/* Adds an ended span to its path's summary and, if a consumer requested details, to the span ring. */
BRICK_ALWAYS void publish(struct brick_thread *t, uint16_t kind, const struct brick_frame *f, uint64_t duration,
                           uint64_t child, uint64_t again, const struct brick_amounts *did)
{
    uint32_t path = f->path;
    const struct brick_amounts counted = kind == BRICK_KIND_STEP ? (struct brick_amounts){.elements = did->bytes} : *did;
    if (BRICK_UNLIKELY(!brick_summary_there(t, path)))
        path = BRICK_OTHER;
    brick_summarize(t, path, duration, child, again, &counted);
    brick_fence_signal();
    BRICK_POINT("summarized");
    brick_add(&t->line->summarized, 1);
    if (BRICK_UNLIKELY((t->flags & BRICK_CONTROL_SPANS) != 0))
        record_span(t, kind, f, duration, did->elements, did->bytes);
}

BRICK_ALWAYS unsigned end(uint16_t kind, uint32_t brick, const void *key, struct brick_amounts did)
{
    unsigned outcome = BRICK_DONE;
    struct brick_thread *t = leave(key, &outcome);
    if (BRICK_UNLIKELY(t == NULL))
        return outcome;
    uint64_t now = brick_ticks(brick_agent.clock);
    struct brick_stack *s = t->current;
    if (BRICK_UNLIKELY(s == NULL || s->key != key))
        s = brick_stack_of(t, key, 0);
    if (BRICK_UNLIKELY(s == NULL))
        return unmatched(t, outcome);
    if (BRICK_UNLIKELY(s->refused != 0)) {
        s->refused--;
        brick_idle(t);
        return outcome;
    }
    struct brick_frame *f = s->top;
    if (BRICK_UNLIKELY(f == NULL || f->scope || f->brick != brick)) {
        f = frame_find(s, brick);
        if (f == NULL)
            return unmatched(t, outcome);
        brick_abandon(t, s, f);
    }
    did = brick_amounts_checked(t, did);
    if (kind == BRICK_KIND_STEP && did.bytes > did.elements) {
        brick_add(&t->line->amounts, 1);
        did.bytes = did.elements;
    }

    uint64_t duration = now - f->start, child = f->child;
    uint64_t again = BRICK_UNLIKELY(f->inherits & BRICK_FRAME_AGAIN) && path_open_below(f) ? duration : 0;
    struct brick_frame *above = f->below;
    while (BRICK_UNLIKELY(above != NULL && above->scope))
        above = above->below;
    brick_frame_pop(t, s);
    brick_fence_signal();
    BRICK_POINT("popped");
    if (BRICK_UNLIKELY((int64_t)duration < 0)) {
        brick_add(&t->line->rejected[BRICK_REJECTED_CLOCK], 1);
    } else {
        if (above != NULL)
            above->child += duration;
        publish(t, kind, f, duration, child, again, &did);
    }
    outcome |= last_of(s);
    if (BRICK_UNLIKELY(now > t->look))
        brick_look(t, now);
    brick_idle(t);
    return outcome;
}

unsigned brick_end(uint32_t brick, const void *key, uint64_t elements, uint64_t bytes)
{
    return end(BRICK_KIND_SPAN, brick, key, (struct brick_amounts){elements, bytes, 0});
}

unsigned brick_end_of(uint32_t brick, const void *key, const struct brick_amounts *did)
{
    return end(BRICK_KIND_SPAN, brick, key, *did);
}

unsigned brick_step_end(uint32_t brick, const void *key, uint64_t rows, uint64_t valid)
{
    return end(BRICK_KIND_STEP, brick, key, (struct brick_amounts){rows, valid, 0});
}

unsigned brick_record(uint32_t brick, const void *key, uint64_t elapsed_ns, uint64_t elements, uint64_t bytes)
{
    return brick_record_of(brick, key, elapsed_ns, &(struct brick_amounts){elements, bytes, 0});
}

unsigned brick_record_of(uint32_t brick, const void *key, uint64_t elapsed_ns, const struct brick_amounts *did)
{
    unsigned outcome = BRICK_DONE;
    struct brick_thread *t = brick_enter(key, &outcome, ARRIVES_ENDED);
    if (t == NULL)
        return outcome;
    uint64_t now = brick_ticks(brick_agent.clock);
    brick_add(&t->line->begun, 1);
    const struct brick_stack *s = brick_stack_of(t, key, 0);
    const struct brick_frame *above = s != NULL ? s->top : NULL;
    uint32_t parent = above != NULL ? above->path : BRICK_ROOT, layer = above != NULL ? above->layer : BRICK_NO_LAYER;
    uint32_t path = BRICK_OTHER;
    if (brick <= UINT16_MAX)
        path = (uint32_t)(brick_path_of(t, brick_path_key(parent, brick, layer, BRICK_UNIT_NS)) & 0xFFFF);
    /* The times of path "other" are ticks, so a time in ns cannot be added there. */
    int room = (s == NULL || s->refused == 0) && path != BRICK_OTHER && brick_summary_there(t, path);
    if (!room || elapsed_ns > BRICK_AMOUNT_MAX || !brick_total_holds(t, path, elapsed_ns)) {
        brick_add(&t->line->rejected[room ? BRICK_REJECTED_CLOCK : BRICK_REJECTED_ROOM], 1);
        outcome |= BRICK_REFUSED;
    } else {
        const struct brick_frame given = {
            .start = now, .step = above != NULL ? above->step : 0, .path = (uint16_t)path};
        const struct brick_amounts checked = brick_amounts_checked(t, *did);
        publish(t, BRICK_KIND_SPAN, &given, elapsed_ns, 0, 0, &checked);
    }
    if (BRICK_UNLIKELY(now > t->look))
        brick_look(t, now);
    brick_idle(t);
    return outcome;
}

/* ---- keys and scopes --------------------------------------------------- */

void brick_borrow(const void *key)
{
    struct brick_thread *t = brick_self;
    if (t == NULL || t->busy || !brick_agent_owns())
        return;
    brick_busy(t);
    struct brick_stack *s = brick_stack_open(t, key);
    if (s != NULL)
        s->borrowed = 1;
    brick_idle(t);
}

struct brick_place brick_place_of(const void *key)
{
    struct brick_place place = {0, BRICK_NO_LAYER};
    unsigned outcome = BRICK_DONE;
    struct brick_thread *t = brick_enter(key, &outcome, ARRIVES_QUESTION);
    if (t == NULL)
        return place;
    const struct brick_stack *s = brick_stack_open(t, key);
    const struct brick_frame *f = s != NULL ? s->top : NULL;
    if (f != NULL)
        place.layer = f->layer;
    while (f != NULL && f->scope)
        f = f->below;
    if (f != NULL)
        place.begun = f->start;
    brick_idle(t);
    return place;
}

/* Opens a scope that inherits from the enclosing frame. Returns NULL if there is no room. */
static struct brick_frame *scope_push(struct brick_thread *t, const void *key, uint16_t scope, unsigned *outcome)
{
    struct brick_stack *s = brick_stack_of(t, key, 1);
    struct brick_frame *f = s != NULL && s->refused == 0 ? frame_push(t, s) : NULL;
    if (f == NULL) {
        if (s != NULL && s->top != NULL)
            s->refused++;
        *outcome |= BRICK_REFUSED;
        return NULL;
    }
    const struct brick_frame *above = f->below;
    if (above == NULL) {
        *outcome |= BRICK_FIRST;
        s->borrowed = 0;
    }
    t->scopes++;
    f->scope = scope;
    f->layer = above != NULL ? above->layer : BRICK_NO_LAYER;
    f->path = above != NULL ? above->path : BRICK_ROOT;
    f->inherits = above != NULL ? above->inherits : 0;
    f->step = above != NULL ? above->step : 0;
    f->draw = above != NULL ? above->draw : 0;
    return f;
}

static unsigned scope_end(uint16_t scope, uint32_t which, const void *key)
{
    unsigned outcome = BRICK_DONE;
    struct brick_thread *t = leave(key, &outcome);
    if (t == NULL)
        return outcome;
    struct brick_stack *s = brick_stack_of(t, key, 0);
    if (s == NULL)
        return unmatched(t, outcome);
    if (s->refused != 0) {
        s->refused--;
        brick_idle(t);
        return outcome;
    }
    struct brick_frame *f = s->top;
    while (f != NULL && (f->scope != scope || (scope == BRICK_SCOPE_LAYER ? f->layer : f->brick) != which))
        f = f->below;
    if (f == NULL)
        return unmatched(t, outcome);
    brick_abandon(t, s, f);
    brick_frame_pop(t, s);
    outcome |= last_of(s);
    brick_idle(t);
    return outcome;
}

unsigned brick_layer_begin(uint32_t layer, const void *key)
{
    unsigned outcome = BRICK_DONE;
    struct brick_thread *t = brick_enter(key, &outcome, ARRIVES_SCOPE);
    if (t == NULL)
        return outcome;
    struct brick_frame *f = scope_push(t, key, BRICK_SCOPE_LAYER, &outcome);
    if (f != NULL && layer > BRICK_LAYER_MAX)
        brick_add(&t->line->amounts, 1);
    if (f != NULL)
        f->layer = layer <= BRICK_LAYER_MAX ? layer : BRICK_NO_LAYER;
    brick_idle(t);
    return outcome;
}

unsigned brick_layer_end(uint32_t layer, const void *key)
{
    return scope_end(BRICK_SCOPE_LAYER, layer <= BRICK_LAYER_MAX ? layer : BRICK_NO_LAYER, key);
}

/* If there is no path for the node, the node is omitted: its records go below the enclosing path. */
unsigned brick_node_begin(uint32_t brick, const void *key)
{
    unsigned outcome = BRICK_DONE;
    struct brick_thread *t = brick_enter(key, &outcome, ARRIVES_SCOPE);
    if (t == NULL)
        return outcome;
    struct brick_frame *f = scope_push(t, key, BRICK_SCOPE_NODE, &outcome);
    if (f != NULL) {
        const uint64_t node = brick_path_key(f->path, brick, f->layer, BRICK_UNIT_NODE);
        const uint64_t path = brick <= UINT16_MAX ? brick_path_of(t, node) : BRICK_OTHER;
        f->brick = (uint16_t)brick;
        f->inherits |= (uint16_t)(path / BRICK_ENTRY_AGAIN & BRICK_FRAME_AGAIN);
        if ((path & 0xFFFF) != BRICK_OTHER)
            f->path = (uint16_t)(path & 0xFFFF);
        else
            outcome |= BRICK_REFUSED;
        outcome |= (path & BRICK_ENTRY_AGAIN) != 0 ? BRICK_AGAIN : 0u;
    }
    brick_idle(t);
    return outcome;
}

unsigned brick_node_end(uint32_t brick, const void *key) { return scope_end(BRICK_SCOPE_NODE, brick & UINT16_MAX, key); }
