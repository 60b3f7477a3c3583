/* restart.pml - a worker fills its two rings, a daemon drains them into its
 * state; either may die between any two of its steps, and the next daemon
 * continues from the checkpoint (DESIGN "Durability").
 *
 * Modelled: one worker with one lane, its event ring and its span ring; a
 * daemon that is killed KILLS times, also while it starts again; a checkpoint
 * in one file, written as a draft and renamed, on a disk that is full once and
 * damages its content once; the end of the segment. Properties:
 *
 *   - whatever died, the surviving state has applied every written event once; if it
 *     is marked as broken, once from its new beginning on. Events that were not
 *     written were counted as dropped;
 *   - the writer overwrites no event that no checkpoint contains;
 *   - spans wanted = consumed + lost with a daemon + dropped, broken or not;
 *   - the totals of the worker are in the surviving state once, and still after
 *     its segment was unlinked;
 *   - broken is set only if the disk damaged the checkpoint;
 *   - a daemon with nothing to do has returned all slots, and every daemon ends: no
 *     deadlock, and no cycle, because no state recurs.
 *
 * Not modelled here: torn words and late stores (ring.pml, tail.pml), and what a
 * finalize closes (deferred.pml). Not modelled anywhere: a daemon that writes its
 * checkpoint in one thread and continues in another; a lock lost by a live
 * worker; a worker that overwrites its tails; a record of several slots, or one
 * at the head of a dead worker; when a dead worker is forgotten.
 */
#define SLOTS 2
#define WANTED 4 /* attempts, in any mixture of the two rings: each alone wraps around twice */
#ifndef KILLS
#define KILLS 2
#endif

#define BIT(number) (1 << (number))
#define BELOW(number) (BIT(number) - 1)

#define EVENTS 0
#define SPANS 1
#define RINGS 2

/* ---- the segment --------------------------------------------------------- */

bool linked = true;
bool ended; /* the worker, normally or killed: its lock is free */

byte attempts[RINGS];
byte dropped[RINGS];
byte head[RINGS];
byte slot[RINGS * SLOTS]; /* each record's number, from 1 */
#define SLOT(ring, index) slot[(ring) * SLOTS + (index) % SLOTS]

/* The summaries hold the totals: each span, with or without its detail. */
#define TOTAL attempts[SPANS]

byte position[RINGS], complement[RINGS];
byte lost_word; /* spans_lost, for readers without a daemon */

#define COMPLEMENT(tail) (WANTED + 1 + (tail))
#define UNTOUCHED(ring) (position[ring] == 0 && complement[ring] == 0)
#define MATCHING(ring) \
    (complement[ring] == COMPLEMENT(position[ring]) && position[ring] <= head[ring] && head[ring] - position[ring] <= SLOTS)

/* ---- the checkpoint ------------------------------------------------------ */

/* The knowledge of a daemon. */
typedef Knowledge {
    bool met;           /* the worker, by its uuid */
    byte cursor[RINGS];
    byte applied;       /* events, as a set */
    byte base;          /* the first of them: above 0 only when broken */
    byte consumed;      /* spans */
    byte lost;          /* spans, with a daemon */
    byte total;         /* of dead workers */
    bool folded;        /* this worker is one of them */
    bool broken
};

Knowledge kept;    /* in the file; empty while there is none */
bool whole = true; /* the result of the file's checksum */
bool damaged;      /* the disk did that, once */
bool filled;       /* the disk was full, once */

byte contained;    /* known to no process: how many events a checkpoint contained, or a break gave up */

inline copy_knowledge(to, from)
{
    to.met = from.met;
    to.cursor[EVENTS] = from.cursor[EVENTS];
    to.cursor[SPANS] = from.cursor[SPANS];
    to.applied = from.applied;
    to.base = from.base;
    to.consumed = from.consumed;
    to.lost = from.lost;
    to.total = from.total;
    to.folded = from.folded;
    to.broken = from.broken
}

inline forget(what)
{
    what.met = false;
    what.cursor[EVENTS] = 0;
    what.cursor[SPANS] = 0;
    what.applied = 0;
    what.base = 0;
    what.consumed = 0;
    what.lost = 0;
    what.total = 0;
    what.folded = false;
    what.broken = false
}

/* ---- the worker ---------------------------------------------------------- */

byte believed[RINGS];

#define FULL(ring) (head[ring] - believed[ring] >= SLOTS)

