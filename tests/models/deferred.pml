/* deferred.pml - two lanes write starts and finalizes of one stream, the daemon
 * gives each interval of time to one start (DESIGN "Deferred").
 *
 * A lane's thread reads the clock, then writes the record, and may be delayed in
 * between for any time; the daemon drains lane by lane, so it may see a finalize
 * before starts that were written long before it. It settles a finalize only
 * after one more complete pass over all lanes, with all earlier starts; a start
 * that arrives even later is closed at once, and gets no time that others got.
 * Properties:
 *
 *   - each start is in one place: pending, closed, or orphaned with its worker;
 *   - at the end the closed starts are those with a later finalize in any lane,
 *     however late they were drained; the others are orphans;
 *   - no time is given twice;
 *   - if each record was written before all finalizes with a later time, none is
 *     late, and the given time is exactly the time between each start and its
 *     finalize: the sum is the wall time;
 *   - the daemon ends, as in restart.pml.
 *
 * The daemon may be killed; the next one continues from its checkpoint, taken
 * after some of the passes (restart.pml has its failures). Not modelled:
 * measurements by the device, other streams, bounds on what is pending.
 */
#define LANES 2
#define LONG 2 /* records a lane */
#ifndef KILLS
#define KILLS 1
#endif

#define BIT(number) (1 << (number))
#define UP_TO(number) (BIT((number) + 1) - 1)

/* ---- the lanes ----------------------------------------------------------- */

/* A record is its time, because all times differ; its kind is the set that holds it. */
byte clock; /* the last time that was taken, from 1 */
byte record[LANES * LONG];
byte head[LANES];
bool ended;

byte starts, finalizes; /* what was written, as sets of times */
byte raced;             /* records written after a finalize with a later time; known to no process */

inline write(number, time, set)
{
    d_step {
        raced = (finalizes > BIT(time) -> raced | BIT(time) : raced);
        set = set | BIT(time);
        record[number * LONG + head[number]] = time;
        head[number]++;
        time = 0
    }
}

active [LANES] proctype lane()
{
    byte time;
    {
        do
        :: head[_pid] < LONG ->
            d_step {
                clock++;
                time = clock
            }
            if
            :: write(_pid, time, starts)
            :: write(_pid, time, finalizes)
            fi
        :: else -> break
        od
    } unless {
        ended
    }
}

active proctype death()
{
    ended = true
}

/* ---- the daemon ---------------------------------------------------------- */

typedef Knowledge {
    byte cursor[LANES];
    byte pending, closed, orphaned; /* starts, as sets */
    byte known;                     /* finalizes that are not settled, as a set */
    byte fresh;                     /* the latest of them that this pass has found */
    byte waiting;                   /* the latest that an earlier pass has found */
    byte settled;                   /* the time up to which all is settled */
    byte given                      /* given to starts: the intervals from each time to the next, as a set */
};

Knowledge state, kept;
hidden Knowledge none;
byte kills;
byte time, since, upto;

inline copy_knowledge(to, from)
{
    to.cursor[0] = from.cursor[0];
    to.cursor[1] = from.cursor[1];
    to.pending = from.pending;
    to.closed = from.closed;
    to.orphaned = from.orphaned;
    to.known = from.known;
    to.fresh = from.fresh;
    to.waiting = from.waiting;
    to.settled = from.settled;
    to.given = from.given
}

#define IN_PLACE(time) ((state.pending | state.closed | state.orphaned) & BIT(time))

inline take_start()
{
    assert(!IN_PLACE(time));
    if
#ifndef MUTANT_LATE_LEFT_PENDING
    :: time < state.settled ->
        assert(raced & BIT(time));
        state.closed = state.closed | BIT(time)
#endif
    :: else -> state.pending = state.pending | BIT(time)
    fi
}

inline take_finalize()
{
    if
    :: time > state.settled ->
        state.known = state.known | BIT(time);
        state.fresh = (time > state.fresh -> time : state.fresh)
    :: else /* its starts are closed */
    fi
}

inline drain(number)
{
    d_step {
        do
        :: state.cursor[number] < head[number] ->
            time = record[number * LONG + state.cursor[number]];
            if
            :: starts & BIT(time) -> take_start()
            :: else -> take_finalize()
            fi;
            state.cursor[number]++
        :: else -> break
        od;
        time = 0
    }
}

