/* writer/weights.c - reads and records a model's parameters, in slices at the ends of steps.
 *
 * Owns which tensor is next, and how long a slice may take. Must not know how the host holds a tensor, or what its name
 * means. Invariants: a tensor is read only between hold and release; a tensor's fingerprint is kept until there is room
 * for its record; a slice allocates nothing; only one thread at a time runs a slice, and other threads skip their turn.
 */
#include "checksum.h"

#include "brick_hash.h"
#include "brick_weights.h"

#include <string.h>
#include <unistd.h>

#define SLICE_NS 200000 /* the longest slice */
#define LEAST_NS 50000  /* the shortest slice: a shorter one would spend most of its time on holding tensors */
#define AT_ONCE 8192    /* bytes between two clock reads */
#define MILLION 1000000
#ifndef BRICK_RESCAN_LEAST_NS
#define BRICK_RESCAN_LEAST_NS (UINT64_C(300) * 1000000000)
#endif
#define RESCAN_TIMES 200 /* so scans take at most half a percent of the time */
#define DEBT_NS (INT64_C(3600) * 1000000000)

/* ---- the budget ----------------------------------------------------------- */

static uint64_t share_of(const struct brick_weights *w)
{
    return w->share_ppm == 0 ? 5000 : w->share_ppm < MILLION ? w->share_ppm : MILLION;
}

/* Elapsed time earns credit (ns that slices may use), up to one slice. */
uint64_t brick_weights_allowed(struct brick_weights *w, uint64_t now_ns)
{
    const int64_t most = (int64_t)SLICE_NS * MILLION;
    const uint64_t share = share_of(w), gone = now_ns > w->seen_ns ? now_ns - w->seen_ns : 0;
    const uint64_t until_most = (uint64_t)(most - w->credit) / share + 1;
    w->credit = gone < until_most ? w->credit + (int64_t)(gone * share) : most;
    w->credit = w->credit < most ? w->credit : most;
    w->seen_ns = now_ns;
    const int64_t allowed = w->credit / MILLION;
    return allowed >= LEAST_NS ? (uint64_t)allowed : 0;
}

void brick_weights_took(struct brick_weights *w, uint64_t ns)
{
    w->credit -= (int64_t)(ns < (uint64_t)DEBT_NS ? ns : (uint64_t)DEBT_NS) * MILLION;
}

uint64_t brick_weights_interval(const struct brick_weights *w)
{
    if (w->rescan_ns != BRICK_RESCAN_AUTO)
        return w->rescan_ns;
    const uint64_t rest = w->lasted_ns < UINT64_MAX / RESCAN_TIMES ? w->lasted_ns * RESCAN_TIMES : UINT64_MAX;
    return rest > BRICK_RESCAN_LEAST_NS ? rest : BRICK_RESCAN_LEAST_NS;
}

static uint64_t now_ns(void) { return brick_clock_ns(CLOCK_MONOTONIC); }

/* ---- one tensor ----------------------------------------------------------- */

static struct brick_process *process(void) { return brick_process_of(brick_segment_now()); }

static void publish_count(const struct brick_weights *w)
{
    brick_store_relaxed(&process()->reserved[BRICK_PROCESS_WEIGHTS], w->count - w->gone);
}

/* Publishes how often the weights are read again, and how many of them are not. */
static void publish_plan(const struct brick_weights *w)
{
    uint64_t *words = brick_lane_of(brick_segment_now(), 0)->reserved3, once = 0;
    for (uint64_t n = 0; n < w->count; n++)
        once += w->rescan_ns == 0 || w->each[n].seldom != 0;
    brick_store_relaxed(&words[BRICK_LANE_WEIGHTS_EVERY], w->rescan_ns != BRICK_RESCAN_AUTO ? w->rescan_ns : 0);
    brick_store_relaxed(&words[BRICK_LANE_WEIGHTS_ONCE], once);
    publish_count(w);
}

