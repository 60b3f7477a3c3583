/* summary.pml - one lane's thread changes a summary, a reader copies it.
 *
 * The n-th update leaves the fields n, 2n and 3n under the sequence 2n, so
 * that any mix of two states is detected. Properties:
 *
 *   - an accepted copy is one state, that of its sequence;
 *   - if the writer died inside an update, the reader never accepts: it sees an
 *     odd sequence, and the same twice.
 *
 * The reader's five loads are taken in any order that its fences (O8) permit.
 */
#define UPDATES 3

#define SEQUENCE 0
#define FIELD(number) (number) /* 1, 2, 3 */
#define CELLS 4
#include "memory.pml"

/* ---- the writer: summarize() ------------------------------------------- */

#ifdef MUTANT_EVEN_RELAXED
#define EVEN_ORDER RELAXED
#else
#define EVEN_ORDER RELEASE
#endif

active proctype writer()
{
    byte n;
    {
        do
        :: n < UPDATES ->
#ifndef MUTANT_NO_ODD
            store(SEQUENCE, 2 * n + 1, RELAXED); /* O5 */
#ifndef MUTANT_ODD_UNFENCED
            release_fence();
#endif
#endif
            n++;
            store(FIELD(1), n, RELAXED); /* O6 */
            store(FIELD(2), 2 * n, RELAXED);
            store(FIELD(3), 3 * n, RELAXED);
            store(SEQUENCE, 2 * n, EVEN_ORDER) /* O7 */
        :: else -> break
        od;
        done = true
    } unless {
        dead
    }
}

/* ---- the reader: O8 ---------------------------------------------------- */

#define LOADS 5 /* the sequence, the three fields, the sequence again */
#define BEFORE 0
#define AFTER 4
#define COPY (BIT(1) | BIT(2) | BIT(3))

/* The loads that a fence requires before this one. */
#if defined(MUTANT_READ_UNFENCED)
#define FENCED_OFF(load) 0
#elif defined(MUTANT_SEQUENCE_FROM_COPY)
#define FENCED_OFF(load) (load == AFTER -> BIT(BEFORE) | COPY : 0)
#elif defined(MUTANT_SEQUENCE_AGAIN_FROM_COPY)
#define FENCED_OFF(load) (load == BEFORE -> 0 : BIT(BEFORE))
#else
#define FENCED_OFF(load) (load == BEFORE -> 0 : (load == AFTER -> BIT(BEFORE) | COPY : BIT(BEFORE)))
#endif

#define MAY_TAKE(load) (!(taken & BIT(load)) && (FENCED_OFF(load) & ~taken) == 0)

inline take(load, cell)
{
    d_step {
        MAY_TAKE(load) ->
        copy[load] = memory[cell];
        taken = taken | BIT(load)
    }
}

active proctype reader()
{
    byte copy[LOADS], taken;
    bool quiet;
end:
    do
    :: d_step {
           taken = 0;
           quiet = QUIET
       }
       do
       :: take(BEFORE, SEQUENCE)
       :: take(1, FIELD(1))
       :: take(2, FIELD(2))
       :: take(3, FIELD(3))
       :: take(AFTER, SEQUENCE)
       :: taken == BIT(LOADS) - 1 -> break
       od;
       atomic {
#ifdef MUTANT_NOT_REREAD
           copy[AFTER] = copy[BEFORE];
#endif
           if
           :: copy[BEFORE] == copy[AFTER] && copy[BEFORE] % 2 == 0 ->
               assert(copy[1] == copy[BEFORE] / 2);
               assert(copy[2] == 2 * copy[1]);
               assert(copy[3] == 3 * copy[1]);
               assert(!quiet || memory[SEQUENCE] % 2 == 0)
           :: else ->
               /* Without a writer, only an unfinished update is refused, and recognized as such. */
               assert(!quiet || (copy[BEFORE] == copy[AFTER] && memory[SEQUENCE] % 2 == 1))
           fi
       }
    od
}
