/* tail.pml - a consumer moves a ring's tail while the writer reads it.
 *
 * The only guarantee of a pwrite of a word is that it is over before the next one
 * begins. So here each word is written in two halves, in any order; the writer's
 * load is complete but may be in between; the consumer may be killed in between,
 * and the next one moves the same or a later tail. Property:
 *
 *   - the writer never believes a tail beyond the returned slots.
 *
 * It depends only on the order, and not like ring.pml on words that are never torn
 * alike: a writer that has seen half a position finds the complement of the next
 * tail already complete. If a word is copied in more than two parts, that fails:
 * in decimal, a writer that sleeps between its loads may see 059 on the way to 100
 * as 159, and then 109 on the way to 150 as 159, too. No kernel copies an aligned
 * word like that.
 */
#define LAST 6 /* tails from 0; the writer's head is here all the time, so that it refuses as little as possible */
#define KILLS 2

#define HIGH(tail) ((tail) / 2)
#define LOW(tail) ((tail) % 2)

#define POSITION 0
#define COMPLEMENT 1 /* held as the tail that it means; zeros mean one beyond any head */
byte high[2], low[2];
#define HOLDS(word, tail) (high[word] == HIGH(tail) && low[word] == LOW(tail))

byte given_back;
bool killed;
byte kills;

init {
    d_step {
        high[COMPLEMENT] = HIGH(LAST + 1);
        low[COMPLEMENT] = LOW(LAST + 1)
    }
    run consumer();
    run writer();
    run kill()
}

inline put(word, tail)
{
    if
    :: high[word] = HIGH(tail); low[word] = LOW(tail)
    :: low[word] = LOW(tail); high[word] = HIGH(tail)
    fi
}

inline move_tail(tail)
{
#if defined(MUTANT_POSITION_FIRST)
    put(POSITION, tail);
    put(COMPLEMENT, tail)
#elif defined(MUTANT_ONE_WRITE)
    do
    :: high[POSITION] = HIGH(tail)
    :: low[POSITION] = LOW(tail)
    :: high[COMPLEMENT] = HIGH(tail)
    :: low[COMPLEMENT] = LOW(tail)
    :: HOLDS(POSITION, tail) && HOLDS(COMPLEMENT, tail) -> break
    od
#else
    put(COMPLEMENT, tail); /* O12 */
    put(POSITION, tail)
#endif
}

proctype consumer()
{
begin:
    {
        do
        :: move_tail(given_back)
        :: given_back < LAST -> given_back++ /* once or often before the next move */
        od
    } unless {
        d_step {
            killed ->
            killed = false
        }
        goto begin
    }
}

proctype kill()
{
end:
    do
    :: d_step {
           kills < KILLS && !killed ->
           kills++;
           killed = true
       }
    od
}

inline load(word, into)
{
    d_step {
        into = 2 * high[word] + low[word]
    }
}

/* tail_now() */
proctype writer()
{
    byte position, complement;
    do
    ::
#ifdef MUTANT_COMPLEMENT_LOADED_FIRST
        load(COMPLEMENT, complement);
        load(POSITION, position);
#else
        load(POSITION, position); /* O13 */
        load(COMPLEMENT, complement);
#endif
        d_step {
#ifdef MUTANT_UNPAIRED
            complement = position;
#endif
            assert(position != complement || position > LAST || position <= given_back);
            position = 0;
            complement = 0
        }
    od
}
