/* writer/mark.c - marks: launches, transfers, needs, definitions, rows. Each mark has a path of its own, which counts
 * it without a time.
 *
 * A mark is added to its path's summary like a span, so a late or missing reader loses nothing. This code makes no
 * system call, allocates nothing and takes no lock, except for a thread's first mark and the name of a new shape or
 * pair of ends.
 */
#include "summary.h"

#include "brick_graph.h"
#include "brick_hash.h"

#include <stdio.h>
#include <string.h>

/* ---- marks --------------------------------------------------------------- */

/* The parent path and the layer of a mark. */
struct parent {
    uint32_t path, layer;
};

/* Inside a span that got no frame, the path is unknown. */
static struct parent parent_of(struct brick_thread *t, const void *key)
{
    const struct brick_stack *s = brick_stack_of(t, key, 0);
    if (s != NULL && s->refused != 0)
        return (struct parent){BRICK_OTHER, BRICK_NO_LAYER};
    if (s == NULL || s->top == NULL)
        return (struct parent){BRICK_ROOT, BRICK_NO_LAYER};
    return (struct parent){s->top->path, s->top->layer};
}

/* Returns the path of a brick that is a child of the open span. If the path is new, the limit of marks applies to it,
 * because the brick may never have a time. */
static struct parent sibling(struct brick_thread *t, struct parent at, uint32_t brick)
{
    const uint64_t key = brick_path_key(at.path, brick, at.layer, BRICK_UNIT_TICKS);
    const struct brick_tables *tables = &brick_agent.tables;
    if (brick > UINT16_MAX
        || (brick_entry_find(tables, key) == 0 && brick_load_relaxed(&tables->next_path) >= t->segment->header->paths / 2))
        return (struct parent){BRICK_OTHER, BRICK_NO_LAYER};
    at.path = (uint32_t)(brick_path_of(t, key) & 0xFFFF);
    return at;
}

static const struct brick_amounts nothing;

/* Counts a mark, with the time that the host gives. Returns the path of the mark; BRICK_OTHER if no path is free. */
static uint32_t mark_timed(struct brick_thread *t, struct parent at, uint32_t name, enum brick_unit unit, uint64_t stated_ns,
                           const struct brick_amounts *did)
{
    uint64_t *counted = t->line->reserved2;
    brick_add(&counted[BRICK_LANE_MARKS], 1);
    brick_fence_signal(); /* O14 */
    BRICK_POINT("mark");
    uint32_t path = BRICK_OTHER;
    if (name <= UINT16_MAX)
        path = (uint32_t)(brick_path_of(t, brick_path_key(at.path, name, at.layer, unit)) & 0xFFFF);
    if (path == BRICK_OTHER || !brick_summary_there(t, path)) {
        brick_add(&counted[BRICK_LANE_MARKS_REFUSED], 1);
        return BRICK_OTHER;
    }
    if (BRICK_UNLIKELY(!brick_total_holds(t, path, stated_ns))) {
        brick_add(&t->line->amounts, 1);
        stated_ns = 0;
    }
    brick_summarize(t, path, stated_ns, 0, 0, did);
    return path;
}

static uint32_t mark(struct brick_thread *t, struct parent at, uint32_t name, enum brick_unit unit,
                     const struct brick_amounts *did)
{
    return mark_timed(t, at, name, unit, 0, did);
}

/* Reads the clock every 1,024 marks: a thread that records only marks must also notice that its segment is lost. */
static void over(struct brick_thread *t)
{
    const uint64_t marks = brick_load_relaxed(&t->line->reserved2[BRICK_LANE_MARKS]);
    if (BRICK_UNLIKELY((marks & 1023) < 2)) { /* a call adds at most two marks */
        const uint64_t now = brick_ticks(brick_agent.clock);
        if (now > t->look)
            brick_look(t, now);
    }
    brick_idle(t);
}

static unsigned outcome_of(unsigned outcome, uint32_t path) { return outcome | (path == BRICK_OTHER ? BRICK_REFUSED : 0u); }

/* ---- the memories of a thread -------------------------------------------- */

