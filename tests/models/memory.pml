/* memory.pml - the memory between two processes, weaker than spin's own.
 *
 * In spin every store is visible to all processes at once. The machine and the
 * compiler promise less, so here a store of the writer is pending at first:
 * it reaches memory at any later time, in any order with other stores, except
 * for the order that the writer requests:
 *
 *   two stores to one cell        in the order of the program
 *   a release store               after all stores before it; later ones may pass it
 *   a store after a release fence after all stores before the fence
 *
 * A cell has at most one pending store; the writer waits with the next. Loads
 * happen where the model has them, like an acquire; where no fence requires an
 * order, the model itself takes the loads in any order.
 *
 * The writer may die between any two steps. Pending stores then still arrive, as
 * on a machine, or are lost from some moment on, as if the compiler had moved
 * them down and they were never executed.
 *
 * A model that includes this must first define CELLS: the process of each cell
 * takes its number from the order of creation.
 */
#define RELAXED 0
#define RELEASE 1
#define BIT(number) (1 << (number))

byte memory[CELLS]; /* what others see */
byte coming[CELLS]; /* the pending store */
short needs[CELLS]; /* the cells that must be stored before it */
short pending;      /* the cells with a pending store */
short fenced;       /* those of them whose store is before the last fence */
hidden byte other;

bool done; /* the writer ended normally */
bool dead; /* or died before */
bool lost; /* and its last stores were lost */

/* No store is pending and none will follow: what a consumer knows when the lock of byte 0 is free. */
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
