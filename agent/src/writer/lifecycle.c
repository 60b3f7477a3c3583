/* writer/lifecycle.c - the states of the agent: configured, opened, forked, lost, closed. */
#include "config.h"
#include "lifecycle.h"
#include "pending.h"
#include "run_mark.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef BRICK_TEST_POINTS
void (*brick_test_point)(const char *name);
#endif

/* The gate while there is no page that a fork wipes (see make_gate): recording is then off. */
static uint32_t no_gate[2] = {BRICK_FAILED, 0};
struct brick_agent brick_agent = {.gate = no_gate};

static char problem[256];
static uint32_t warned;
static uint32_t at_exit_set;

/* If a signal handler interrupts a record and forks, the child ends that record in a private copy of the segment. (This
 * function does not run if the child was made by a direct system call.) */
static void after_fork(void)
{
    const struct brick_segment *parent = brick_segment_now();
    if (parent != NULL && brick_thread_known() && brick_segment_ours(parent))
        (void)mmap(parent->base, parent->layout.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, parent->fd, 0);
}

/* Runs before main or at dlopen, so that the page exists before any fork. The function also runs before other
 * constructors, because these may record. */
__attribute__((constructor(101))) static void make_gate(void)
{
    void *page = brick_private_memory(BRICK_PAGE);
    if (page == NULL)
        return;
    if (madvise(page, BRICK_PAGE, MADV_WIPEONFORK) == 0)
        brick_agent.gate = (uint32_t *)page;
    else
        munmap(page, BRICK_PAGE);
    pthread_atfork(NULL, NULL, after_fork);
}

/* Prints one line, once for the process and its forked children. Later failures only change brick_problem(). */
static void complain(const char *what, int error)
{
    if (error != 0)
        snprintf(problem, sizeof problem, "%s: %s", what, strerror(error));
    else
        snprintf(problem, sizeof problem, "%s", what);
    if (__atomic_exchange_n(&warned, 1, __ATOMIC_RELAXED) != 0)
        return;
    char line[320];
    int length = snprintf(line, sizeof line, "brickd: this process is not recorded: %s\n", problem);
    if (length > 0 && write(STDERR_FILENO, line, (size_t)length) < 0)
        return;
}

/* ---- open -------------------------------------------------------------- */

static struct brick_segment *segment_open(const struct brick_plan *plan)
{
    /* Each struct brick_segment has a page of its own, which stays mapped after the segment was replaced: a thread in a
     * slow path may still read it. */
    struct brick_segment *s = (struct brick_segment *)brick_private_memory(BRICK_PAGE);
    if (s == NULL) {
        complain("no memory", errno);
        return NULL;
    }
    brick_segment_reap(plan->prefix);
    const char *wrong = brick_segment_create(s, plan);
    if (wrong == NULL)
        return s;
    complain(wrong, errno);
    munmap(s, BRICK_PAGE);
    return NULL;
}

static void segment_discard(struct brick_segment *s)
{
    brick_segment_remove(s);
    brick_segment_close(s);
    munmap(s->base, s->layout.size);
    munmap(s, BRICK_PAGE);
}

static enum brick_state open_first(const struct brick_config *config)
{
    static const struct brick_config nothing;
    struct brick_agent *a = &brick_agent;
    const char *wrong = brick_plan_make(&a->plan, config != NULL ? config : &nothing);
    if (wrong != NULL) {
        complain(wrong, 0);
        return BRICK_FAILED;
    }
    struct brick_segment *s = segment_open(&a->plan);
    if (s == NULL)
        return BRICK_FAILED;
    a->clock = a->plan.header.clock;
    if (!brick_tables_make(&a->tables, s->header) || !brick_threads_make(s->header->lanes)) {
        complain("no memory", errno);
        segment_discard(s);
        return BRICK_FAILED;
    }
    brick_tables_begin(&a->tables, s);
    a->segment = s;
    a->gate[1] = 1;
    brick_segment_publish(s);
    if (!at_exit_set && atexit(brick_shutdown) == 0)
        at_exit_set = 1;
    return BRICK_ON;
}

