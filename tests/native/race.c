/* race.c - writers, a reader, a consumer and its recorder as threads on one mapping.
 *
 *   race MILLISECONDS [observe]
 *
 * ThreadSanitizer does not see accesses across processes or mappings, so all threads share one mapping. Atomic fields
 * of the format are read by atomic loads of 8 bytes; only loads of heads have acquire order. Records of a ring are read
 * by memcpy, so that ThreadSanitizer reports an unordered read. Sums check everything else: every span and every start
 * has one element, and its number of bytes follows from its step. So the sums are wrong if an inconsistent copy is
 * accepted.
 *
 * observe: an additional thread, which is not the consumer, reads the rings. Writers may overwrite records during the
 * copy; this thread then drops the copies. ThreadSanitizer must ignore these accesses.
 *
 * Must be built with -fno-builtin-memcpy: otherwise, gcc's ThreadSanitizer does not see memcpy.
 */
#include "writer/lifecycle.h"
#include "core/drain.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WRITERS = 2, LANES = 3, PATHS = 64, SLOTS = 64, BRICKS = 3, ROUND = 400 };

static uint32_t stop, writers_done, consumer_done;
static uint32_t bricks[BRICKS];
static struct brick_spool spool;
static uint64_t recorded, begun, consumed[2][LANES], folded, salvaged, readings, unsure, observed, observer_refused;

static void wrong(const char *what, const struct brick_reader *r)
{
    fprintf(stderr, "race: %s%s%s\n", what, r != NULL ? ": " : "", r != NULL ? r->reason : "");
    _exit(1);
}

static int stopped(const uint32_t *flag) { return brick_load_acquire32(flag) != 0; }

static uint64_t mixed(uint64_t step) { return (step * UINT64_C(0x9E3779B97F4A7C15)) >> 48; }

/* ---- writers ----------------------------------------------------------- */

static void nest(unsigned depth, uint64_t *step)
{
    uint64_t mine = ++*step;
    brick_begin(bricks[depth], NULL, &mine);
    if (depth + 1 < BRICKS)
        nest(depth + 1, step);
    brick_end(bricks[depth], NULL, 1, mixed(mine));
}

/* Defers work on this writer's stream. Any writer may finalize this work. */
static void defer(uint64_t stream, uint64_t step)
{
    uint64_t id;
    brick_defer(bricks[step % BRICKS], NULL, stream, &step, 1, mixed(step), &id);
    if (step % 8 == 0)
        brick_measured(id, mixed(id));
    if (step % 16 == 0)
        brick_finalize(step % 64 == 0 ? NULL : &stream);
}

static void *writer(void *number)
{
    uint64_t step = (uint64_t)(uintptr_t)number << 40, spans = 0;
    for (uint32_t layer = 0; !stopped(&stop); layer++) {
        for (int i = 0; i < ROUND; i++) {
            brick_layer_begin(layer % 4, NULL);
            nest(0, &step);
            defer((uintptr_t)number, step);
            brick_layer_end(layer % 4, NULL);
            spans += BRICKS;
        }
        brick_thread_exit(); /* the next round may get a lane that another thread has used (O16) */
    }
    __atomic_fetch_add(&begun, spans, __ATOMIC_RELAXED);
    return NULL;
}

/* ---- the reader's side ------------------------------------------------- */

static int is_ring(uint64_t offset)
{
    const struct brick_layout *l = &brick_agent.segment->layout;
    return offset >= l->first && (offset - l->first) % l->stride >= l->span_ring;
}

static int read_mapping(const struct brick_source *source, uint64_t offset, void *to, uint64_t length)
{
    const struct brick_layout *l = &brick_agent.segment->layout;
    const uint8_t *from = (const uint8_t *)source->base + offset;
    if (offset > l->size || length > l->size - offset)
        return 0;
    if (is_ring(offset)) {
        memcpy(to, from, length);
        return 1;
    }
    /* gcc's ThreadSanitizer does not understand the fence of O11, so load the heads with acquire order */
    int heads = offset >= l->process && offset < l->paths;
    for (uint64_t i = 0; i < length; i += 8) {
        const uint64_t *word = (const uint64_t *)(const void *)(from + i);
        uint64_t value = heads ? brick_load_acquire(word) : brick_load_relaxed(word);
        memcpy((uint8_t *)to + i, &value, 8);
    }
    return 1;
}

