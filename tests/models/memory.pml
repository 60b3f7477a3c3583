/* memory.pml - the memory between two processes, weaker than spin's own.
 *
 * For spin every store is seen at once by everybody. The machine and the
 * compiler promise less, so here the writer's store is first only on its way:
 * it reaches memory at any later time, in any order with the others, but for
 * what the writer asked:
 *
 *   two stores to one cell        in the order of the program
 *   a release store               after all stores before it; those after it may pass it
 *   a store after a release fence after all stores before the fence
 *
 * A cell has at most one store on its way; the writer waits with the next.
 * Loads happen where the model says. That is an acquire; where no fence asks
 * for an order, the model itself takes the loads in any order.
 *
 * The writer may die between any two steps. What was on its way then still
 * arrives, as a machine has it, or is lost from some moment on, as if the
 * compiler had moved those stores down and they were never executed.
 *
 * Whoever includes this has defined CELLS, as the first thing it does: the
 * process of each cell takes its number from the order of creation.
 */
#define RELAXED 0
#define RELEASE 1
#define BIT(number) (1 << (number))

byte memory[CELLS]; /* what others see */
byte coming[CELLS]; /* the store on its way */
short needs[CELLS]; /* the cells that must be stored before it */
short pending;      /* the cells with a store on its way */
short fenced;       /* those of them whose store stands before the last fence */
hidden byte other;

bool done; /* the writer came to its end */
bool dead; /* or died on the way */
bool lost; /* and with it what it had stored last */

/* No store is on its way and none will come: what a consumer knows when the lock of byte 0 has fallen. */
#define QUIET ((done || dead) && !pending)

inline store(cell, value, order)
{
    d_step {
        !(pending & BIT(cell)) ->
        coming[cell] = value;
        needs[cell] = (order == RELEASE -> pending : fenced);
        pending = pending | BIT(cell)
    }
}

inline release_fence()
{
    fenced = pending
}

active [CELLS] proctype arrival()
{
end:
    do
    :: d_step {
           (pending & BIT(_pid)) && !needs[_pid] ->
           memory[_pid] = coming[_pid];
           coming[_pid] = 0;
           pending = pending & ~BIT(_pid);
           fenced = fenced & ~BIT(_pid);
           for (other : 0 .. CELLS - 1) {
               needs[other] = needs[other] & ~BIT(_pid)
           }
       }
    od
}

active proctype death()
{
end_alive:
    d_step {
        !done -> dead = true
    };
end_dead:
    d_step {
        pending ->
        lost = true;
        pending = 0;
        fenced = 0;
        for (other : 0 .. CELLS - 1) {
            coming[other] = 0;
            needs[other] = 0
        }
    }
}