static void read_over(struct brick_weights *w, uint32_t gone)
{
    struct brick_weight *one = &w->each[w->read];
    if (gone != one->gone) {
        w->gone += gone - (uint64_t)one->gone;
        one->gone = gone;
        publish_count(w);
    }
    w->read++;
    w->begun = w->moved = 0;
}

static void refuse(struct brick_weights *w)
{
    w->each[w->read].taken.dtype = 0;
    brick_fetch_add(&process()->reserved[BRICK_PROCESS_TENSORS_REFUSED], 1);
    read_over(w, 0);
}

static void add(struct brick_weights *w, const struct brick_tensor *tensor, uint64_t until)
{
    const uint64_t bytes = until == UINT64_MAX ? UINT64_MAX : AT_ONCE;
    enum brick_pieces_state now;
    do
        now = brick_pieces_add(&w->pieces, tensor, bytes);
    while (now == BRICK_PIECES_MORE && (until == UINT64_MAX || now_ns() < until));
    if (now == BRICK_PIECES_DONE) {
        struct brick_weight *one = &w->each[w->read];
        memset(&one->taken, 0, sizeof one->taken);
        brick_pieces_end(&w->pieces, &one->taken.fingerprint);
        brick_taken_of(&one->taken, tensor);
        one->ticks = brick_ticks(brick_agent.clock);
        read_over(w, 0);
    } else if (now == BRICK_PIECES_MOVED) {
        w->begun = 0; /* read the tensor again, from the beginning */
        if (w->moved++)
            refuse(w);
    }
}

/* Continues to read the tensor. Returns 0 if that is not possible now. */
static int read_on(struct brick_weights *w, uint64_t until)
{
    struct brick_tensor tensor;
    struct brick_fingerprint_key key;
    if (!w->begun && !brick_key_published(process(), &key)) /* try again later: the key may then exist */
        return 0;
    const uint64_t number = w->read;
    struct brick_weight *one = &w->each[number];
    if (one->seldom && !w->seldom) {
        read_over(w, one->gone);
        return 1;
    }
    const uint32_t was_seldom = one->seldom;
    const enum brick_held held = w->hold(w->host, number, &tensor);
    if (one->seldom && !was_seldom && w->rescan_ns != 0)
        brick_fetch_add(&brick_lane_of(brick_segment_now(), 0)->reserved3[BRICK_LANE_WEIGHTS_ONCE], 1);
    if (held == BRICK_NOT_NOW)
        return 0;
    if (held == BRICK_SELDOM) {
        read_over(w, one->gone);
        return 1;
    }
    if (held == BRICK_SAME) {
        one->ticks = brick_ticks(brick_agent.clock);
        read_over(w, one->gone);
        return 1;
    }
    if (held == BRICK_GONE) {
        one->taken.dtype = 0;
        read_over(w, 1);
        return 1;
    }
    if (held == BRICK_HELD && !w->begun)
        w->begun = brick_pieces_begin(&w->pieces, &tensor, key) == NULL;
    if (held == BRICK_HELD && w->begun)
        add(w, &tensor, until);
    else
        refuse(w);
    if (held == BRICK_HELD && w->release != NULL)
        w->release(w->host, number);
    return 1;
}

/* ---- its record ----------------------------------------------------------- */

static uint64_t site_of(struct brick_thread *t, const struct brick_weight *one)
{
    if (one->name > UINT16_MAX)
        return 0;
    const uint64_t key = brick_weight_entry(one->name, one->layer);
    const uint64_t value = brick_entry_find(&brick_agent.tables, key);
    return value != 0 ? value : brick_site_intern(&brick_agent.tables, t->segment, key);
}

static void put(struct brick_thread *t, struct brick_checked *r, const struct brick_weights *w,
                const struct brick_weight *one, uint64_t site)
{
    brick_put_output(t, &one->taken);
    *r = (struct brick_checked){
        .sequence = r->sequence, /* the old sequence: the new one is stored last (O9) */
        .site = (uint32_t)(site & 0xFFFF),
        .ticks = one->ticks,
        .step = w->step,
        .position = one->position,
        .valid = one->taken.valid,
        .flags = (uint8_t)(BRICK_CHECKED_WEIGHT | (one->has_position ? BRICK_CHECKED_POSITION : 0)
                           | (w->generation != NULL ? BRICK_CHECKED_STEP : 0)),
    };
}