#define SHAPES 64u
#define COUPLES 64u
#define SENT 16u

struct brick_memories {
    struct shape {
        struct brick_launch how;
        uint32_t name; /* 0: free; BRICK_UNNAMED: there was no room for the name, and there never will be */
    } shapes[SHAPES];
    struct couple {
        uint32_t from, to, name;
    } couples[COUPLES];
    struct sent {
        uint64_t bytes; /* 0: the transfer has been returned, or the entry is free */
        uint32_t from, to, direction;
    } sent[SENT];
    uint32_t next; /* the next index in `sent` */
};

static struct brick_memories *memories_of(struct brick_thread *t)
{
    if (BRICK_UNLIKELY(t->memories == NULL)) {
        if (!brick_seldom(++t->unremembered))
            return NULL;
        t->memories = (struct brick_memories *)brick_private_memory(sizeof *t->memories);
    }
    return t->memories;
}

void brick_memories_forget(struct brick_thread *t)
{
    if (t->memories != NULL)
        memset(t->memories->sent, 0, sizeof t->memories->sent);
}

/* Returns the id of the name, or BRICK_UNNAMED. If a signal handler forked in the middle of a mark, the mark belongs to
 * the parent, so the child does not open a segment for it. */
static uint32_t name_for_mark(const char *text, size_t length, const char *category)
{
    const uint32_t name = brick_agent_owns() ? brick_name_for_mark(text, length, category) : BRICK_OTHER;
    return name == BRICK_OTHER ? BRICK_UNNAMED : name;
}

/* ---- launches -------------------------------------------------------------- */

/* Returns how many of the six numbers of grid and block are 0. In a valid launch, none are, or all six if grid and
 * block are unknown. */
static int zeros_in(const struct brick_launch *how)
{
    int zeros = 0;
    for (int i = 0; i < 3; i++)
        zeros += (how->grid[i] == 0) + (how->block[i] == 0);
    return zeros;
}

/* Writes a shape as brick_shm.h defines it. */
static size_t shape_text(const struct brick_launch *how, char *text, size_t size)
{
    const uint32_t *g = how->grid, *b = how->block;
    int at = 0;
    if (g[0] != 0) {
        at += snprintf(text, size, "<<<%u", (unsigned)g[0]);
        if (g[1] != 1 || g[2] != 1)
            at += snprintf(text + at, size - (size_t)at, "x%u", (unsigned)g[1]);
        if (g[2] != 1)
            at += snprintf(text + at, size - (size_t)at, "x%u", (unsigned)g[2]);
        at += snprintf(text + at, size - (size_t)at, ",%u,%u", (unsigned)b[0], (unsigned)b[1]);
        if (b[2] != 1)
            at += snprintf(text + at, size - (size_t)at, ",%u", (unsigned)b[2]);
        at += snprintf(text + at, size - (size_t)at, ">>> ");
    }
    at += snprintf(text + at, size - (size_t)at, "smem=%uB", (unsigned)how->shared_bytes);
    if (how->source != 0)
        at += snprintf(text + at, size - (size_t)at, " @%016llx", (unsigned long long)how->source);
    return (size_t)at;
}

static int is_like(const struct brick_launch *one, const struct brick_launch *other)
{
    return memcmp(one->grid, other->grid, sizeof one->grid) == 0 && memcmp(one->block, other->block, sizeof one->block) == 0
           && one->shared_bytes == other->shared_bytes && one->source == other->source;
}

static uint64_t hash_of(const struct brick_launch *how)
{
    uint64_t h = how->source ^ how->shared_bytes;
    for (int i = 0; i < 3; i++)
        h = brick_splitmix64(h ^ ((uint64_t)how->grid[i] << 32 | how->block[i]));
    return h;
}

static uint32_t shape_of(struct brick_thread *t, const struct brick_launch *how)
{
    struct brick_memories *m = memories_of(t);
    struct shape *known = m != NULL ? &m->shapes[hash_of(how) % SHAPES] : NULL;
    if (BRICK_LIKELY(known != NULL && known->name != 0 && is_like(&known->how, how)))
        return known->name;
    char text[BRICK_NAME_MAX];
    const uint32_t name = name_for_mark(text, shape_text(how, text, sizeof text), NULL);
    if (known != NULL)
        *known = (struct shape){*how, name};
    return name;
}

