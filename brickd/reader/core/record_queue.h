/* core/record_queue.h - memory between drains and the writer of a recording, so that neither waits for the other.
 *
 * The spool is a ring of bytes with one producer and one consumer. The ring contains contiguous pieces. A piece is the
 * head of a RECORDS chunk with kind, length and at_ns, then the chunk's body. If a piece would cross the end of the
 * memory, a head of kind 0 covers the rest of the memory, including itself.
 *
 *   position   head: pieces below it are published     set by the producer
 *              tail: pieces below it are written       set by the consumer
 *
 * Both positions only grow. A position means the byte at position modulo size.
 *
 *   operation              seen by        so that
 *   head, store release    the consumer   it sees the pieces below the head
 *   tail, store release    the producer   it knows that the bytes below the tail are no longer read
 *
 * The memory belongs to this process, so the head of a piece is trusted, but its slots are not. Pages are allocated at
 * their first use.
 */
#ifndef BRICKD_RECORD_QUEUE_H
#define BRICKD_RECORD_QUEUE_H

#include "brick_shm.h"
#include "recording_format.h"
#include "redact.h"

/* Bytes before the slots of a piece. */
#define BRICK_SPOOL_BEFORE ((uint64_t)(sizeof(struct brick_chunk) + sizeof(struct brick_records)))
/* The smallest piece: one slot. */
#define BRICK_SPOOL_LEAST (BRICK_SPOOL_BEFORE + sizeof(struct brick_record))

struct brick_spool {
    uint8_t *memory;
    uint64_t size;
    int wake;                     /* an eventfd */
    uint32_t producing, consuming; /* whether a thread is the producer, or the consumer, now */
    uint8_t padding[BRICK_BLOCK];
    uint64_t head;
    uint64_t refused_slots; /* how many slots got no room since the spool was created */
    uint8_t more_padding[BRICK_BLOCK];
    uint64_t tail;
    uint64_t charged; /* how many of refused_slots brick_spool_charge has already returned; used by the consumer */
    enum brick_left left; /* which data records keep when they leave the spool */
    struct brick_redactor redactor; /* used by the consumer, but not with BRICK_LEFT_ALL */
};

/* Creates a spool. Returns 0 with errno on failure. Unless `left` is BRICK_LEFT_ALL, every piece is redacted before the
 * consumer reads its slots. */
int brick_spool_begin(struct brick_spool *s, uint64_t bytes, enum brick_left left);
void brick_spool_free(struct brick_spool *s);

/* Ends the consumer's wait. Any thread or signal handler may call it. */
void brick_spool_wake(const struct brick_spool *s);
/* Waits until the consumer is woken or the time is over. */
void brick_spool_wait(const struct brick_spool *s, int milliseconds);

/* ---- the producer: no lock, no wait, no file ----------------------------- */

/* Returns 0 if another producer is active; the caller treats this like a full spool. */
int brick_spool_enter(struct brick_spool *s);
void brick_spool_leave(struct brick_spool *s);
/* Returns a place for `bytes` contiguous bytes, which is not published yet. Returns NULL if there is no room. */
uint8_t *brick_spool_place(struct brick_spool *s, uint64_t bytes);
/* Returns whether `bytes` contiguous bytes are free at the head. */
int brick_spool_reaches(const struct brick_spool *s, uint64_t bytes);
/* Publishes the piece of `bytes` bytes at the head. Wakes the consumer when a quarter of the room is used. */
void brick_spool_publish(struct brick_spool *s, uint64_t bytes);
void brick_spool_refuse(struct brick_spool *s, uint64_t slots);

/* ---- the consumer --------------------------------------------------------- */

/* Returns the position up to which pieces are published. */
uint64_t brick_spool_ready(const struct brick_spool *s);
/* Returns the piece at *at, and moves *at behind it. Returns NULL if there is no piece before `end`, which is a result
 * of brick_spool_ready. */
struct brick_chunk *brick_spool_look(const struct brick_spool *s, uint64_t *at, uint64_t end);
/* Returns the oldest piece before `end`, without freeing its room. Callers may read slots only in a piece that this
 * function returned, because only such a piece is redacted. */
struct brick_chunk *brick_spool_oldest(struct brick_spool *s, uint64_t end);
static inline uint64_t brick_piece_slots(const struct brick_chunk *piece)
{
    return (piece->length - sizeof(struct brick_records)) / sizeof(struct brick_record);
}
/* Frees the room of the first `slots` slots of the oldest piece. Call it when these slots are in a file. The other
 * slots of the piece become a separate piece. */
void brick_spool_took(struct brick_spool *s, struct brick_chunk *piece, uint64_t slots);
/* Discards all pieces, and counts their slots as refused. */
void brick_spool_clear(struct brick_spool *s);
/* Returns the number of slots refused since the last call. */
uint64_t brick_spool_charge(struct brick_spool *s);

#endif
