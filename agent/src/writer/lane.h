/* writer/lane.h - the private half of a lane: the open spans of its thread. Only the owning thread uses a brick_thread,
 * except that other threads write `owner` and `control`, and read `given` and `segment`. */
#ifndef BRICK_LANE_H
#define BRICK_LANE_H

#include "lifecycle.h"

enum brick_frame_bits {
    BRICK_FRAME_AGAIN = 1, /* this frame or an enclosing one is a recursion and has the path of an ancestor: the path
                              may be open several times */
    BRICK_FRAME_STEP = 2,  /* this frame or an enclosing one was given a step; step 0 is also a step */
};

enum brick_scope { BRICK_SCOPE_LAYER = 1, BRICK_SCOPE_NODE = 2 };

/* An open span, or an open scope: a layer or a node. */
struct brick_frame {
    struct brick_frame *below;         /* the enclosing frame of the same key */
    struct brick_frame *older, *newer; /* the spans that started just before and after this one, with any key */
    uint64_t start, child, step;
    uint16_t brick, path;
    uint32_t layer;
    uint32_t draw;     /* the draw of the step (brick_draw_now) when this frame began */
    uint16_t scope;    /* enum brick_scope; 0: a span */
    uint16_t inherits; /* enum brick_frame_bits; frames inside this one get the same bits */
};

/* The open frames of one key. A key without open frames has no stack, except the key that was used last. */
struct brick_stack {
    const void *key;
    struct brick_frame *top;
    struct brick_stack *next; /* next stack in the same hash bucket */
    uint64_t refused;         /* number of open spans and scopes inside `top` that got no frame; they end before
                                 `top` */
    uint32_t borrowed;        /* set by brick_borrow: the host holds no reference to the key */
};

union brick_node {
    struct brick_frame frame;
    struct brick_stack stack;
    union brick_node *next;
};
BRICK_ASSERT(sizeof(union brick_node) == 64, "one cache line");

/* The visits of a site since the site's step last changed. The table uses the site's key, not its id, because two
 * threads may have given the site two ids. */
struct brick_visits {
    uint64_t site; /* the site's key from brick_site_entry; 0 = free */
    uint64_t step;
    uint64_t count : 63, has_step : 1;
};

#define BRICK_NODES 256u /* frames or stacks in a chunk of memory */
#define BRICK_CHUNKS 64u /* at most 16,384 spans open at the same time */
#define BRICK_STACK_BUCKETS 256u
#define BRICK_STEPS_TOLD 16u

/* Ticks between two checks that the segment still exists: 6.6 s at 2.6 GHz, 17 s for ns. */
#ifndef BRICK_LOOK_TICKS
#define BRICK_LOOK_TICKS (UINT64_C(1) << 34)
#endif

enum brick_memory { BRICK_MEMORY_UNTRIED = 0, BRICK_MEMORY_THERE = 1, BRICK_MEMORY_REFUSED = 2 };

struct brick_ring {
    struct brick_record *records;
    uint64_t slots;
    uint64_t head;
    uint64_t tail; /* the last valid tail */
    uint32_t memory;
};

struct brick_thread {
    /* The fields of the record path, in the order of use. */
    uint32_t busy;
    uint32_t flags; /* the control flags last applied */
    const struct brick_control *control;
    struct brick_stack *current;
    struct brick_frame *newest;
    uint64_t scopes; /* number of open scopes; `newest` lists the open spans */
    union brick_node *free;
    struct brick_lane *line;
    uint64_t *sequences;
    struct brick_summary *summaries;
    uint64_t look; /* ticks of the next check that the segment still exists */
    uint64_t committed[16];
    struct brick_ring span_ring, event_ring;
    uint64_t given; /* how many ids this lane has given to deferred work */
    struct brick_visits *visits; /* visits of sites; NULL before the lane's first checksum */
    struct brick_memories *memories; /* see writer/mark.c; NULL before the lane's first mark that needs memory */
    /* Rarely used fields. */
    uint32_t owner; /* O16 */
    uint32_t number;
    uint32_t chunks;
    uint32_t hand; /* the bucket that brick_thread_sweep looks at next */
    uint64_t inherited; /* in a forked child: the value of `given` at the fork */
    uint64_t told[BRICK_STEPS_TOLD]; /* steps whose texts this lane has recorded in the segment; the lower bits of a
                                        step are the index */
    uint64_t refused[16]; /* bitmap of blocks that got no memory */
    uint64_t unvisited;   /* how often memory for `visits` was needed and missing */
    uint64_t unremembered; /* how often memory for `memories` was needed and missing */
    struct brick_segment *segment; /* the segment that the pointers above point into; atomic, because brick_threads_move
                                      reads it */
    struct brick_stack *buckets[BRICK_STACK_BUCKETS];
};

/* Points the thread to its lane of this segment and allocates its first memory. Returns 0 if out of memory. */
BRICK_HIDDEN int brick_lane_bind(struct brick_thread *t, struct brick_segment *s);
/* Copies the lane's content into the segment that replaced a lost one. Returns 0 if out of memory. */
BRICK_HIDDEN int brick_lane_move(struct brick_thread *t);
BRICK_HIDDEN void brick_lane_give(struct brick_thread *t); /* frees the lane */
/* Returns whether the thread no longer owns its segment: the segment was lost, or belongs to the parent. */
BRICK_HIDDEN int brick_lane_retired(const struct brick_thread *t);
BRICK_HIDDEN int brick_nodes_more(struct brick_thread *t);
/* Returns whether the summary of this path has memory. Tries once to allocate the block of the summary. */
BRICK_HIDDEN int brick_block_commit(struct brick_thread *t, uint32_t path);
/* Returns whether the ring at offset `within` of the lane's area has memory. Tries once to allocate this memory. */
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
