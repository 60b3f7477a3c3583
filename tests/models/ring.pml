/* ring.pml - one lane's thread writes records to its span ring, a consumer
 * copies them.
 *
 * A record's payload is two words that both hold the record's sequence, so
 * that a torn record or a wrong number is detected. Properties:
 *
 *   - every copied record is complete and the next one written: none is torn,
 *     overwritten before its copy, left out, or out of order;
 *   - the consumer's checkpoint passes each record once, whatever dies;
 *   - nothing is lost uncounted: attempts = head + dropped when the
 *     lane is quiet, and one more attempt at most when its thread died, unless
 *     stores were lost with it (the counters are relaxed, O14);
 *   - after the writer's death the slot at the head is taken as one more
 *     record only if its sequence is right, and then it is complete (salvage).
 */
#define SLOTS 2
#define WANTED 5 /* attempts: the ring wraps around twice */

#define ATTEMPTS 0
#define DROPPED 1
#define HEAD 2
#define RECORD(index) (3 + (index) % SLOTS * 3)
#define CELLS 9
#include "memory.pml"

#define NUMBER_AT(index) RECORD(index)
#define FIRST_AT(index) (RECORD(index) + 1)
#define SECOND_AT(index) (RECORD(index) + 2)

/* Known to no process of brickd: the sequence given to each record. */
byte given[WANTED];

/* ---- the tail pair (O12, O13) ------------------------------------------ */

/* The consumer moves it with a pwrite, which has no guarantees: each word is torn
 * for a while, and the two change in any order. A torn word reads as anything.
 * The model assumes that it never matches the other word, which is true as long
 * as the kernel copies aligned words at once; the mutant of that name shows what
 * happens otherwise, if both are torn alike. tail.pml does without this
 * assumption for words in two halves, by the order of loads and stores. */
#define COMPLEMENT(position) (WANTED + 1 + (position)) /* never 0, never a position: zeros match nothing */
#define TORN 255

byte position, complement;

#define MATCHING (seen != TORN && other_seen == COMPLEMENT(seen))
#define POSSIBLE(tail) ((tail) <= head && head - (tail) <= SLOTS)

#if defined(MUTANT_TAIL_UNPAIRED)
#define BELIEVED (seen == TORN || POSSIBLE(seen))
#elif defined(MUTANT_TAIL_TORN_ALIKE)
#define BELIEVED ((seen == TORN && other_seen == TORN) || (MATCHING && POSSIBLE(seen)))
#else
#define BELIEVED (MATCHING && POSSIBLE(seen))
#endif

/* tail_now(). A torn word that is believed may be any tail that is possible. */
inline tail_now()
{
    seen = position; /* O13 */
    other_seen = complement;
    if
    :: BELIEVED && seen == TORN ->
        if
        :: tail = head
        :: head >= 1 -> tail = head - 1
        :: head >= 2 -> tail = head - 2
        fi
    :: BELIEVED && seen != TORN -> tail = seen
    :: else
    fi;
    d_step {
        seen = 0;
        other_seen = 0
    }
}

inline move_tail(to)
{
    do
    :: position != to && position != TORN -> position = TORN
    :: position == TORN -> position = to
    :: complement != COMPLEMENT(to) && complement != TORN -> complement = TORN
    :: complement == TORN -> complement = COMPLEMENT(to)
    :: position == to && complement == COMPLEMENT(to) -> break
    od
}

/* ---- the writer: record_span() ----------------------------------------- */

#ifdef MUTANT_HEAD_RELAXED
#define HEAD_ORDER RELAXED
#else
#define HEAD_ORDER RELEASE
#endif
#ifdef MUTANT_SEQUENCE_RELAXED
#define SEQUENCE_ORDER RELAXED
#else
#define SEQUENCE_ORDER RELEASE
#endif