/* In a forked child: keeps only the parent's ids (of names, paths, sites and deferred work). config: may be NULL. */
static enum brick_state open_child(const struct brick_config *config)
{
    struct brick_agent *a = &brick_agent;
    if (config != NULL)
        brick_plan_name_child(&a->plan, config);
    struct brick_segment *parent = a->segment;
    uint32_t lanes = parent->header->lanes;
    struct brick_segment *s = segment_open(&a->plan);
    if (s == NULL)
        return BRICK_FAILED;
    a->missed = 0;
    a->reopening = 0;
    brick_threads_retire(lanes);
    brick_tables_forked(&a->tables);
    brick_pending_forget();
    if (!brick_tables_copy(&a->tables, s, parent) || !brick_threads_make(lanes)) {
        complain("no memory", errno);
        segment_discard(s);
        return BRICK_FAILED;
    }
    /* Closing the descriptor does not drop the parent's lock. The mapping stays for the reason given at after_fork. */
    brick_segment_close(parent);
    a->segment = s;
    a->gate[1] = 1;
    brick_segment_publish(s);
    return BRICK_ON;
}

static int gate_move(uint32_t from, uint32_t to)
{
    return brick_agent.gate != no_gate && brick_claim32(brick_agent.gate, from, to);
}

enum brick_state brick_init(const struct brick_config *config)
{
    struct brick_agent *a = &brick_agent;
    if (a->gate == no_gate)
        complain("the kernel cannot wipe a page on fork, expected Linux 4.14 or later", 0);
    if (a->segment == NULL && brick_config_is_off())
        a->wanted_off = 1;
    if (a->closed || a->wanted_off) {
        gate_move(BRICK_NEW, BRICK_OFF);
        return brick_state();
    }
    if (gate_move(BRICK_NEW, BRICK_OPENING)) {
        int error = errno; /* preserve the host's errno */
        enum brick_state state = a->segment != NULL ? open_child(config) : open_first(config);
        if (state == BRICK_ON)
            brick_run_mark();
        errno = error;
        brick_store_release32(a->gate, state);
    }
    return brick_state();
}

int brick_segment_is_of(const char *service, const char *worker)
{
    return brick_plan_is_of(&brick_agent.plan, service, worker);
}

int brick_agent_ready(unsigned spans)
{
    enum brick_state state = brick_state();
    if (state == BRICK_NEW)
        state = brick_init(NULL);
    if (state == BRICK_OPENING)
        brick_fetch_add(&brick_agent.missed, spans);
    return state == BRICK_ON;
}

/* Replaces a lost segment. Other threads record into the old mapping until they see that brick_threads_retire has
 * marked them. The second brick_tables_copy copies the names and paths that they added until then. */
void brick_agent_reopen(struct brick_segment *lost)
{
    struct brick_agent *a = &brick_agent;
    if (!brick_claim32(&a->reopening, 0, 1))
        return;
    int error = errno;
    /* Another thread may have replaced the segment already. */
    struct brick_segment *s = brick_segment_now() == lost ? segment_open(&a->plan) : NULL;
    if (s != NULL && !brick_tables_copy(&a->tables, s, lost)) {
        segment_discard(s);
        s = NULL;
    }
    if (s != NULL) {
        const struct brick_process *before = brick_process_of(lost);
        struct brick_process *now = brick_process_of(s);
        now->names_refused = before->names_refused;
        now->names_cut = before->names_cut;
        now->no_lane = before->no_lane;
        now->lanes_refused = before->lanes_refused;
        now->blocks_refused = before->blocks_refused;
        now->reserved[BRICK_PROCESS_SITES_REFUSED] = before->reserved[BRICK_PROCESS_SITES_REFUSED];
        now->reserved[BRICK_PROCESS_TENSORS_REFUSED] = before->reserved[BRICK_PROCESS_TENSORS_REFUSED];
        now->reserved[BRICK_PROCESS_KEY] = before->reserved[BRICK_PROCESS_KEY];
        memcpy(&now->reserved[BRICK_PROCESS_TOOK], lost->header->uuid, sizeof now->reserved[0]);
        __atomic_store_n(&a->segment, s, __ATOMIC_RELEASE);
        brick_fence_full(); /* O17, O18: between the store of the segment, and the marks and the second copy */
        brick_segment_publish(s);
        brick_threads_retire(s->header->lanes);
        brick_tables_copy(&a->tables, s, lost);
        brick_threads_move();
        brick_segment_remove(lost); /* if a consumer requested the new segment, the old file still exists */
        brick_segment_close(lost);
    }
    errno = error;
    brick_store_release32(&a->reopening, 0);
}