/* In one step: half a record and half a tail are modelled in ring.pml and tail.pml. */
inline record(ring)
{
    d_step {
        attempts[ring]++;
        if
        :: FULL(ring) && MATCHING(ring) -> believed[ring] = position[ring]
        :: else
        fi;
        if
        :: FULL(ring) -> dropped[ring]++
        :: else ->
            assert(ring == SPANS || head[ring] < SLOTS + contained);
            SLOT(ring, head[ring]) = head[ring] + 1;
            head[ring]++
        fi
    }
}

active proctype worker()
{
    {
        do
        :: attempts[EVENTS] + attempts[SPANS] < WANTED -> record(EVENTS)
        :: attempts[EVENTS] + attempts[SPANS] < WANTED -> record(SPANS)
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

/* ---- the daemon: tails and checkpoint ------------------------------------ */

Knowledge state;
bool unsaved; /* the state is ahead of its checkpoint */
bool alone;   /* the lock was seen free: no head moves any more */
byte limit, index;

bool finished;
bool killed;
byte kills;

inline move_tail(ring, to)
{
    complement[ring] = COMPLEMENT(to); /* O12 */
    position[ring] = to
}

inline give_back_spans()
{
#ifndef MUTANT_GAP_ADDED_IN_PLACE
    lost_word = state.lost;
#endif
    move_tail(SPANS, state.cursor[SPANS])
}

inline rename()
{
    d_step {
        copy_knowledge(kept, state);
        whole = true;
        contained = (state.cursor[EVENTS] > contained -> state.cursor[EVENTS] : contained);
        unsaved = false
    }
}

/* A draft that is half written, after a kill or on a full disk, has no effect. */
inline save()
{
    state.met = true;
#ifdef MUTANT_WRITTEN_IN_PLACE
    whole = false;
#endif
#ifdef MUTANT_TWO_FILES
    kept.applied = state.applied;
#endif
    if
    :: !filled ->
        filled = true;
#ifdef MUTANT_FAILED_WRITE_RENAMED
        whole = false;
        unsaved = false
#endif
    :: true -> rename()
    fi
}

inline save_and_give_back()
{
    save();
    if
    :: !unsaved -> move_tail(EVENTS, state.cursor[EVENTS])
    :: else /* and tries again */
    fi;
#ifdef MUTANT_SAVED_FOR_EVER
    unsaved = true
#endif
}

/* ---- the daemon: draining ------------------------------------------------ */

/* Copying and applying are one step: they are invisible until saved or returned. */
inline copy_records(ring)
{
    limit = head[ring];
    for (index : state.cursor[ring] .. limit - 1) {
        assert(SLOT(ring, index) == index + 1)
    }
}

inline apply_events()
{
    for (index : state.cursor[EVENTS] .. limit - 1) {
        assert(!(state.applied & BIT(index)));
        state.applied = state.applied | BIT(index)
    }
    state.cursor[EVENTS] = limit;
    unsaved = true;
    index = 0;
    limit = 0
}

inline drain_events()
{
#ifdef MUTANT_SAVED_BEFORE_APPLIED
    d_step {
        copy_records(EVENTS);
        index = state.cursor[EVENTS];
        state.cursor[EVENTS] = limit
    }
    save();
    d_step {
        state.cursor[EVENTS] = index;
        apply_events()
    }
#else
    d_step {
        copy_records(EVENTS);
        apply_events()
    }
#endif
#ifdef MUTANT_EVENT_TAIL_FIRST
    move_tail(EVENTS, state.cursor[EVENTS])
#endif
}

inline drain_spans()
{
    d_step {
        copy_records(SPANS);
        state.consumed = state.consumed + (limit - state.cursor[SPANS]);
        state.cursor[SPANS] = limit;
        unsaved = true;
        index = 0;
        limit = 0
    }
    give_back_spans()
}

#define DRAINED (head[EVENTS] == state.cursor[EVENTS] && head[SPANS] == state.cursor[SPANS])
#define GIVEN_BACK(ring) ((MATCHING(ring) || UNTOUCHED(ring)) && position[ring] == state.cursor[ring])

inline fold_totals()
{
    d_step {
        assert(unsaved || (GIVEN_BACK(EVENTS) && GIVEN_BACK(SPANS))); /* a live worker would need them */
        state.total = state.total + TOTAL;
        state.folded = true;
        unsaved = true
    }
}

/* ---- the daemon: start --------------------------------------------------- */

inline load()
{
    if
    :: d_step {
           kept.met && !damaged ->
           damaged = true;
           whole = false;
           kept.cursor[EVENTS] = 0 /* for a mutant that accepts it */
       }
    :: true
    fi;
    d_step {
        if
#ifdef MUTANT_DAMAGED_ACCEPTED
        :: true -> copy_knowledge(state, kept)
#else
        :: whole -> copy_knowledge(state, kept)
        :: else ->
            forget(state);
            state.broken = true;
            unsaved = true
#endif
        fi
#ifdef MUTANT_FOLDED_AGAIN
        ;
        state.folded = false
#endif
    }
}

/* The tail is read only for a worker unknown to the checkpoint; position 0: nothing was returned yet. */
inline resume_events()
{
    d_step {
        if
        :: state.met ->
#if defined(MUTANT_CURSOR_BEHIND)
            state.cursor[EVENTS] = (state.cursor[EVENTS] > 0 -> state.cursor[EVENTS] - 1 : 0)
#elif defined(MUTANT_CURSOR_AHEAD)
            state.cursor[EVENTS] = (state.cursor[EVENTS] < head[EVENTS] -> state.cursor[EVENTS] + 1 : head[EVENTS])
#elif defined(MUTANT_RESUMED_AT_TAIL)
            state.cursor[EVENTS] = (MATCHING(EVENTS) -> position[EVENTS] : state.cursor[EVENTS])
#else
            skip
#endif
        :: !state.met && position[EVENTS] > 0 ->
            state.base = (MATCHING(EVENTS) -> position[EVENTS] : head[EVENTS]);
            state.cursor[EVENTS] = state.base;
            state.broken = true;
            unsaved = true;
            contained = (state.base > contained -> state.base : contained)
        :: else
        fi
    }
}

/* The writer may overwrite everything below a tail that it believes. A half moved
 * pair does not show which that is: then everything below the head may be
 * overwritten. The gap is counted in the state, next to its cursor: if this
 * daemon dies too, the next one finds the gap again, and counts it once. */
inline resume_spans()
{
    d_step {
        if
        :: MATCHING(SPANS) -> limit = position[SPANS]
        :: UNTOUCHED(SPANS) -> limit = 0
#ifdef MUTANT_HALF_A_TAIL_IGNORED
        :: else -> limit = state.cursor[SPANS]
#else
        :: else -> limit = head[SPANS]
#endif
        fi;
        assert(limit >= state.cursor[SPANS]);
        if
        :: limit > state.cursor[SPANS] ->
#ifdef MUTANT_GAP_ADDED_IN_PLACE
            lost_word = lost_word + limit - state.cursor[SPANS];
#endif
#ifndef MUTANT_GAP_UNCOUNTED
            state.lost = state.lost + limit - state.cursor[SPANS];
#endif
            state.cursor[SPANS] = limit;
            unsaved = true
        :: else
        fi;
        limit = 0
    }
}

inline resume()
{
    resume_events();
    resume_spans();
#ifndef MUTANT_NOT_GIVEN_BACK_AT_ONCE
    move_tail(EVENTS, state.cursor[EVENTS]);
#endif
    give_back_spans()
}

/* ---- the daemon ---------------------------------------------------------- */

/* The segment is gone: only the file is left. */
inline settle()
{
    d_step {
        if
        :: !whole -> assert(damaged)
        :: else ->
            assert((kept.broken -> damaged : kept.met && kept.base == 0));
            assert(!kept.met || kept.applied == (BELOW(head[EVENTS]) & ~BELOW(kept.base)));
            assert(!kept.met || kept.consumed + kept.lost + dropped[SPANS] == attempts[SPANS]);
            assert(!kept.met || kept.lost == lost_word);
            assert(!kept.met || (kept.folded && kept.total == TOTAL))
        fi;
        assert(attempts[EVENTS] == head[EVENTS] + dropped[EVENTS]);
        finished = true
    }
}

active proctype daemon()
{
begin:
    {
        load();
        if
        :: !linked
        :: else ->
            resume();
            do
            :: head[EVENTS] > state.cursor[EVENTS] -> drain_events()
            :: head[SPANS] > state.cursor[SPANS] -> drain_spans()
            :: unsaved -> save_and_give_back()
#ifdef MUTANT_LOCK_SEEN_LAST
            :: DRAINED && !state.folded ->
                ended;
                fold_totals()
#else
            :: ended && !alone -> alone = true
            :: alone && DRAINED && !state.folded ->
#ifdef MUTANT_UNLINKED_FIRST
                linked = false;
#endif
                fold_totals()
#endif
            :: state.folded && !unsaved ->
                linked = false;
                break
            od
        fi;
        settle()
    } unless {
        d_step {
            killed ->
            killed = false;
            forget(state);
            unsaved = false;
            alone = false;
            limit = 0;
            index = 0
        }
        goto begin
    }
}

active proctype kill()
{
end:
    do
    :: d_step {
           kills < KILLS && !killed && !finished ->
           kills++;
           killed = true
       }
    od
}