static unsigned mark_launch(struct brick_thread *t, struct parent at, uint32_t kernel, const struct brick_launch *how,
                            const struct brick_amounts *did)
{
    const uint32_t launched = mark(t, at, kernel, BRICK_UNIT_LAUNCHED, did);
    const unsigned outcome = outcome_of(BRICK_DONE, launched);
    if (how == NULL)
        return outcome;
    const int zeros = zeros_in(how);
    if (zeros == 6 && how->shared_bytes == 0 && how->source == 0)
        return outcome;
    if (zeros != 0 && zeros != 6) {
        brick_add(&t->line->amounts, 1);
        return outcome | BRICK_REFUSED;
    }
    uint32_t shape = BRICK_UNNAMED;
    if (launched != BRICK_OTHER)
        shape = shape_of(t, how);
    else if (brick_room_for_marks())
        (void)shape_of(t, how); /* assign a name even if there is no path, so that the segment shows how many names the
                                   program needs */
    const struct parent below = {launched, BRICK_NO_LAYER};
    return outcome_of(outcome, mark(t, below, shape, BRICK_UNIT_SHAPED, &nothing));
}

unsigned brick_launched(uint32_t kernel, const void *key, const struct brick_launch *how, const uint64_t *elapsed_ns,
                        const struct brick_amounts *did)
{
    unsigned outcome = BRICK_DONE;
    struct brick_thread *t = brick_enter(key, &outcome, ARRIVES_ENDED);
    if (t == NULL)
        return outcome;
    did = did != NULL ? did : &nothing;
    const struct brick_amounts own = brick_amounts_checked(t, *did);
    outcome |= mark_launch(t, parent_of(t, key), kernel, how, elapsed_ns == NULL ? &own : &nothing);
    over(t);
    return elapsed_ns == NULL ? outcome : outcome | brick_record_of(kernel, key, *elapsed_ns, &own);
}

unsigned brick_launched_by(uint32_t brick, uint32_t kernel, const void *key, const struct brick_launch *how)
{
    unsigned outcome = BRICK_DONE;
    struct brick_thread *t = brick_enter(key, &outcome, ARRIVES_ENDED);
    if (t == NULL)
        return outcome;
    outcome |= mark_launch(t, sibling(t, parent_of(t, key), brick), kernel, how, &nothing);
    over(t);
    return outcome;
}

/* ---- transfers ------------------------------------------------------------- */

static size_t text_of(const struct brick_segment *s, uint32_t name, char *text)
{
    const struct brick_name *slot = &brick_names_of(s)[name];
    const size_t length = brick_load_acquire32(&slot->word) & BRICK_NAME_LENGTH; /* O3 */
    memcpy(text, slot->text, length);
    return length;
}

/* Returns the id of the name of a pair of ends, or BRICK_UNNAMED (also if an end has no name). */
static uint32_t couple_of(struct brick_thread *t, uint32_t from, uint32_t to)
{
    struct brick_memories *m = memories_of(t);
    struct couple *known = m != NULL ? &m->couples[brick_splitmix64((uint64_t)from << 32 | to) % COUPLES] : NULL;
    if (BRICK_LIKELY(known != NULL && known->name != 0 && known->from == from && known->to == to))
        return known->name;
    if (!brick_name_is_given(t->segment, from) || !brick_name_is_given(t->segment, to))
        return BRICK_UNNAMED;
    char text[2 * BRICK_NAME_MAX + sizeof BRICK_ARROW];
    size_t length = text_of(t->segment, from, text);
    memcpy(text + length, BRICK_ARROW, sizeof BRICK_ARROW - 1);
    length += sizeof BRICK_ARROW - 1;
    length += text_of(t->segment, to, text + length);
    const uint32_t name = name_for_mark(text, length, "transfer");
    if (known != NULL)
        *known = (struct couple){from, to, name};
    return name;
}

