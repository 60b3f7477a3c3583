/* writer/lane.h - the private half of a lane: the open spans of its thread. Only the owning thread uses a brick_thread,
 * except that others write `owner` and `control`, and read `given` and `segment`. */
#ifndef BRICK_LANE_H
#define BRICK_LANE_H

#include "lifecycle.h"

enum brick_frame_bits {
    BRICK_FRAME_AGAIN = 1, /* here or below, a recursion was folded: the path may be open several times */
    BRICK_FRAME_STEP = 2,  /* a step was given, here or below; step 0 is also a step */
};

enum brick_scope { BRICK_SCOPE_LAYER = 1, BRICK_SCOPE_NODE = 2 };

/* An open span, or an open scope: a layer or a node. */
struct brick_frame {
    struct brick_frame *below;         /* the frame around it, for the same key */
    struct brick_frame *older, *newer; /* by start time, for all keys; spans only */
    uint64_t start, child, step;
    uint16_t brick, path;
    uint32_t layer;
    uint32_t draw;     /* brick_draw_now of the step when this frame began */
    uint16_t scope;    /* enum brick_scope; 0: a span */
    uint16_t inherits; /* enum brick_frame_bits: these also apply to all frames above it */
};

/* The open frames of one key. Among keys without open frames, only the last used one has a stack. */
struct brick_stack {
    const void *key;
    struct brick_frame *top;
    struct brick_stack *next; /* the next stack in its bucket */
    uint64_t refused;         /* spans above top without a frame; they end first */
    uint32_t borrowed;        /* the host holds no reference to the key for its open frames */
};

union brick_node {
    struct brick_frame frame;
    struct brick_stack stack;
    union brick_node *next;
};
BRICK_ASSERT(sizeof(union brick_node) == 64, "one cache line");

/* Visits of a site since it was last at another step. The table is by the site's key, because two threads may have given
 * the site two numbers. */
struct brick_visits {
    uint64_t site; /* the site's key from brick_site_entry; 0 = free */
    uint64_t step;
    uint64_t count : 63, has_step : 1;
};

#define BRICK_NODES 256u /* per chunk */
#define BRICK_CHUNKS 64u /* 16,384 spans open at the same time */
#define BRICK_STACK_BUCKETS 256u

/* Ticks between two checks that the segment still exists: 6.6 s at 2.6 GHz, 17 s for ns. */
#ifndef BRICK_LOOK_TICKS
#define BRICK_LOOK_TICKS (UINT64_C(1) << 34)
#endif

enum brick_memory { BRICK_MEMORY_UNTRIED = 0, BRICK_MEMORY_THERE = 1, BRICK_MEMORY_REFUSED = 2 };

struct brick_ring {
    struct brick_record *records;
    uint64_t slots;
    uint64_t head;
    uint64_t tail; /* the last valid one */
    uint32_t memory;
};

struct brick_thread {
    /* The record path, in the order of use. */
    uint32_t busy;
    uint32_t flags; /* the control flags last applied */
    const struct brick_control *control;
    struct brick_stack *current;
    struct brick_frame *newest;
    uint64_t scopes; /* open scopes; open spans are in `newest` */
    union brick_node *free;
    struct brick_lane *line;
    uint64_t *sequences;
    struct brick_summary *summaries;
    uint64_t look; /* ticks of the next check that the segment still exists */
    uint64_t committed[16];
    struct brick_ring span_ring, event_ring;
    uint64_t given; /* numbers assigned to deferred work so far */
    struct brick_visits *visits; /* visits of sites; NULL before the lane's first checksum */
    struct brick_memories *memories; /* see writer/mark.c; NULL before the lane's first mark that needs one */
    /* Cold. */
    uint32_t owner; /* O16 */
    uint32_t number;
    uint32_t chunks;
    uint32_t hand; /* the position of the sweep */
    uint64_t inherited; /* the part of `given` that the parent assigned before the fork */
    uint64_t refused[16]; /* blocks that were refused memory */
    uint64_t unvisited;   /* how often `visits` was needed but missing */
    uint64_t unremembered; /* how often `memories` was needed but missing */
    struct brick_segment *segment; /* the segment of its pointers; atomic, because a reopen reads it */
    struct brick_stack *buckets[BRICK_STACK_BUCKETS];
};

/* Points the thread to its lane of this segment and allocates its first memory. Returns 0 without memory. */
BRICK_HIDDEN int brick_lane_bind(struct brick_thread *t, struct brick_segment *s);
/* Copies the lane's content into the segment that replaced a lost one. Returns 0 without memory. */
BRICK_HIDDEN int brick_lane_move(struct brick_thread *t);
/* Frees the lane. */
BRICK_HIDDEN void brick_lane_give(struct brick_thread *t);
/* Whether the thread no longer owns its segment: it was lost, or is a parent's. */
BRICK_HIDDEN int brick_lane_retired(const struct brick_thread *t);
BRICK_HIDDEN int brick_nodes_more(struct brick_thread *t);
/* Returns whether the summary of this path has memory. Requests a block once. */
BRICK_HIDDEN int brick_block_commit(struct brick_thread *t, uint32_t path);
/* Returns whether the ring, at `within` in the lane's area, has memory. Requests it once. */
BRICK_HIDDEN int brick_ring_commit(struct brick_thread *t, struct brick_ring *ring, uint64_t within);

static inline union brick_node *brick_node_take(struct brick_thread *t)
{
    if (BRICK_UNLIKELY(t->free == NULL) && !brick_nodes_more(t))
        return NULL;
    union brick_node *n = t->free;
    t->free = n->next;
    return n;
}

static inline void brick_node_give(struct brick_thread *t, void *node)
{
    union brick_node *n = (union brick_node *)node;
    n->next = t->free;
    t->free = n;
}

#endif
