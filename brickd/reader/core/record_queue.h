/* core/record_queue.h - memory between whoever drains rings and whoever writes a recording: neither waits for the other.
 *
 * A ring of bytes with one producer and one consumer. What is put there are
 * pieces, each in one stretch: the head of a chunk of RECORDS, of which kind,
 * length and at_ns are set, then its body. Where a stretch would go over the end
 * of the memory, a head of kind 0 stands for the rest of it, length included.
 *
 *   position   head: up to there it is published    the producer's
 *              tail: up to there it is written out   the consumer's
 *
 * Both only grow, and stand for the byte at position modulo size.
 *
 *   what                   who sees it   therefore sees
 *   head, store release    the consumer  the pieces below it
 *   tail, store release    the producer  that nobody reads what is below it any more
 *
 * The memory belongs to this process: what stands in a piece of its head can be
 * believed, the slots cannot. Pages are taken as they are first used.
 */
#ifndef BRICKD_RECORD_QUEUE_H
#define BRICKD_RECORD_QUEUE_H

#include "brick_shm.h"
#include "recording_format.h"
#include "redact.h"

/* What stands before the slots of a piece. */
#define BRICK_SPOOL_BEFORE ((uint64_t)(sizeof(struct brick_chunk) + sizeof(struct brick_records)))
/* A piece of one slot. */
#define BRICK_SPOOL_LEAST (BRICK_SPOOL_BEFORE + sizeof(struct brick_record))

struct brick_spool {
    uint8_t *memory;
    uint64_t size;
    int wake;                     /* an eventfd */
    uint32_t producing, consuming; /* somebody is */
    uint8_t apart[BRICK_BLOCK];
    uint64_t head;
    uint64_t refused_slots; /* that had no room */
    uint8_t apart_too[BRICK_BLOCK];
    uint64_t tail;
    uint64_t charged; /* of these, to files: the consumer's */
    enum brick_left left; /* of the records that leave it */
    struct brick_redactor redactor; /* the consumer's, where that is not all */
};

/* 0, with errno: there is none. Where not all is left no piece comes out of it as it was put there. */
int brick_spool_begin(struct brick_spool *s, uint64_t bytes, enum brick_left left);
void brick_spool_free(struct brick_spool *s);

/* Has the consumer's wait come to its end; from anywhere. */
void brick_spool_wake(const struct brick_spool *s);
/* Until it was woken, or so much time is over. */
void brick_spool_wait(const struct brick_spool *s, int milliseconds);

/* ---- the producer: no lock, no wait, no file ----------------------------- */

/* Whoever is one of two at a time has no room. */
int brick_spool_enter(struct brick_spool *s);
void brick_spool_leave(struct brick_spool *s);
/* So many bytes in one stretch, which nobody else sees; NULL: there is no room. */
uint8_t *brick_spool_place(struct brick_spool *s, uint64_t bytes);
/* Whether the stretch at the head may be so long. */
int brick_spool_reaches(const struct brick_spool *s, uint64_t bytes);
/* The piece at the head, of so many bytes, is there. The consumer is woken when a quarter of the room is used. */
void brick_spool_publish(struct brick_spool *s, uint64_t bytes);
void brick_spool_refuse(struct brick_spool *s, uint64_t slots);

/* ---- the consumer --------------------------------------------------------- */

/* Up to where there is something. */
uint64_t brick_spool_ready(const struct brick_spool *s);
/* The piece at *at, which is moved behind it; NULL: there is none below `end`, which ready() gave. */
struct brick_chunk *brick_spool_look(const struct brick_spool *s, uint64_t *at, uint64_t end);
/* The oldest piece, likewise; it keeps its room. The one way to its slots. */
struct brick_chunk *brick_spool_oldest(struct brick_spool *s, uint64_t end);
static inline uint64_t brick_piece_slots(const struct brick_chunk *piece)
{
    return (piece->length - sizeof(struct brick_records)) / sizeof(struct brick_record);
}
/* So many slots of the oldest piece are written out: their room is free, and the others are a piece of their own. */
void brick_spool_took(struct brick_spool *s, struct brick_chunk *piece, uint64_t slots);
/* What is there is given up, and its slots are refused. */
void brick_spool_clear(struct brick_spool *s);
/* Slots that were refused since this was last called. */
uint64_t brick_spool_charge(struct brick_spool *s);

#endif