inline give(from, to)
{
    assert(!(state.given & UP_TO(to - 1) & ~UP_TO(from - 1)));
    state.given = state.given | (UP_TO(to - 1) & ~UP_TO(from - 1))
}

/* All earlier starts are settled: each gets the time until the next start, and
 * the last one before a finalize the time until the finalize. */
#ifdef MUTANT_FINALIZES_BELOW_IGNORED
#define BOUNDS (state.pending | BIT(upto))
#else
#define BOUNDS (state.pending | state.known)
#endif
#ifdef MUTANT_ALL_PENDING_CLOSED
#define CLOSING state.pending
#else
#define CLOSING (state.pending & UP_TO(upto))
#endif

inline settle()
{
    since = 0;
    for (time : 1 .. upto) {
        if
        :: BOUNDS & BIT(time) ->
            if
            :: since > 0 -> give(since, time)
            :: else
            fi;
#ifdef MUTANT_FROM_START_TO_FINALIZE
            since = (state.pending & BIT(time) -> (since > 0 -> since : time) : 0)
#else
            since = (state.pending & BIT(time) -> time : 0)
#endif
        :: else
        fi
    }
    state.closed = state.closed | CLOSING;
    state.pending = state.pending & ~CLOSING;
    state.known = state.known & ~UP_TO(upto);
    state.settled = upto;
    time = 0;
    since = 0;
    upto = 0
}

inline end_of_pass()
{
    d_step {
#ifdef MUTANT_SETTLED_AT_ONCE
        upto = state.fresh;
#else
        upto = state.waiting;
#endif
        if
        :: upto > 0 -> settle()
        :: else
        fi;
#ifdef MUTANT_WAITING_FOR_EVER
        state.waiting = (state.fresh > state.settled -> state.fresh : state.waiting);
#else
        state.waiting = (state.fresh > state.settled -> state.fresh : 0);
#endif
        state.fresh = 0
    }
}

inline save()
{
    d_step {
        copy_knowledge(kept, state);
#ifdef MUTANT_WAITING_NOT_SAVED
        kept.waiting = 0
#endif
    }
}

/* No other process sees the daemon's state, so a death returns to the saved state. */
inline die()
{
    d_step {
        kills++;
        copy_knowledge(state, kept);
        copy_knowledge(kept, none)
    }
}

/* No process writes any more, and everything was drained: nothing needs to wait. */
inline bury()
{
    d_step {
#ifdef MUTANT_ORPHANED_FIRST
        state.orphaned = state.pending;
        state.pending = 0;
#endif
        upto = (state.fresh > state.waiting -> state.fresh : state.waiting);
        if
        :: upto > 0 -> settle()
        :: else
        fi;
        state.orphaned = state.orphaned | state.pending;
        state.pending = 0
    }
}

/* Each start's time up to its finalize, by the complete records of the lanes. */
inline judge()
{
    d_step {
        assert((state.closed & state.orphaned) == 0);
        assert((state.closed | state.orphaned) == starts);
        for (time : 1 .. clock) {
            if
            :: starts & BIT(time) ->
                assert((finalizes > BIT(time)) == ((state.closed & BIT(time)) > 0));
                since = time;
                do
                :: finalizes > BIT(time) && since <= clock && !(finalizes & BIT(since)) ->
                    upto = upto | BIT(since);
                    since++
                :: else -> break
                od
            :: else
            fi
        }
        assert(state.given == upto || raced > 0);
        time = 0;
        since = 0;
        upto = 0
    }
}

#define DRAINED (head[0] == state.cursor[0] && head[1] == state.cursor[1])

active proctype daemon()
{
    do
    :: atomic {
           !DRAINED || state.fresh > 0 || state.waiting > 0 ->
           drain(0)
       }
       atomic { /* the lanes continue in between */
           drain(1);
           end_of_pass();
           if
           :: kills < KILLS -> save()
           :: kills < KILLS -> die()
           :: true
           fi
       }
    :: ended && DRAINED -> break
    od;
    bury();
    judge()
}
