/* A library that a worker loads: counts the instructions that its thread executes between two calls, with the trap flag
 * of the processor. */
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

#define TRAP_FLAG 0x100

static volatile uint64_t steps;
static volatile sig_atomic_t counting;

static void trapped(int number, siginfo_t *info, void *context)
{
    steps++;
    if (!counting)
        ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
}

__attribute__((visibility("default"))) void steps_begin(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = trapped;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGTRAP, &action, NULL);
    steps = 0;
    counting = 1;
    __asm__ volatile("lea -128(%%rsp), %%rsp; pushfq; orq $0x100, (%%rsp); popfq; lea 128(%%rsp), %%rsp" ::: "memory", "cc");
}

__attribute__((visibility("default"))) uint64_t steps_end(void)
{
    counting = 0;
    __asm__ volatile("nop" ::: "memory");
    return steps;
}