/* Returns whether a transfer returns the data of an earlier one. If so, forgets the earlier transfer; if not, remembers
 * this transfer. */
static int takes_back(struct brick_memories *m, struct sent now)
{
    if (m == NULL || now.direction == BRICK_ON_DEVICE || now.bytes == 0)
        return 0;
    for (uint32_t i = 0; i < SENT; i++) {
        struct sent *s = &m->sent[i];
        if (s->bytes == now.bytes && s->from == now.to && s->to == now.from && s->direction != now.direction) {
            s->bytes = 0;
            return 1;
        }
    }
    m->sent[m->next++ % SENT] = now;
    return 0;
}

unsigned brick_moved(enum brick_direction direction, uint32_t from, uint32_t to, const void *key, uint64_t bytes,
                     const uint64_t *elapsed_ns)
{
    static const enum brick_unit units[] = {BRICK_UNIT_H2D, BRICK_UNIT_D2H, BRICK_UNIT_D2D};
    unsigned outcome = BRICK_DONE;
    struct brick_thread *t = brick_enter(key, &outcome, ARRIVES_ENDED);
    if (t == NULL)
        return outcome;
    const uint32_t couple = (uint32_t)direction < 3 ? couple_of(t, from, to) : BRICK_UNNAMED;
    const struct brick_amounts did = {0, brick_checked(t, bytes), 0};
    const uint32_t moved = mark(t, parent_of(t, key), couple, units[(uint32_t)direction % 3], &did);
    outcome = outcome_of(outcome, moved);
    if (moved != BRICK_OTHER && takes_back(memories_of(t), (struct sent){did.bytes, from, to, direction}))
        outcome = outcome_of(outcome, mark(t, (struct parent){moved, BRICK_NO_LAYER}, couple, BRICK_UNIT_RETURNED, &did));
    over(t);
    return elapsed_ns == NULL ? outcome : outcome | brick_record_of(couple, key, *elapsed_ns, &did);
}

/* ---- needs, functions, tasks ----------------------------------------------- */

/* Marks a brick that is a child of the open span. For needs, BRICK_UNNAMED stands for the open span itself. */
static unsigned mark_brick(uint32_t brick, const void *key, uint32_t name, uint32_t layer, enum brick_unit unit)
{
    unsigned outcome = BRICK_DONE;
    struct brick_thread *t = brick_enter(key, &outcome, ARRIVES_ENDED);
    if (t == NULL)
        return outcome;
    struct parent at = parent_of(t, key);
    if (unit != BRICK_UNIT_NEEDS || brick != BRICK_UNNAMED)
        at = sibling(t, at, brick);
    else if (at.path == BRICK_ROOT) /* there is no open span */
        at.path = BRICK_OTHER;
    at.layer = layer;
    outcome = outcome_of(outcome, mark(t, at, name, unit, &nothing));
    over(t);
    return outcome;
}

unsigned brick_needs(uint32_t brick, uint32_t needed, const void *key)
{
    return mark_brick(brick, key, needed, BRICK_NO_LAYER, BRICK_UNIT_NEEDS);
}

unsigned brick_defined(uint32_t brick, uint32_t file, uint32_t line, const void *key)
{
    return mark_brick(brick, key, file, line <= BRICK_LAYER_MAX ? line : BRICK_NO_LAYER, BRICK_UNIT_DEFINED);
}

unsigned brick_task_ended(uint32_t brick, const void *key)
{
    return mark_brick(brick, key, brick, BRICK_NO_LAYER, BRICK_UNIT_ENDED);
}

/* ---- rows ------------------------------------------------------------------- */

unsigned brick_rows_note(uint32_t kernel, const void *key, const struct brick_at *at, uint32_t word, uint64_t calls)
{
    unsigned outcome = BRICK_DONE;
    struct brick_thread *t = brick_enter(key, &outcome, ARRIVES_ENDED);
    if (t == NULL)
        return outcome;
    struct parent of = {BRICK_OTHER, at != NULL && at->layer != NULL ? *at->layer : parent_of(t, key).layer};
    if (word <= UINT16_MAX && word != BRICK_OTHER)
        of.path = (uint32_t)(brick_path_of(t, brick_path_key(BRICK_ROOT, word, BRICK_NO_LAYER, BRICK_UNIT_ROWS)) & 0xFFFF);
    if (of.layer > BRICK_LAYER_MAX)
        of.layer = BRICK_NO_LAYER;
    outcome = outcome_of(outcome, mark(t, of, kernel, BRICK_UNIT_ROWS, &(struct brick_amounts){.elements = calls}));
    over(t);
    return outcome;
}

