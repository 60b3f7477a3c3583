/* twin.pml - two files with one uuid, from the first look until only a record is left (brickd/shm/duplicates.py).
 *
 * Modelled: a worker that is killed or ends cleanly; another one that removes dead
 * segments; a daemon that attaches, keeps totals and records in its checkpoint,
 * removes segments, empties the file of records, and merges what it keeps into
 * aggregates, or forgets it on request. It is killed between any two of its steps, KILLS
 * times; the next one begins from the checkpoint. All that the worker recorded is
 * one span. The segment is copied: as it was before the span, or completely, or
 * completely and with a live process in the copy for a while. The copy is removed
 * again, with or without a record. Properties:
 *
 *   - at every moment the checkpoint, the files and the records together show the
 *     span once or count it as removed, and so does the daemon that runs;
 *   - so does a reader that reads them one after the other;
 *   - while each of the two files has a live process and no checkpoint shows which
 *     one is the worker's, the span is shown or counted at most once.
 *
 * Not modelled: appending to the file of records while it is emptied (removed.pml); a
 * copy without the span and with a live process: it looks exactly like the worker.
 */
#ifndef KILLS
#define KILLS 1
#endif

/* ---- the segment and the file -------------------------------------------- */

bool linked = true;
bool ended;    /* the worker's lock has fallen */
bool marked;   /* a daemon has attached */
bool records;  /* of this worker, in the file: there is one */

/* ---- the copy ------------------------------------------------------------ */

#define NONE 0
#define ORIGINAL 1
#define STALE 2 /* a copy without the span */
#define WHOLE 3 /* a copy with it */
#define LIVE 4  /* the same, and a process holds the worker's lock on it */

byte twin; /* the copy that is there, or NONE */

#define HAS_SPAN(file) ((file) == ORIGINAL || (file) >= WHOLE)
#define IS_COPY(file) ((file) >= STALE)

/* Nothing shows which of two dead files is the original: the one with more counts, then the first by name. */
#ifdef MUTANT_THE_FIRST_OF_TWO_DEAD
#define OF_DEAD(copy) (copy)
#else
#define OF_DEAD(copy) ((copy) == STALE -> ORIGINAL : (copy))
#endif

/* brickd/shm/duplicates.py: the file known to the checkpoint, else the only live one, else neither until one ends. */
#ifdef MUTANT_THE_COPY_WINS
#define OF_TWO(known, lives, copy) (copy)
#else
#define OF_TWO(known, lives, copy) \
    ((known) == ORIGINAL -> ORIGINAL : (IS_COPY(known) -> (copy) : \
    ((lives) -> ((copy) == LIVE -> NONE : ORIGINAL) : OF_DEAD(copy))))
#endif
#define REAL(known, there, lives, copy) \
    (!(there) -> (copy) : ((copy) == NONE -> ORIGINAL : OF_TWO(known, lives, copy)))

/* ---- what a daemon knows ------------------------------------------------- */

typedef Knowledge {
    byte file;   /* which one it drains: NONE, ORIGINAL or WHOLE for a copy */
    byte gone;   /* the worker's totals, by the file that they were read from; NONE: it has none */
    bool older;  /* the same, in a sum */
    bool record; /* its record */
    bool rest;   /* the same, in a sum */
    bool buried  /* its uuid: it is in one of these sums */
};

Knowledge kept;  /* in the checkpoint */
Knowledge state; /* of the daemon that runs */
bool replaced;   /* the checkpoint was, since the reader looked at it */
bool seen;       /* the record is in `state` */
bool unsaved;
byte attached;   /* the file that it has open */
bool runs;
byte kills;
bool killed;

inline copy(to, from)
{
    to.file = from.file;
    to.gone = from.gone;
    to.older = from.older;
    to.record = from.record;
    to.rest = from.rest;
    to.buried = from.buried
}

/* How often the span is shown or counted by a reader that knows k, this file of the uuid and these records. */
#ifdef MUTANT_BOTH_FILES_COUNT
#define SHOWN(k, read, copy) (HAS_SPAN(k.gone) + k.older + \
    (HAS_SPAN(read) && !k.gone && !k.buried) + (HAS_SPAN(copy) && (read) == ORIGINAL && !k.gone && !k.buried))
#else
#define SHOWN(k, read, copy) (HAS_SPAN(k.gone) + k.older + (HAS_SPAN(read) && !k.gone && !k.buried))
#endif
#ifdef MUTANT_A_COPY_SILENCES_THE_RECORD
#define BEYOND(k, read) (!k.gone && !k.older && !(read))
#else
#define BEYOND(k, read) (!HAS_SPAN(k.gone) && !k.older && !HAS_SPAN(read))
#endif
#define REMOVED(k, read, number) ((k.record || (number)) && !k.buried && BEYOND(k, read))
#define TIMES(k, read, copy, number) (SHOWN(k, read, copy) + k.rest + REMOVED(k, read, number))

/* What is read from the two files at once. */
#define READ(k) REAL(k.file, linked, !ended, twin)
#define UNDECIDED(k) (linked && !ended && twin == LIVE && !k.file)

/* ---- removers of the segment --------------------------------------------- */

