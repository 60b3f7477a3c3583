/* removed.pml - the life of one segment until only a record of it is left (brick_removed.h).
 *
 * Modelled: a worker that is killed or ends cleanly; REMOVERS new workers that
 * remove its segment once it is dead; a daemon that attaches, keeps totals and
 * records in its checkpoint, removes the segment, empties the file of records, and
 * merges what it keeps into aggregates, or forgets it on request. Each is killed
 * between any two of its steps, the daemon KILLS times; the next one begins from
 * the checkpoint. All that the worker recorded is one span. Properties:
 *
 *   - at every moment the checkpoint, the segment and the file together show the
 *     span once or count it as removed, and so does the daemon that runs;
 *   - so does a reader that reads them one after the other, alone or through the
 *     daemon, while all others continue.
 *
 * Not modelled: the content of a record; a segment that its worker lost and continues
 * without (tests/daemon/test_removed_kept.py); how rings are drained (restart.pml).
 */
#define REMOVERS 2
#ifndef KILLS
#define KILLS 1
#endif

/* ---- the segment and the file -------------------------------------------- */

bool linked = true;
bool ended;    /* the worker's lock has fallen */
bool marked;   /* a daemon has attached */
byte records;  /* of this worker, in the file */
bool other = true; /* a record of another worker, in the file */
byte sharing;  /* appenders that hold the lock of the file */
bool alone;    /* the daemon holds it for itself */

/* ---- what a daemon knows ------------------------------------------------- */

typedef Knowledge {
    bool gone;   /* the worker's totals */
    bool older;  /* the same, in a sum */
    bool record; /* its record */
    bool rest;   /* the same, in a sum */
    bool buried  /* its uuid: it is in one of these sums */
};

Knowledge kept;  /* in the checkpoint */
Knowledge state; /* of the daemon that runs */
bool replaced;   /* the checkpoint was, since the reader looked at it */
byte seen;       /* records that are in `state` */
bool unsaved;
bool attached;   /* it has the segment open */
bool runs;
bool reading;    /* one of its threads reads segments, attaches one, or empties the file: readers must not miss that */
bool asked;      /* by the reader */
byte kills;
bool killed;

inline copy(to, from)
{
    to.gone = from.gone;
    to.older = from.older;
    to.record = from.record;
    to.rest = from.rest;
    to.buried = from.buried
}

#define SHOWN(k, there) (k.gone || k.older || ((there) && !k.buried))
#ifdef MUTANT_COUNTED_WITH_ITS_TOTALS
#define REMOVED(k, there, number) ((k.record || (number) > 0) && !k.buried)
#else
#define REMOVED(k, there, number) ((k.record || (number) > 0) && !k.buried && !SHOWN(k, there))
#endif
#define TIMES(k, there, number) (SHOWN(k, there) + k.rest + REMOVED(k, there, number))

/* ---- removers of the segment --------------------------------------------- */

/* A full file, or a death before the write, is a process that never takes its next step. */
inline append(done)
{
#ifdef MUTANT_APPENDED_WITHOUT_A_LOCK
    records++;
    done = true
#else
    if
    :: d_step { !alone -> sharing++ };
        d_step { records++; done = true; sharing-- }
    :: alone /* it does not wait */
    fi
#endif
}

inline remove(done)
{
#ifdef MUTANT_UNLINKED_FIRST
    linked = false;
    append(done)
#else
    append(done);
    if
#ifdef MUTANT_UNLINKED_WITHOUT_A_RECORD
    :: true -> linked = false
#else
    :: done -> linked = false
#endif
    :: true /* it dies */
    fi;
    done = false
#endif
}

active proctype worker()
{
    bool done;
    if
    :: true /* it is killed */
    :: marked || attached /* it ends, and leaves its segment */
    :: !marked && !attached -> remove(done)
    fi;
    ended = true
}

active [REMOVERS] proctype remover()
{
    bool done;
end:
    ended && linked && !attached; /* when it looks; the next step may be much later */
    remove(done)
}

/* ---- the daemon ---------------------------------------------------------- */

inline save()
{
    d_step {
        copy(kept, state);
        replaced = true;
        unsaved = false
    }
}

/* Into an aggregate: from then on only the uuid shows that it is included. */
inline add_up_totals()
{
    d_step {
        state.gone = false;
        state.older = true;
        state.record = false;
#ifndef MUTANT_MERGED_AND_UNKNOWN
        state.buried = true;
#endif
        unsaved = true
    }
}

