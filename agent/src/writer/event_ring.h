/* writer/event_ring.h - functions to write records into the event ring. */
#ifndef BRICK_RING_H
#define BRICK_RING_H

#include "record_path.h"

/* Counts an attempt. The caller then records the event or counts it as dropped. A drop leaves a gap in the sequence
 * numbers. */
static inline void brick_event_attempt(struct brick_thread *t)
{
    brick_add(&t->line->event_attempts, 1);
    brick_fence_signal(); /* O14 */
}

static inline unsigned brick_event_dropped(struct brick_thread *t, enum brick_kind kind)
{
    brick_add(&t->line->event_dropped[kind], 1);
    return BRICK_REFUSED;
}

/* Returns the slot that is `ahead` slots after the first slot of the next record, wrapping around the ring. */
static inline struct brick_record *brick_event_at(const struct brick_thread *t, uint64_t ahead)
{
    return &t->event_ring.records[(t->event_ring.head + ahead) & (t->event_ring.slots - 1)];
}

/* Returns whether the ring has memory and more than `kept` free slots. */
static inline int brick_event_room(struct brick_thread *t, uint64_t kept)
{
    struct brick_ring *ring = &t->event_ring;
    return (BRICK_LIKELY(ring->memory == BRICK_MEMORY_THERE)
            || brick_ring_commit(t, ring, t->segment->layout.event_ring))
           && brick_ring_room(t, ring, &brick_consumer_of(t->segment, t->number)->event, kept);
}

/* Returns the first slot of the next record, after which `kept` more slots are free. Returns NULL if the ring has no
 * such room or no memory. */
static inline void *brick_event_slot(struct brick_thread *t, uint64_t kept)
{
    if (!brick_event_room(t, kept))
        return NULL;
    BRICK_POINT("event");
    return brick_event_at(t, 0);
}

/* The last eighth of the ring is reserved for measurements and finalizes, and the last eighth of this reserve for
 * finalizes. */
static inline uint64_t brick_kept_from_starts(const struct brick_thread *t) { return (t->event_ring.slots + 7) / 8; }
static inline uint64_t brick_kept_from_measurements(const struct brick_thread *t)
{
    return (t->event_ring.slots + 63) / 64;
}

/* Publishes a record, given its first slot. The other slots of the record are already written. */
static inline void brick_event_publish(struct brick_thread *t, void *record, enum brick_kind kind, uint16_t slots)
{
    struct brick_record *r = (struct brick_record *)record;
    struct brick_lane *line = t->line;
    r->slots = slots;
    r->kind = (uint16_t)kind;
    BRICK_POINT("event_sequence");
    brick_store_release(&r->sequence, brick_load_relaxed(&line->event_attempts)); /* O9 */
    BRICK_POINT("event_counted");
    /* Counted before the head moves, so that a consumer never reads more records than are counted. */
    brick_add(&line->event_records, 1);
    BRICK_POINT("event_head");
    t->event_ring.head += slots;
    brick_store_release(&line->event_head, t->event_ring.head); /* O10 */
}

static inline void brick_event_over(struct brick_thread *t, uint64_t now)
{
    if (BRICK_UNLIKELY(now > t->look))
        brick_look(t, now);
    brick_idle(t);
}

#endif
