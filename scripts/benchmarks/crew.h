/* crew.h - processes that prepare, begin together and end together.
 *
 * Prints the number of processes that are ready. All processes begin when the first byte arrives on stdin. All end when
 * stdin closes, or when the process that forked them ends.
 */
#ifndef CREW_H
#define CREW_H

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* This is set to tell all processes to end. It is in shared memory. */
static atomic_int *over;

/* Runs one process: `prepare` returns whether the process is ready, and `work` runs until `over` is set. */
static int crew_member(uint32_t number, const int ready[2], const int go[2], int (*prepare)(uint32_t),
                       void (*work)(uint32_t))
{
    char byte;
    /* the kernel ends this process with its parent, even while it waits for another process */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ready[0]);
    close(go[1]);
    if (!prepare(number) || write(ready[1], ".", 1) != 1)
        return 1;
    close(ready[1]);
    if (read(go[0], &byte, 1) == 0) /* at the end of the pipe, all processes begin */
        work(number);
    return 0;
}

/* Forks the processes and waits until they end. Returns the exit code, both in this process and in each forked
 * process. */
static int crew(uint32_t members, int (*prepare)(uint32_t), void (*work)(uint32_t))
{
    int ready[2], go[2];
    char byte;
    unsigned prepared = 0;
    over = mmap(NULL, sizeof *over, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (over == MAP_FAILED || pipe(ready) != 0 || pipe(go) != 0)
        return 1;
    for (uint32_t number = 0; number < members; number++) {
        pid_t child = fork();
        if (child < 0)
            return 1;
        if (child == 0)
            return crew_member(number, ready, go, prepare, work);
    }
    close(ready[1]);
    close(go[0]);
    while (read(ready[0], &byte, 1) == 1)
        prepared++;
    printf("%u\n", prepared);
    fflush(stdout);
    int more = read(STDIN_FILENO, &byte, 1) == 1;
    atomic_store(over, !more);
    close(go[1]);
    while (more)
        more = read(STDIN_FILENO, &byte, 1) == 1;
    atomic_store(over, 1);
    while (wait(NULL) > 0) {
    }
    return 0;
}

#endif
