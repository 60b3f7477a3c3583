/* writer/lane.c - the memory of a lane, and the move of a lane into the segment that replaces a lost one. */
#include "lane.h"

#include <string.h>

/* The control page for threads that no longer own their segment. */
static const struct brick_control retired = {.flags = BRICK_CONTROL_OFF};

void brick_threads_retire(uint32_t lanes)
{
    for (uint32_t n = 0; brick_agent.threads != NULL && n < lanes; n++)
        __atomic_store_n(&brick_agent.threads[n].control, &retired, __ATOMIC_RELEASE);
}

/* Acquire: after this load, a load of the segment finds the segment that replaced the lost one. */
int brick_lane_retired(const struct brick_thread *t) { return __atomic_load_n(&t->control, __ATOMIC_ACQUIRE) == &retired; }

int brick_nodes_more(struct brick_thread *t)
{
    if (t->chunks == BRICK_CHUNKS)
        return 0;
    union brick_node *nodes = (union brick_node *)brick_private_memory(BRICK_NODES * sizeof *nodes);
    if (nodes == NULL)
        return 0;
    t->chunks++;
    for (uint32_t i = BRICK_NODES; i-- > 0;)
        brick_node_give(t, &nodes[i]);
    return 1;
}

static int area_commit(const struct brick_thread *t, uint64_t within, uint64_t bytes)
{
    const struct brick_segment *s = t->segment;
    if (brick_segment_commit(s, s->layout.first + t->number * s->layout.stride + within, bytes))
        return 1;
    brick_fetch_add(&brick_process_of(s)->blocks_refused, 1);
    return 0;
}

int brick_block_commit(struct brick_thread *t, uint32_t path)
{
    const uint64_t bytes = BRICK_BLOCK * sizeof(struct brick_summary);
    uint32_t block = path / BRICK_BLOCK;
    uint64_t bit = UINT64_C(1) << block % 64;
    if ((t->committed[block / 64] & bit) != 0)
        return 1;
    if ((t->refused[block / 64] & bit) != 0)
        return 0;
    if (!area_commit(t, t->segment->layout.summaries + block * bytes, bytes)) {
        t->refused[block / 64] |= bit;
        return 0;
    }
    t->committed[block / 64] |= bit;
    return 1;
}

int brick_ring_commit(struct brick_thread *t, struct brick_ring *ring, uint64_t within)
{
    if (ring->memory == BRICK_MEMORY_UNTRIED) {
        int there = area_commit(t, within, ring->slots * sizeof(struct brick_record));
        ring->memory = there ? BRICK_MEMORY_THERE : BRICK_MEMORY_REFUSED;
    }
    return ring->memory == BRICK_MEMORY_THERE;
}

/* Uses this segment's control page from now on. O18: if another thread has replaced the segment meanwhile, this store
 * may have overwritten its mark (`retired`), so set the mark again. */
static void orders_from(struct brick_thread *t, const struct brick_segment *s)
{
    __atomic_store_n(&t->control, brick_control_of(s), __ATOMIC_RELAXED);
    brick_fence_full();
    if (brick_segment_now() != s)
        __atomic_store_n(&t->control, &retired, __ATOMIC_RELAXED);
}

int brick_lane_bind(struct brick_thread *t, struct brick_segment *s)
{
    uint8_t *area = brick_area_of(s, t->number);
    __atomic_store_n(&t->segment, s, __ATOMIC_RELAXED);
    t->line = brick_lane_of(s, t->number);
    t->sequences = (uint64_t *)(void *)(area + s->layout.sequences);
    t->summaries = (struct brick_summary *)(void *)(area + s->layout.summaries);
    t->span_ring.records = (struct brick_record *)(void *)(area + s->layout.span_ring);
    t->span_ring.slots = s->header->span_slots;
    t->event_ring.records = (struct brick_record *)(void *)(area + s->layout.event_ring);
    t->event_ring.slots = s->header->event_slots;
    t->flags = 0;
    memset(t->told, 0, sizeof t->told);
    orders_from(t, s);
    return (t->committed[0] & 1) != 0
           || (area_commit(t, s->layout.sequences, s->layout.summaries - s->layout.sequences)
               && brick_block_commit(t, BRICK_OTHER));
}

