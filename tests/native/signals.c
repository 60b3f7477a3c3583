/* Spans interrupted by signal handlers that also record.
 *
 * signals timers SPANS: three threads record at least SPANS spans each, until a timer of 20 kHz has interrupted each
 *                       thread 200 times.
 * signals opening SPANS: one thread records SPANS spans. A handler interrupts it after each instruction, beginning while
 *                        the segment is opened.
 * signals steps SPANS: the same, but the segment is already open, and the thread has no lane yet.
 * signals deferred SPANS: the same as steps, with deferred work instead of spans; the handler sometimes defers, too.
 * signals forks SPANS: the same as steps, but the handler forks. The child ends the interrupted span and records another.
 * signals forks-deferred SPANS: the same as forks, with deferred work.
 *
 * Prints the attempts and their results, then waits. */
#include "writer/common.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define TRAP 0x100 /* the x86 flag that makes the processor trap after each instruction */

static uint32_t plain, interrupting;
static const char handler_key;
static uint64_t attempts, recorded, refused, missed, spans, children, failures; /* accessed atomically */
static uint64_t deferred; /* work that the handler deferred; accessed atomically */
static int defers;
static __thread uint64_t mine;

static void interrupt(int signal)
{
    int error = errno;
    if (brick_state() == BRICK_NEW) /* the handler does not record: the interrupted code must open the segment first */
        return;
    (void)signal;
    unsigned outcome = brick_begin(interrupting, &handler_key, NULL);
    brick_fetch_add(&attempts, 1);
    mine++;
    brick_fetch_add((outcome & BRICK_FIRST) != 0 ? &recorded : (outcome & BRICK_REFUSED) != 0 ? &refused : &missed, 1);
    if (defers && mine % 16 == 0) {
        uint64_t id;
        unsigned began = brick_defer(interrupting, &handler_key, 2, NULL, 0, 0, &id);
        brick_fetch_add(&attempts, 1);
        brick_fetch_add(id != 0 ? &deferred : (began & BRICK_REFUSED) != 0 ? &refused : &missed, 1);
    }
    if ((outcome & BRICK_FIRST) != 0)
        brick_end(interrupting, &handler_key, 0, 0);
    errno = error;
}

static void record(uint32_t brick)
{
    if (defers) {
        const uint64_t stream = 1;
        uint64_t id;
        brick_defer(brick, NULL, stream, NULL, 1, 1, &id);
        brick_measured(id, 17);
        brick_finalize(&stream);
        return;
    }
    brick_begin(brick, NULL, NULL);
    brick_end(brick, NULL, 1, 1);
}

/* ---- timers ------------------------------------------------------------ */

static void *under_fire(void *argument)
{
    uint64_t least = *(const uint64_t *)argument, done = 0;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGALRM};
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    struct itimerspec every = {.it_interval.tv_nsec = 50000, .it_value.tv_nsec = 50000};
    timer_t timer;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 || timer_settime(timer, 0, &every, NULL) != 0)
        return NULL;
    for (; done < least || mine < 200; done++)
        record(plain);
    timer_delete(timer);
    brick_fetch_add(&spans, done);
    return NULL;
}

/* ---- after every instruction ------------------------------------------- */

#if defined(__x86_64__)
static void turn_trap(int signal, siginfo_t *info, void *context)
{
    (void)info;
    greg_t *flags = &((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL];
    *flags = signal == SIGUSR1 ? *flags | TRAP : *flags & ~(greg_t)TRAP;
}

static int is_child;

static void fork_here(int signal, siginfo_t *info, void *context)
{
    int status, error = errno;
    if (++attempts % (defers ? 32 : 8) != 0) /* enough children were forked */
        return;
    pid_t child = fork();
    if (child == 0) {
        is_child = 1;
        turn_trap(signal, info, context);
        return;
    }
    children++;
    failures += waitpid(child, &status, 0) != child || status != 0;
    errno = error;
}

static void step_by_step(uint64_t many, int forks)
{
    struct sigaction on = {.sa_sigaction = turn_trap, .sa_flags = SA_SIGINFO | SA_RESTART}, trap = {.sa_flags = 0};
    if (forks) {
        trap.sa_sigaction = fork_here;
        trap.sa_flags = SA_SIGINFO;
        record(plain); /* take a lane now: another test covers a fork while a lane is being taken */
        spans++;
    } else {
        trap.sa_handler = interrupt;
    }
    sigaction(SIGUSR1, &on, NULL);
    sigaction(SIGUSR2, &on, NULL);
    sigaction(SIGTRAP, &trap, NULL);
    raise(SIGUSR1);
    for (uint64_t n = 0; n < many; n++) {
        record(plain);
        if (is_child)
            break;
    }
    raise(SIGUSR2);
    if (is_child) {
        record(interrupting);
        _exit(brick_pending() != 0);
    }
    spans += many;
}
#endif

int main(int count, char **arguments)
{
    char turn;
    if (count != 3)
        return 2;
    uint64_t many = strtoull(arguments[2], NULL, 10);
    if (strcmp(arguments[1], "timers") == 0) {
        pthread_t threads[3];
        struct sigaction alarm = {.sa_handler = interrupt, .sa_flags = SA_RESTART};
        brick_init(NULL);
        plain = brick_name("plain", 5, NULL);
        interrupting = brick_name("interrupting", 12, NULL);
        sigaction(SIGALRM, &alarm, NULL);
        for (int n = 0; n < 3; n++)
            pthread_create(&threads[n], NULL, under_fire, &many);
        for (int n = 0; n < 3; n++)
            pthread_join(threads[n], NULL);
    }
#if defined(__x86_64__)
    else {
        if (strcmp(arguments[1], "opening") != 0) {
            plain = brick_name("plain", 5, NULL);
            interrupting = brick_name("interrupting", 12, NULL);
        }
        defers = strstr(arguments[1], "deferred") != NULL;
        step_by_step(many, strncmp(arguments[1], "forks", 5) == 0);
    }
#endif
    printf("{\"spans\": %llu, \"attempts\": %llu, \"recorded\": %llu, \"refused\": %llu, \"missed\": %llu, "
           "\"children\": %llu, \"failures\": %llu, \"deferred\": %llu, \"pending\": %llu}\n",
           (unsigned long long)spans, (unsigned long long)attempts, (unsigned long long)recorded,
           (unsigned long long)refused, (unsigned long long)missed, (unsigned long long)children,
           (unsigned long long)failures, (unsigned long long)deferred, (unsigned long long)brick_pending());
    fflush(stdout);
    return read(0, &turn, 1) == 1 ? 0 : 4;
}