active proctype writer()
{
    byte sequence, head, tail, dropped, seen, other_seen;
    {
        do
        :: sequence < WANTED ->
            sequence++;
            store(ATTEMPTS, sequence, RELAXED); /* O14 */
            if
            :: head - tail >= SLOTS -> tail_now()
            :: else
            fi;
            if
            :: head - tail >= SLOTS ->
#ifdef MUTANT_DROP_UNCOUNTED
                skip
#else
                dropped++;
                store(DROPPED, dropped, RELAXED) /* O14 */
#endif
            :: else ->
                given[head] = sequence;
#ifdef MUTANT_HEAD_FIRST
                store(HEAD, head + 1, HEAD_ORDER);
#endif
#ifdef MUTANT_SEQUENCE_FIRST
                store(NUMBER_AT(head), sequence, SEQUENCE_ORDER);
#endif
                store(FIRST_AT(head), sequence, RELAXED);
                store(SECOND_AT(head), sequence, RELAXED);
#ifndef MUTANT_SEQUENCE_FIRST
                store(NUMBER_AT(head), sequence, SEQUENCE_ORDER); /* O9 */
#endif
#ifndef MUTANT_HEAD_FIRST
                store(HEAD, head + 1, HEAD_ORDER); /* O10 */
#endif
                head++
            fi
        :: else -> break
        od;
        done = true
    } unless {
        dead
    }
}

/* ---- the consumer ------------------------------------------------------ */

byte checkpoint; /* the progress of any consumer and its copies: survives it */
bool killed;

/* The loads of one pread, in any order. */
inline copy(index)
{
    do
    :: d_step { !(taken & 1) -> number = memory[NUMBER_AT(index)]; taken = taken | 1 }
    :: d_step { !(taken & 2) -> first = memory[FIRST_AT(index)]; taken = taken | 2 }
    :: d_step { !(taken & 4) -> second = memory[SECOND_AT(index)]; taken = taken | 4 }
    :: taken == 7 -> break
    od;
    atomic {
        assert(number == given[index] && first == number && second == number);
        taken = 0;
        number = 0;
        first = 0;
        second = 0
    }
}

/* A valid number is above that of the previous record: one of the previous round is below. */
#define LAST(index) (index == 0 -> 0 : given[index - 1])

inline salvage(index)
{
    if
    :: memory[NUMBER_AT(index)] > LAST(index) -> copy(index)
    :: else
    fi
}

/* No process writes any more, and everything below the head was consumed. */
inline settle()
{
    d_step {
        assert(checkpoint == memory[HEAD]);
        if
        :: done -> assert(memory[ATTEMPTS] == WANTED && memory[ATTEMPTS] == memory[HEAD] + memory[DROPPED])
        :: dead && !lost ->
            assert(memory[ATTEMPTS] == memory[HEAD] + memory[DROPPED]
                   || memory[ATTEMPTS] == memory[HEAD] + memory[DROPPED] + 1)
        :: else
        fi
    }
}

active proctype consumer()
{
    byte cursor, limit, number, first, second, taken;
begin:
    {
        cursor = checkpoint; /* never from the tails */
        move_tail(cursor);   /* its predecessor may have died before it did */
        do
        :: memory[HEAD] != cursor ->
            limit = memory[HEAD]; /* O11 */
#ifdef MUTANT_TAIL_FIRST
            move_tail(limit);
#endif
            do
            :: cursor < limit ->
                copy(cursor);
                cursor++
            :: else -> break
            od;
#ifdef MUTANT_CHECKPOINT_LATE
            move_tail(cursor);
#endif
            assert(checkpoint < cursor);
            checkpoint = cursor;
            move_tail(cursor) /* O12 */
        :: memory[HEAD] == cursor && QUIET -> break
        od;
        if
        :: dead && cursor < WANTED -> salvage(cursor)
        :: else
        fi;
        settle()
    } unless {
        d_step {
            killed ->
            killed = false;
            cursor = 0;
            limit = 0;
            number = 0;
            first = 0;
            second = 0;
            taken = 0
        }
        goto begin
    }
}

/* One consumer may die between any two steps; the next one starts at the checkpoint. */
active proctype kill()
{
    killed = true
}