static void opened(struct brick_reader *r)
{
    memset(r, 0, sizeof *r);
    r->source = (struct brick_source){.read = read_mapping, .fd = -1, .base = brick_agent.segment->base};
    if (!brick_reader_open(r, brick_agent.segment->layout.size))
        wrong("the header was refused", r);
}

static void check_totals(struct brick_reader *r, struct brick_summary *into)
{
    for (uint32_t lane = 0; lane < LANES; lane++) {
        struct brick_doubt doubt = {0, 0};
        memset(into, 0, PATHS * sizeof *into);
        if (!brick_reader_summaries(r, lane, PATHS, into, &doubt))
            wrong("totals: a summary was refused", r);
        readings++;
        if (doubt.odd != 0 || doubt.moving != 0) {
            unsure++; /* the reader says that the copy is inconsistent */
            continue;
        }
        for (uint32_t path = 0; path < PATHS; path++) {
            uint64_t spans = 0;
            for (uint32_t b = 0; b < BRICK_BUCKETS; b++)
                spans += into[path].histogram[b];
            if (into[path].count != into[path].elements || into[path].count != spans)
                wrong("totals: a summary was accepted although it is inconsistent", NULL);
        }
    }
}

static void *reader(void *unused)
{
    struct brick_reader r;
    opened(&r);
    struct brick_summary *into = malloc(PATHS * sizeof *into);
    struct brick_lane lanes[LANES];
    struct brick_consumer consumers[LANES];
    struct brick_name names[BRICK_BLOCK];
    uint64_t paths[PATHS];
    while (into != NULL && !stopped(&writers_done)) {
        check_totals(&r, into);
        if (!brick_reader_lanes(&r, lanes, consumers) || !brick_reader_names(&r, names, BRICKS + 1)
            || !brick_reader_keys(&r, BRICK_PATHS, paths, PATHS, BRICK_BLOCK))
            wrong("lanes, names or paths were refused", &r);
    }
    free(into);
    return unused;
}

static uint64_t check_span(const struct brick_record *slot, uint64_t last)
{
    struct brick_span span;
    memcpy(&span, slot, sizeof span);
    if (span.kind != BRICK_KIND_SPAN || span.slots != 1 || span.elements != 1 || span.bytes != mixed(span.step)
        || span.path >= PATHS || span.sequence <= last)
        wrong("a span was accepted although it is inconsistent or out of order", NULL);
    return span.sequence;
}

static uint64_t check_event(const struct brick_record *slot, uint64_t last)
{
    struct brick_defer start;
    struct brick_measured measured;
    memcpy(&start, slot, sizeof start);
    memcpy(&measured, slot, sizeof measured);
    int whole = start.slots == 1 && start.sequence > last;
    if (start.kind == BRICK_KIND_DEFER)
        whole &= start.elements == 1 && start.bytes == mixed(start.step) && start.path < PATHS && start.id != 0;
    else if (start.kind == BRICK_KIND_MEASURED)
        whole &= measured.elapsed_ns == mixed(measured.id) && measured.id != 0;
    else
        whole &= start.kind == BRICK_KIND_FINALIZE;
    if (!whole)
        wrong("an event was accepted although it is inconsistent or out of order", NULL);
    return start.sequence;
}

/* ---- the consumer ------------------------------------------------------ */

/* Stores the two words of a tail in the order of O12, as two pwrites would. */
void race_consume(uint32_t lane, int events, uint64_t position);
void race_consume(uint32_t lane, int events, uint64_t position)
{
    struct brick_consumer *line = brick_consumer_of(brick_agent.segment, lane);
    struct brick_tail *tail = events ? &line->event : &line->span;
    brick_store_release(&tail->complement, ~position);
    brick_store_release(&tail->position, position);
}

static void publish(struct brick_drain *d)
{
    struct brick_consumer halfway[LANES], whole[LANES];
    uint32_t first, count = brick_drain_tails(d, 1, &first, halfway, whole);
    for (uint32_t n = first; n < first + count; n++) {
        race_consume(n, 0, whole[n].span.position);
        race_consume(n, 1, whole[n].event.position);
    }
}