/* ---- off and closed ---------------------------------------------------- */

enum brick_state brick_state(void) { return (enum brick_state)brick_load_acquire32(brick_agent.gate); }
const char *brick_problem(void) { return problem; }
const char *brick_segment_name(void) { return brick_agent_owns() ? brick_segment_now()->name : ""; }
int brick_segment_fd(void) { return brick_agent_owns() ? brick_segment_now()->fd : -1; }

void brick_enable(int on)
{
    struct brick_agent *a = &brick_agent;
    if (a->closed)
        return;
    a->wanted_off = !on;
    if (!on)
        gate_move(BRICK_ON, BRICK_OFF);
    else
        gate_move(BRICK_OFF, brick_agent_owns() ? BRICK_ON : BRICK_NEW);
}

void brick_shutdown(void)
{
    struct brick_agent *a = &brick_agent;
    a->closed = 1;
    if (!gate_move(BRICK_ON, BRICK_OFF))
        gate_move(BRICK_NEW, BRICK_OFF);
    if (!brick_agent_owns()) /* in a forked child without records, the open segment belongs to the parent */
        return;
    /* The mapping stays: another thread may be in the middle of a record. */
    struct brick_segment *s = brick_segment_now();
    brick_store_release(&brick_process_of(s)->reserved[BRICK_PROCESS_ENDED], 1);
    BRICK_POINT("ended");
    if (!brick_segment_consumed(s) && brick_segment_account(s, a->plan.prefix))
        brick_segment_remove(s);
    brick_segment_close(s);
}

/* ---- names ------------------------------------------------------------- */

static uint32_t name_within(uint32_t share, const char *text, size_t length, const char *category)
{
    struct brick_agent *a = &brick_agent;
    if (!brick_agent_ready(0) && (brick_state() != BRICK_OFF || !brick_agent_owns()))
        return BRICK_UNNAMED;
    struct brick_segment *s = brick_segment_now();
    if (length == 0) {
        brick_fetch_add(&brick_process_of(s)->names_refused, 1);
        return BRICK_OTHER;
    }
    const uint64_t room = s->header->names / share;
    uint32_t number = brick_name_intern(&a->tables, s, text, length, room);
    if (category != NULL && number != BRICK_OTHER) {
        uint32_t kind = brick_name_intern(&a->tables, s, category, strlen(category), room);
        if (kind != BRICK_OTHER) /* the first declared category is final */
            brick_claim32(&brick_names_of(s)[number].category, 0, kind);
    }
    /* O17: if another thread opens the next segment meanwhile, at least one of the two threads sees the other's
     * change. */
    for (struct brick_segment *now;; s = now) {
        brick_fence_full();
        now = brick_segment_now();
        if (BRICK_LIKELY(now == s))
            return number;
        BRICK_POINT("next");
        brick_tables_copy(&a->tables, now, s);
    }
}

uint32_t brick_name(const char *text, size_t length, const char *category) { return name_within(1, text, length, category); }

uint32_t brick_name_for_mark(const char *text, size_t length, const char *category)
{
    return name_within(2, text, length, category);
}

int brick_room_for_marks(void)
{
    const struct brick_segment *s = brick_segment_now();
    return s == NULL || brick_load_relaxed(&brick_agent.tables.next_name) < s->header->names / 2;
}

uint32_t brick_names_room(void)
{
    const struct brick_segment *s = brick_segment_now();
    return s != NULL ? s->header->names : BRICK_NUMBERS_MAX;
}