inline unlink(is_copy)
{
    if
    :: d_step { is_copy -> twin = NONE }
    :: d_step { !(is_copy) -> linked = false }
    fi
}

/* A full file, or a death before the record, is a process that never takes its next step. */
inline remove(is_copy)
{
    records = true;
    unlink(is_copy)
}

active proctype worker()
{
    if
    :: true /* it is killed */
    :: marked || attached == ORIGINAL /* it ends, and leaves its segment */
    :: !marked && attached != ORIGINAL -> remove(false)
    fi;
    ended = true
}

active proctype remover()
{
end:
    if /* when it looks; the next step may be much later */
    :: ended && linked && attached != ORIGINAL -> remove(false)
    :: twin == WHOLE && !IS_COPY(attached) -> remove(true)
    :: d_step { twin == STALE && !IS_COPY(attached) -> twin = NONE } /* its record has no span */
    fi
}

/* Copies the segment, and removes the copy again unless a daemon took it for the worker's. */
active proctype copier()
{
end:
    if
    :: d_step { linked -> twin = STALE }
    :: d_step { linked -> twin = WHOLE }
    :: d_step { linked -> twin = LIVE };
endlive:
        d_step { twin == LIVE -> twin = WHOLE }
    fi;
endaway:
    d_step { twin && !IS_COPY(kept.file) && !IS_COPY(state.file) -> twin = NONE }
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
        state.rest = state.rest || (state.record && !HAS_SPAN(state.gone));
        state.older = HAS_SPAN(state.gone);
        state.gone = NONE;
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
        state.buried = true;
        unsaved = true
    }
}

inline forget()
{
    d_step {
        state.rest = state.rest || state.record || state.older || HAS_SPAN(state.gone);
        state.gone = NONE;
        state.older = false;
        state.record = false;
        state.buried = true;
        unsaved = true
    }
}

inline take_in_records()
{
    d_step {
        seen = records;
        state.record = state.record || (records && !state.buried);
        unsaved = true
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
        :: d_step { !attached && !state.gone && !state.buried && READ(state) ->
               attached = READ(state);
               marked = marked || attached == ORIGINAL;
               attached = (attached == LIVE -> WHOLE : attached);
               state.file = (attached == ORIGINAL -> ORIGINAL : WHOLE);
               unsaved = true
           }
        :: d_step { twin == LIVE && !attached && state.gone && !state.buried ->
               attached = WHOLE; /* it lives: the dead file was a copy of it */
               state.file = WHOLE;
               state.gone = NONE;
               unsaved = true
           }
        :: d_step { linked && !attached && (state.gone || state.buried) -> linked = false }
        :: d_step { twin && (twin != LIVE || state.buried) && !attached && (state.gone || state.buried) ->
               twin = NONE
           }
        :: d_step { attached && (attached == ORIGINAL -> ended : twin != LIVE) && !state.gone && !state.buried ->
               state.gone = attached;
               state.file = NONE;
               unsaved = true
           }
        :: unsaved || records > seen -> take_in_records(); save()
        :: attached && (state.gone || state.buried) && !unsaved ->
            unlink(attached != ORIGINAL);
            attached = NONE
        :: d_step { seen && !unsaved ->
               records = false;
               seen = false
           }
        :: state.gone && !attached && !unsaved -> add_up_totals()
        :: state.record && !records && !state.gone && !attached && !unsaved -> add_up_record()
        :: HAS_SPAN(state.gone) || state.older || (state.gone && state.record) -> forget()
        od
    } unless {
        d_step {
            killed ->
            killed = false;
            runs = false;
            attached = NONE;
            unsaved = false;
            seen = false
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
    found.file = NONE;
    found.gone = NONE;
    found.older = false;
    found.record = false;
    found.rest = false;
    found.buried = false;
    number = false;
    read = NONE;
    copy_read = NONE;
    there = false;
    lives = false
}

/* The two files, one after the other; then those of them that count. */
inline read_files()
{
    d_step { there = linked; lives = linked && !ended };
    copy_read = twin
}

inline judge(sure)
{
    d_step {
        doubt = there && lives && copy_read == LIVE && !found.file;
        read = (read -> read : REAL(found.file, there, lives, copy_read));
        assert(!(sure) || doubt || TIMES(found, read, copy_read, number) == 1);
        assert(!(sure) || TIMES(found, read, copy_read, number) <= 1);
        doubt = false
    }
}

/* One look of one of two kinds, at any time: everything in one step; one part after the other, which restarts if the
 * checkpoint was replaced meanwhile. */
active proctype reader()
{
    Knowledge found;
    bool number;
    byte read;
    byte copy_read;
    bool there;
    bool lives;
    bool doubt;
end:
    if
    :: d_step {
           true ->
           read = READ(kept);
           assert(TIMES(kept, read, twin, records) == 1 || (UNDECIDED(kept) && !TIMES(kept, read, twin, records)));
           read = (attached -> attached : READ(state));
           assert(!runs || TIMES(state, read, twin, records) == 1 ||
                  (UNDECIDED(state) && !TIMES(state, read, twin, records)));
           read = NONE
       }
    :: d_step {
           true ->
           replaced = false;
           copy(found, kept)
       };
       read_files();
       number = records;
       judge(!replaced);
       d_step { forget_look() }
    fi
}