/* Reads the record at the head if its number shows that it is complete (O9), as a consumer does for a dead worker. */
static void salvage(uint32_t lane, int events, uint64_t head, uint64_t last)
{
    const struct brick_layout *l = &brick_agent.segment->layout;
    struct brick_record *records = (struct brick_record *)(void *)(brick_area_of(brick_agent.segment, lane)
                                                                   + (events ? l->event_ring : l->span_ring));
    const struct brick_record *slot = &records[head & (SLOTS - 1)];
    if (brick_load_acquire(&slot->sequence) <= last)
        return;
    struct brick_record copy;
    memcpy((uint8_t *)&copy + 8, (const uint8_t *)slot + 8, sizeof copy - 8);
    copy.sequence = last + 1;
    if (events)
        check_event(&copy, last);
    else
        check_span(&copy, last);
    salvaged++;
}

/* Checks the result of one pass: each event, and the newest spans. */
static void check_pass(const struct brick_drain *d)
{
    for (size_t i = 0; i < d->events.count; i++)
        check_event(&d->events.records[i], 0);
    for (uint32_t i = 0; i < d->details.kept; i++) {
        struct brick_record span;
        memcpy(&span, &d->details.recent[i], sizeof span);
        check_span(&span, 0);
    }
    if (d->details.rejected != 0 || d->events.rejected != 0)
        wrong("a record was rejected", &d->reader);
}

/* Empties the spool as the writer of a recording does. Sometimes it takes only a part of a piece. */
static void *recorder(void *unused)
{
    uint64_t next[2][LANES] = {{0}};
    for (uint32_t turn = 1;; turn++) {
        int done = stopped(&consumer_done);
        uint64_t end = brick_spool_ready(&spool);
        for (struct brick_chunk *piece; (piece = brick_spool_oldest(&spool, end)) != NULL;) {
            const struct brick_records *of = (const struct brick_records *)(const void *)(piece + 1);
            const struct brick_record *slots = (const struct brick_record *)(const void *)(of + 1);
            uint64_t count = brick_piece_slots(piece), some = count > 1 && turn % 2 ? count / 2 : count;
            if (of->lane >= LANES || of->first < next[of->ring][of->lane])
                wrong("totals: the spool returned a piece twice", NULL);
            next[of->ring][of->lane] = of->first + some;
            for (uint64_t i = 0, last = 0; i < some; i++)
                last = of->ring == BRICK_RING_EVENTS ? check_event(&slots[i], last) : check_span(&slots[i], last);
            brick_spool_took(&spool, piece, some);
            recorded += some;
        }
        if (done)
            return unused;
    }
}

static void *consumer(void *unused)
{
    static struct brick_scratch scratch;
    struct brick_drain d;
    uint32_t *flags = &brick_control_of(brick_agent.segment)->flags;
    memset(&d, 0, sizeof d);
    d.reader.source = (struct brick_source){.read = read_mapping, .fd = -1, .base = brick_agent.segment->base};
    if (!brick_drain_open(&d, brick_agent.segment->layout.size))
        wrong("the header was refused", &d.reader);
    d.track.spool = &spool;
    for (uint32_t turn = 1;; turn++) {
        int done = stopped(&writers_done);
        brick_store_relaxed32(flags, turn % 64 == 0 ? 0 : BRICK_CONTROL_SPANS);
        if (!brick_drain_pass(&d, &scratch))
            wrong("a ring was refused", &d.reader);
        check_pass(&d);
        for (uint32_t lane = 0; lane < d.used; lane++) {
            const struct brick_drained_lane *l = &d.lanes[lane];
            salvage(lane, 0, l->cursor.span, l->span_sequence);
            salvage(lane, 1, l->cursor.event.position, l->cursor.event.sequence);
            consumed[0][lane] = l->cursor.span;
            consumed[1][lane] = l->cursor.event.position;
        }
        publish(&d);
        if (done)
            break;
    }
    folded = d.details.spans;
    brick_drain_free(&d);
    brick_store_release32(&consumer_done, 1);
    return unused;
}