/* Records the next tensor that was read. Returns 0 if there is no room or no lane now. */
static int record_next(struct brick_weights *w)
{
    const struct brick_weight *one = &w->each[w->recorded];
    const uint16_t slots = BRICK_CHECKED_SLOTS(0);
    unsigned outcome = BRICK_DONE;
    if (one->taken.dtype == 0) {
        w->recorded++;
        return 1;
    }
    struct brick_thread *t = brick_enter(NULL, &outcome, ARRIVES_QUESTION);
    if (t == NULL)
        return 0;
    const uint64_t site = site_of(t, one), kept = t->event_ring.slots / 8 * 3 + slots - 1u;
    struct brick_checked *r = site != 0 ? brick_event_slot(t, kept) : NULL;
    const int never = site == 0 || t->event_ring.memory == BRICK_MEMORY_REFUSED || kept >= t->event_ring.slots;
    if (site == 0)
        brick_fetch_add(&brick_process_of(t->segment)->reserved[BRICK_PROCESS_SITES_REFUSED], 1);
    if (r != NULL || never)
        brick_event_attempt(t);
    if (r != NULL) {
        put(t, r, w, one, site);
        brick_event_publish(t, r, BRICK_KIND_CHECKED, slots);
    } else if (never) {
        brick_event_dropped(t, BRICK_KIND_CHECKED);
    }
    brick_event_over(t, brick_ticks(brick_agent.clock));
    w->recorded += r != NULL || never;
    return r != NULL || never;
}

/* ---- scans ---------------------------------------------------------------- */

static uint64_t asked_now(void)
{
    const struct brick_segment *s = brick_segment_now();
    return brick_load_relaxed(&brick_control_of(s)->reserved[BRICK_CONTROL_WEIGHTS]); /* O15 */
}

/* If the process has a new segment, arranges that all readings are recorded there again. */
static void follow(struct brick_weights *w)
{
    const struct brick_segment *s = brick_segment_now();
    if (s == w->segment)
        return;
    w->segment = s;
    w->recorded = 0;
    w->asked = asked_now();
    publish_plan(w);
}

static int has_more(const struct brick_weights *w) { return w->recorded < w->count; }

static void begin_scan(struct brick_weights *w, uint64_t now, int seldom)
{
    w->seldom = (uint32_t)seldom;
    w->looking = 0;
    w->read = w->recorded = 0;
    w->began_ns = now;
    w->spent_ns = 0;
    w->begun = w->moved = 0;
    w->asked = asked_now();
}

static void slice(struct brick_weights *w, uint64_t until)
{
    int room = 1, readable = 1;
    while (!__atomic_load_n(&w->stopped, __ATOMIC_RELAXED)) {
        if (room && w->recorded < w->read)
            room = record_next(w);
        else if (readable && w->read < w->count)
            readable = read_on(w, until);
        else
            break;
        if (!has_more(w))
            brick_fetch_add(&process()->reserved[BRICK_PROCESS_SCANS], 1);
        if (until != UINT64_MAX && now_ns() >= until)
            break;
    }
}

static void spend(struct brick_weights *w, uint64_t ns)
{
    w->spent_ns += ns;
    if (!has_more(w))
        w->lasted_ns = w->spent_ns;
}

/* Claims the slice for this process; only one thread can. A forked child may take over a claim of its parent. */
static int claim(struct brick_weights *w)
{
    const uint32_t self = (uint32_t)getpid();
    uint32_t other = brick_load_relaxed32(&w->busy);
    if (other == self || !brick_claim32(&w->busy, other, self))
        return 0;
    if (other != 0)
        w->begun = w->moved = 0; /* the claim is the parent's: the fork interrupted the reading */
    return 1;
}

static int is_recording(void)
{
    if (brick_state() != BRICK_ON)
        return 0;
    const struct brick_segment *s = brick_segment_now();
    return (brick_load_relaxed32(&brick_control_of(s)->flags) & BRICK_CONTROL_OFF) == 0; /* O15 */
}