/* The content of a lane in a lost segment. */
struct left {
    const struct brick_segment *segment;
    const struct brick_lane *line;
    const uint64_t *sequences;
    const struct brick_summary *summaries;
    uint64_t committed[16];
};
BRICK_ASSERT(sizeof ((struct left *)0)->committed == sizeof ((struct brick_thread *)0)->committed, "one size");

/* Copies one block of summaries. Each entry's sequence is odd meanwhile (O5 to O7), because a reader may be reading
 * it. */
static void block_move(struct brick_thread *t, const struct left *old, uint32_t first)
{
    for (uint32_t path = first; path < first + BRICK_BLOCK; path++) {
        uint64_t sequence = brick_load_relaxed(&old->sequences[path]);
        if (sequence == 0)
            continue;
        brick_store_relaxed(&t->sequences[path], sequence | 1);
        brick_fence_release();
        t->summaries[path] = old->summaries[path];
        BRICK_POINT("moved");
        brick_store_release(&t->sequences[path], (sequence | 1) + 1);
    }
}

/* Copies the lane's content into the segment that replaced a lost one. Only the lane's thread may write to either lane.
 * Totals and ledger continue. The rings begin empty, because their records were lost with the file. */
int brick_lane_move(struct brick_thread *t)
{
    struct brick_segment *s = brick_segment_now();
    BRICK_POINT("bind");
    if (t->segment == s) { /* the lane is already in this segment: it was bound before the thread was marked */
        orders_from(t, s);
        return 1;
    }
    struct left old = {.segment = t->segment, .line = t->line, .sequences = t->sequences, .summaries = t->summaries};
    memcpy(old.committed, t->committed, sizeof old.committed);
    memset(t->committed, 0, sizeof t->committed);
    memset(t->refused, 0, sizeof t->refused);
    t->span_ring = t->event_ring = (struct brick_ring){0};
    if (!brick_lane_bind(t, s))
        return 0;
    /* The tables have already been copied, but a path that was added since then is only in the lost segment. */
    brick_tables_copy(&brick_agent.tables, t->segment, old.segment);
    for (uint32_t path = 0; path < t->segment->header->paths; path += BRICK_BLOCK)
        if ((old.committed[path / BRICK_BLOCK / 64] >> path / BRICK_BLOCK % 64 & 1) != 0 && brick_block_commit(t, path))
            block_move(t, &old, path);
    struct brick_lane line = *old.line;
    line.span_head = line.span_attempts = line.event_head = line.event_attempts = line.event_records = 0;
    memset(line.span_dropped, 0, sizeof line.span_dropped);
    memset(line.event_dropped, 0, sizeof line.event_dropped);
    *t->line = line;
    return 1;
}

void brick_threads_move(void)
{
    for (uint32_t n = 0; n < brick_segment_now()->header->lanes; n++) {
        struct brick_thread *t = &brick_agent.threads[n];
        if (__atomic_load_n(&t->segment, __ATOMIC_RELAXED) == NULL || !brick_claim32(&t->owner, 0, 1))
            continue; /* the lane was never used, or has a thread, which moves the lane itself */
        brick_lane_move(t);
        brick_store_release32(&t->owner, 0);
    }
}

/* Frees the lane. O18: if another thread has replaced the segment meanwhile, it skipped this lane because the lane
 * still had an owner. So move the lane now. */
void brick_lane_give(struct brick_thread *t)
{
    for (;;) {
        const struct brick_segment *s = t->segment;
        brick_store_release32(&t->owner, 0); /* O16 */
        brick_fence_full();
        if (s == NULL || s == brick_segment_now() || !brick_claim32(&t->owner, 0, 1))
            return;
        brick_lane_move(t);
    }
}