void brick_rows_presume(uint32_t kernel, uint32_t layer)
{
    unsigned outcome = BRICK_DONE;
    struct brick_thread *t = brick_enter(NULL, &outcome, ARRIVES_ENDED);
    if (t == NULL)
        return;
    const uint64_t key = brick_site_entry(kernel, layer <= BRICK_LAYER_MAX ? layer : BRICK_NO_LAYER);
    if (kernel <= UINT16_MAX && brick_entry_find(&brick_agent.tables, key) == 0)
        brick_site_intern_as(&brick_agent.tables, t->segment, key, BRICK_SITE_PRESUMED);
    brick_idle(t);
}

void brick_rows_turns(uint32_t turns)
{
    unsigned outcome = BRICK_DONE;
    struct brick_thread *t = brick_enter(NULL, &outcome, ARRIVES_ENDED);
    if (t == NULL)
        return;
    uint64_t *published = &brick_lane_of(t->segment, 0)->reserved3[BRICK_LANE_ROWS_TURNS];
    if (brick_load_relaxed(published) < turns) /* O14 */
        brick_store_relaxed(published, turns);
    brick_idle(t);
}

/* ---- nodes ------------------------------------------------------------------ */

unsigned brick_node(uint32_t brick, const void *key, uint64_t elapsed_ns, const struct brick_amounts *did)
{
    unsigned outcome = BRICK_DONE;
    struct brick_thread *t = brick_enter(key, &outcome, ARRIVES_ENDED);
    if (t == NULL)
        return outcome;
    const struct brick_amounts own = brick_amounts_checked(t, did != NULL ? *did : nothing);
    const uint64_t stated_ns = brick_checked(t, elapsed_ns);
    outcome = outcome_of(outcome, mark_timed(t, parent_of(t, key), brick, BRICK_UNIT_NODE, stated_ns, &own));
    over(t);
    return outcome;
}

/* Marks the open node. Without an open node, the mark is refused: the open span must not become a function or a
 * task. */
static unsigned mark_open_node(uint32_t name, uint32_t layer, enum brick_unit unit, const void *key,
                               const struct brick_amounts *did)
{
    unsigned outcome = BRICK_DONE;
    struct brick_thread *t = brick_enter(key, &outcome, ARRIVES_ENDED);
    if (t == NULL)
        return outcome;
    const struct brick_stack *s = brick_stack_of(t, key, 0);
    const struct brick_frame *top = s != NULL && s->refused == 0 ? s->top : NULL;
    const int is_node = top != NULL && top->scope == BRICK_SCOPE_NODE
                        && brick_key_unit(brick_load_relaxed(&brick_paths_of(t->segment)[top->path])) == BRICK_UNIT_NODE;
    const struct parent at = {is_node ? top->path : BRICK_OTHER, layer};
    const struct brick_amounts own = brick_amounts_checked(t, *did);
    outcome = outcome_of(outcome, mark(t, at, name, unit, &own));
    over(t);
    return outcome;
}

unsigned brick_node_defined(uint32_t file, uint32_t line, const void *key)
{
    const uint32_t name = file != BRICK_UNNAMED ? file : BRICK_OTHER;
    return mark_open_node(name, line <= BRICK_LAYER_MAX ? line : BRICK_NO_LAYER, BRICK_UNIT_DEFINED, key, &nothing);
}

unsigned brick_node_task(uint64_t polls, uint64_t yields, const void *key)
{
    return mark_open_node(BRICK_OTHER, BRICK_NO_LAYER, BRICK_UNIT_TASK, key, &(struct brick_amounts){polls, yields, 0});
}
