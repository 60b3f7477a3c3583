/* reopen.pml - a thread takes, uses and gives back its lane while another opens the next segments.
 *
 * The lane's content is in one segment and must be moved into the next. Both
 * sides store a word and then load the other's (O18). A store waits in its
 * process and reaches memory at any later time, in any order with those to
 * other words, unless it is a release or a fence follows it. Properties,
 * when both processes are done and every store has arrived:
 *
 *   - the content of a lane that was given back is in the last segment;
 *   - the thread of a lane that was not is in the last segment, too, or finds
 *     the mark at its next record and follows.
 */
#define LAST 2          /* segments from 0 */
#define RETIRED 3       /* the mark; all other orders belong to a segment */
#define NOTHING 255

#define LANE 0          /* the lane's thread */
#define OPENER 1        /* the thread that opens the next segments */

byte segment, control, owner = 1; /* as memory has them */
byte next_segment = NOTHING, next_control[2] = NOTHING, next_owner[2] = NOTHING; /* on their way */

byte content;     /* the segment that the lane's content is in; its owner moves it */
bool given_back;
byte done;

/* Every store of this process has arrived. */
#define ARRIVED(who) (next_control[who] == NOTHING && next_owner[who] == NOTHING && (who == LANE || next_segment == NOTHING))

active proctype arrival()
{
end:
    do
    :: d_step { next_segment != NOTHING -> segment = next_segment; next_segment = NOTHING }
    :: d_step { next_control[LANE] != NOTHING -> control = next_control[LANE]; next_control[LANE] = NOTHING }
    :: d_step { /* a release: after the segment */
           next_control[OPENER] != NOTHING && next_segment == NOTHING ->
           control = next_control[OPENER];
           next_control[OPENER] = NOTHING
       }
    :: d_step { /* releases: after everything else */
           next_owner[LANE] != NOTHING && next_control[LANE] == NOTHING ->
           owner = next_owner[LANE];
           next_owner[LANE] = NOTHING
       }
    :: d_step {
           next_owner[OPENER] != NOTHING && next_control[OPENER] == NOTHING && next_segment == NOTHING ->
           owner = next_owner[OPENER];
           next_owner[OPENER] = NOTHING
       }
    od
}

inline store(word, value)
{
    d_step {
        word == NOTHING -> word = value
    }
}

inline fence(who)
{
    ARRIVED(who)
}

/* A failed claim is a load: it does not wait for earlier stores. */
inline claim(who)
{
    d_step {
        next_owner[who] == NOTHING && (owner == 1 || ARRIVED(who)) ->
        won = (owner == 0);
        owner = 1
    }
}

/* orders_from() */
inline take_orders(who, from)
{
    store(next_control[who], from);
#ifndef MUTANT_ORDERS_WITHOUT_FENCE
    fence(who);
#endif
#ifndef MUTANT_SEGMENT_READ_ONCE
    if
    :: segment != from -> store(next_control[who], RETIRED)
    :: else
    fi
#endif
}

/* lane_move() */
inline move(who, present)
{
    content = present;
    take_orders(who, present)
}

active proctype lane()
{
    byte seen;
    bool won;
    seen = segment;
    content = seen;
    take_orders(LANE, seen);
    do
    :: /* brick_obey() */
        d_step {
            seen = (next_control[LANE] != NOTHING -> next_control[LANE] : control)
        };
        if
        :: seen == RETIRED -> seen = segment; move(LANE, seen)
        :: else
        fi
    :: break
    :: given_back = true; break
    od;
    /* lane_give() */
    do
    :: !given_back -> break
    :: else ->
        seen = content;
        store(next_owner[LANE], 0);
#ifndef MUTANT_GIVEN_WITHOUT_FENCE
        fence(LANE);
#endif
#ifdef MUTANT_GIVEN_WITHOUT_A_LOOK
        break;
#endif
        if
        :: segment == seen -> break
        :: else
        fi;
        claim(LANE);
        if
        :: won -> seen = segment; move(LANE, seen)
        :: else -> break
        fi
    od;
    done++
}

/* brick_agent_reopen() */
active proctype opener()
{
    byte mine;
    bool won;
    for (mine : 1 .. LAST) {
        store(next_segment, mine);
#ifndef MUTANT_OPENED_WITHOUT_FENCE
        fence(OPENER);
#endif
#ifndef MUTANT_NO_MARK
        store(next_control[OPENER], RETIRED);
#endif
        claim(OPENER);
        if
        :: won -> move(OPENER, mine); store(next_owner[OPENER], 0)
        :: else
        fi
    }
    done++
}

active proctype judge()
{
    d_step {
        done == 2 && ARRIVED(LANE) && ARRIVED(OPENER) ->
        assert(content == LAST || (!given_back && control == RETIRED))
    }
}