static void *observer(void *unused)
{
    struct brick_reader r;
    struct brick_record copy[SLOTS];
    opened(&r);
    while (!stopped(&writers_done)) {
        for (uint32_t lane = 0; lane < LANES; lane++) {
            uint64_t first, last = 0;
            int64_t count = brick_reader_ring(&r, lane, 0, copy, &first);
            observer_refused += count < 0;
            for (int64_t i = 0; i < count; i++, observed++)
                last = check_span(&copy[i], last);
        }
    }
    return unused;
}

/* ---- after all threads have ended -------------------------------------- */

static void check_ledger(void)
{
    uint64_t all = 0, records = 0, attempts = 0, torn = 0, events = 0;
    for (uint32_t n = 0; n < LANES; n++) {
        const struct brick_lane *l = brick_lane_of(brick_agent.segment, n);
        if (l->begun != l->summarized + l->rejected[0] + l->rejected[1] + l->open + l->abandoned || l->open != 0)
            wrong("the counters of spans do not add up", NULL);
        if (l->span_attempts != l->span_head + l->span_dropped[0] + l->span_dropped[1] || consumed[0][n] != l->span_head)
            wrong("the counters of span details do not add up", NULL);
        uint64_t dropped = 0;
        for (uint32_t kind = 0; kind < BRICK_KINDS; kind++)
            dropped += l->event_dropped[kind];
        if (l->event_attempts != l->event_records + dropped || l->event_head != l->event_records
            || consumed[1][n] != l->event_head)
            wrong("the counters of events do not add up", NULL);
        events += l->event_records;
        all += l->begun;
        torn += l->tails_refused; /* tails that a writer read between the two stores, and refused */
        records += l->span_head;
        attempts += l->span_attempts;
    }
    if (folded != records)
        wrong("the consumer read another number of spans than were recorded", NULL);
    if (recorded + spool.refused_slots != records + events)
        wrong("totals: the slots that left the spool and were refused are not all that were drained", NULL);
    if (all != begun || brick_process_of(brick_agent.segment)->no_lane != 0)
        wrong("the number of begun spans and the number of counted spans differ", NULL);
    printf("%llu spans, %llu of %llu records and %llu events consumed, %llu salvaged, %llu readings (%llu unsure), "
           "%llu tails torn",
           (unsigned long long)all, (unsigned long long)records, (unsigned long long)attempts,
           (unsigned long long)events, (unsigned long long)salvaged, (unsigned long long)readings,
           (unsigned long long)unsure, (unsigned long long)torn);
    printf(", %llu slots through the spool (%llu refused)", (unsigned long long)recorded,
           (unsigned long long)spool.refused_slots);
    if (observed != 0)
        printf(", %llu records observed (%llu rings refused)", (unsigned long long)observed,
               (unsigned long long)observer_refused);
    printf("\n");
}

static void sleep_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&t, &t) != 0 && errno == EINTR)
        continue;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    static const char *const names[BRICKS] = {"block", "attention", "softmax"};
    const struct brick_config config = {.service = "race", .lanes = LANES, .paths = PATHS, .names = BRICK_BLOCK,
                                        .sites = 64, .span_slots = SLOTS, .event_slots = SLOTS};
    if (brick_init(&config) != BRICK_ON)
        return 2;
    for (int i = 0; i < BRICKS; i++)
        bricks[i] = brick_name(names[i], strlen(names[i]), NULL);
    /* The spool has more room than one ring, but less than two rings. */
    if (!brick_spool_begin(&spool, 100 * BRICK_BLOCK, BRICK_LEFT_ALL))
        return 2;
    pthread_t threads[WRITERS + 4];
    void *(*const others[])(void *) = {consumer, recorder, reader, observer};
    int count = argc > 2 ? 4 : 3;
    for (int i = 0; i < WRITERS; i++)
        if (pthread_create(&threads[i], NULL, writer, (void *)(uintptr_t)(i + 1)) != 0)
            return 2;
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[WRITERS + i], NULL, others[i], NULL) != 0)
            return 2;
    sleep_ms(atol(argv[1]));
    brick_store_release32(&stop, 1);
    for (int i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    brick_store_release32(&writers_done, 1);
    for (int i = 0; i < count; i++)
        pthread_join(threads[WRITERS + i], NULL);
    check_ledger();
    brick_finalize(NULL);
    if (brick_pending() != 0)
        wrong("deferred work is pending after everything was finalized", NULL);
    return 0;
}