static uint64_t generation_of(const struct brick_weights *w)
{
    return w->generation != NULL ? *w->generation : brick_load_relaxed(&w->loads);
}

/* Sets the generation of later checksums. If the host does not give generations, the first load sets none. */
static void publish_generation(const struct brick_weights *w)
{
    const uint64_t generation = generation_of(w), digest = brick_splitmix64(generation);
    const int first = w->generation == NULL && generation == 1;
    brick_store_relaxed(&brick_agent.generation, first ? 0 : digest != 0 ? digest : 1);
}

static void begin_load(struct brick_weights *w, uint64_t now)
{
    brick_store_relaxed32(&w->loading, 0);
    w->step = generation_of(w);
    w->segment = NULL;
    follow(w);
    begin_scan(w, now, 1);
}

/* Schedules the next turn for the time when there is credit for a slice. */
static void rest(struct brick_weights *w, uint64_t now)
{
    const int64_t least = (int64_t)LEAST_NS * MILLION, missing = least - w->credit;
    brick_store_relaxed(&w->next_ns, now + (uint64_t)(missing > 0 ? missing : least) / share_of(w));
    brick_store_release32(&w->busy, 0);
}

void brick_weights_load(struct brick_weights *w)
{
    static uint64_t loads;
    if (!brick_agent_ready(0))
        return;
    brick_store_relaxed(&w->loads, brick_fetch_add(&loads, 1) + 1);
    publish_generation(w);
    brick_store_release32(&w->loading, 1);
    if (!is_recording() || !claim(w)) /* the next turn begins the scan instead */
        return;
    const uint64_t now = now_ns();
    begin_load(w, now);
    slice(w, UINT64_MAX);
    w->seen_ns = now_ns();
    spend(w, w->seen_ns - now);
    w->credit = 0;
    rest(w, w->seen_ns);
}

void brick_weights_go_on(struct brick_weights *w, const struct brick_weights *old)
{
    w->segment = old->segment;
    w->step = old->step;
    w->asked = old->asked;
    w->loads = old->loads;
    w->began_ns = old->began_ns;
    w->seen_ns = old->seen_ns;
    w->credit = old->credit;
    w->lasted_ns = old->lasted_ns;
    w->seldom = old->seldom;
    w->spent_ns = old->spent_ns + now_ns() - w->seen_ns; /* the time of `old` includes this turn, which began at seen_ns */
    brick_weights_took(w, w->spent_ns - old->spent_ns);
    publish_plan(w);
}

void brick_weights_turn(struct brick_weights *w)
{
    const uint64_t ticks = brick_ticks(brick_agent.clock);
    const int loading = brick_load_acquire32(&w->loading) != 0;
    if (ticks < brick_load_relaxed(&w->next_ticks) && !loading)
        return;
    const uint64_t now = now_ns(), next = brick_load_relaxed(&w->next_ns);
    /* Reading ticks takes a third of the time of now_ns; at least this many ticks pass until `next`. */
    if (now < next && !loading) {
        brick_store_relaxed(&w->next_ticks, ticks + ((next - now) >> (brick_agent.clock == BRICK_CLOCK_CNTVCT ? 6 : 0)));
        return;
    }
    if (w->count == 0 || !is_recording() || !claim(w))
        return;
    const uint64_t allowed = brick_weights_allowed(w, now);
    if (loading)
        begin_load(w, now);
    if (allowed > 0) {
        follow(w);
        const uint64_t interval = brick_weights_interval(w);
        const int asked = asked_now() != w->asked;
        if (!has_more(w) && (asked || (interval != 0 && now - w->began_ns >= interval))) {
            begin_scan(w, now, asked);
            w->looking = w->look != NULL;
        }
        if (has_more(w)) {
            w->looking = w->looking && !w->look(w->host);
            if (!w->looking)
                slice(w, now + allowed);
            const uint64_t took = now_ns() - now;
            spend(w, took);
            brick_weights_took(w, took);
        }
    }
    rest(w, now);
}