inline add_up_record()
{
    d_step {
        state.record = false;
        state.rest = true;
#ifndef MUTANT_RECORD_MERGED_AND_UNKNOWN
        state.buried = true;
#endif
        unsaved = true
    }
}

inline forget()
{
    d_step {
        state.gone = false;
        state.older = false;
        state.record = false;
        state.rest = true;
        state.buried = true;
        unsaved = true
    }
}

inline take_in_records()
{
    d_step {
        seen = other + records;
        state.record = state.record || (records > 0 && !state.buried);
        unsaved = true
    }
}

inline empty_file()
{
#ifndef MUTANT_EMPTIED_UNDER_A_READER
    d_step { !reading -> reading = true };
#endif
    if
#ifdef MUTANT_EMPTIED_UNDER_AN_APPEND
    :: true ->
#else
    :: d_step { sharing == 0 -> alone = true };
#endif
        if
#ifdef MUTANT_EMPTIED_UNSEEN
        :: d_step { true -> records = 0; other = false }
#else
        :: other + records == seen -> d_step { records = 0; other = false }
        :: other + records != seen
#endif
        fi
    :: sharing > 0
    fi;
    d_step {
        seen = 0;
        alone = false;
#ifndef MUTANT_EMPTIED_UNDER_A_READER
        reading = false
#endif
    }
}

active proctype daemon()
{
begin:
    {
        d_step {
            copy(state, kept);
            runs = true
        };
end:
        do
        :: d_step { linked && !attached && !reading && !state.gone && !state.buried ->
               attached = true;
               marked = true
           }
        :: d_step { linked && !attached && !reading && (state.gone || state.buried) -> linked = false }
        :: d_step { attached && ended && !state.gone && !state.buried ->
               state.gone = true;
               unsaved = true
           }
        :: other + records > seen -> take_in_records()
        :: unsaved -> save()
#ifdef MUTANT_REMOVED_UNSAVED
        :: attached && (state.gone || state.buried) ->
#else
        :: attached && (state.gone || state.buried) && !unsaved ->
#endif
            linked = false;
            d_step { !reading -> attached = false }
#ifdef MUTANT_EMPTIED_UNSAVED
        :: seen > 0 -> empty_file()
#else
        :: seen > 0 && !unsaved -> empty_file()
#endif
        :: state.gone && !attached && !unsaved -> add_up_totals()
        :: state.record && records == 0 && !state.gone && !attached && !unsaved -> add_up_record()
        :: state.gone || state.older -> forget()
        od
    } unless {
        d_step {
            killed ->
            killed = false;
            runs = false;
            attached = false;
            alone = false;
            reading = false;
            asked = false;
            unsaved = false;
            seen = 0
        }
        goto begin
    }
}

active proctype kill()
{
end:
    do
    :: d_step { kills < KILLS && runs && !killed -> kills++; killed = true }
    od
}

/* ---- readers ------------------------------------------------------------- */

inline forget_look()
{
    found.gone = false;
    found.older = false;
    found.record = false;
    found.rest = false;
    found.buried = false;
    number = 0;
    there = false
}

/* One look of one of three kinds, at any time: everything in one step; one part after the other, which restarts if the
 * checkpoint was replaced meanwhile; the same by a thread of the daemon, which ends if that is killed. */
active proctype reader()
{
    Knowledge found;
    byte number;
    bool there;
end:
    if
    :: d_step {
           true ->
           assert(TIMES(kept, linked, records) == 1);
           assert(!runs || TIMES(state, linked || attached, records) == 1)
       }
    :: d_step {
           true ->
           replaced = false;
           copy(found, kept)
       };
#ifdef MUTANT_FILE_READ_FIRST
       number = records;
       there = linked;
#else
       there = linked;
       number = records;
#endif
       d_step {
           assert(replaced || TIMES(found, there, number) == 1);
           forget_look()
       }
    :: d_step {
           runs && !killed && !reading ->
           asked = true;
           reading = true;
           copy(found, state);
           there = attached
       };
       there = there || linked;
       number = records;
       d_step {
           assert(!asked || TIMES(found, there, number) == 1);
           reading = reading && !asked;
           asked = false;
           forget_look()
       }
    fi
}
