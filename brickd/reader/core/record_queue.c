#include "record_queue.h"

#include "record_walk.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

/* The consumer is woken when a quarter of the room is used. The rest must be enough until the consumer runs. */
#define WAKE_PART 4

int brick_spool_begin(struct brick_spool *s, uint64_t bytes, enum brick_left left)
{
    memset(s, 0, sizeof *s);
    s->size = brick_blocks_of(bytes);
    s->left = left;
    if (!brick_redactor_begin(&s->redactor, left))
        return 0;
    s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->wake < 0)
        return 0;
    s->memory = mmap(NULL, s->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (s->memory != MAP_FAILED)
        return 1;
    int error = errno;
    close(s->wake);
    errno = error;
    return 0;
}

void brick_spool_free(struct brick_spool *s)
{
    brick_redactor_end(&s->redactor);
    munmap(s->memory, s->size);
    close(s->wake);
    s->wake = -1;
}

void brick_spool_wake(const struct brick_spool *s)
{
    const uint64_t one = 1;
    ssize_t put = write(s->wake, &one, sizeof one); /* this fails only after 2^64 wakes, or if the spool is freed */
    (void)put;
}

void brick_spool_wait(const struct brick_spool *s, int milliseconds)
{
    struct pollfd fd = {.fd = s->wake, .events = POLLIN};
    uint64_t times;
    if (poll(&fd, 1, milliseconds) > 0) {
        ssize_t got = read(s->wake, &times, sizeof times);
        (void)got;
    }
}

/* ---- the producer ------------------------------------------------------ */

static uint8_t *at(const struct brick_spool *s, uint64_t position) { return s->memory + position % s->size; }

/* Returns the number of bytes from this position to the end of the memory. */
static uint64_t stretch(const struct brick_spool *s, uint64_t position) { return s->size - position % s->size; }

int brick_spool_enter(struct brick_spool *s) { return brick_claim32(&s->producing, 0, 1); }

void brick_spool_leave(struct brick_spool *s) { brick_store_release32(&s->producing, 0); }

static uint64_t used(const struct brick_spool *s) { return s->head - brick_load_acquire(&s->tail); }

int brick_spool_reaches(const struct brick_spool *s, uint64_t bytes)
{
    return bytes <= stretch(s, s->head) && bytes <= s->size - used(s);
}

uint8_t *brick_spool_place(struct brick_spool *s, uint64_t bytes)
{
    if (brick_spool_reaches(s, bytes))
        return at(s, s->head);
    uint64_t rest = stretch(s, s->head);
    if (rest >= bytes || bytes > s->size || rest + bytes > s->size - used(s))
        return NULL;
    *(struct brick_chunk *)(void *)at(s, s->head) = (struct brick_chunk){.length = rest};
    brick_spool_publish(s, rest);
    return at(s, s->head);
}

void brick_spool_publish(struct brick_spool *s, uint64_t bytes)
{
    uint64_t before = used(s), enough = s->size / WAKE_PART;
    brick_store_release(&s->head, s->head + bytes);
    if (before < enough && before + bytes >= enough)
        brick_spool_wake(s);
}

void brick_spool_refuse(struct brick_spool *s, uint64_t slots) { brick_fetch_add(&s->refused_slots, slots); }

/* ---- the consumer ------------------------------------------------------ */

uint64_t brick_spool_ready(const struct brick_spool *s) { return brick_load_acquire(&s->head); }

struct brick_chunk *brick_spool_look(const struct brick_spool *s, uint64_t *position, uint64_t end)
{
    while (*position < end) {
        struct brick_chunk *piece = (struct brick_chunk *)(void *)at(s, *position);
        *position += piece->length + (piece->kind != 0 ? sizeof *piece : 0);
        if (piece->kind != 0)
            return piece;
    }
    return NULL;
}

static void free_up_to(struct brick_spool *s, uint64_t position) { brick_store_release(&s->tail, position); }

/* Redacts a piece, unless it is already redacted: then `reserved0` of its head is 1, also after the piece was split.
 * The head that is written to a file is a new one, in which this field is 0. */
static void redact(struct brick_spool *s, struct brick_chunk *piece)
{
    struct brick_records *of = (struct brick_records *)(void *)(piece + 1);
    if (piece->reserved0 == 0)
        brick_redact(&s->redactor, of, of + 1, brick_piece_slots(piece));
    piece->reserved0 = 1;
}

struct brick_chunk *brick_spool_oldest(struct brick_spool *s, uint64_t end)
{
    uint64_t behind = s->tail;
    struct brick_chunk *piece = brick_spool_look(s, &behind, end);
    free_up_to(s, piece != NULL ? behind - sizeof *piece - piece->length : behind);
    if (piece != NULL && s->left != BRICK_LEFT_ALL)
        redact(s, piece);
    return piece;
}

void brick_spool_took(struct brick_spool *s, struct brick_chunk *piece, uint64_t slots)
{
    uint64_t taken = slots * sizeof(struct brick_record);
    if (slots == brick_piece_slots(piece)) {
        free_up_to(s, s->tail + sizeof *piece + piece->length);
        return;
    }
    /* Move the head of the piece to the place in front of the first slot that is not written yet. */
    struct {
        struct brick_chunk head;
        struct brick_records records;
    } rest;
    memcpy(&rest, piece, sizeof rest);
    const struct brick_record *from = (const struct brick_record *)(const void *)((const uint8_t *)piece + sizeof rest);
    uint64_t next = brick_walk(from, rest.records.inside, slots), all = brick_piece_slots(piece);
    rest.head.length -= taken;
    rest.records.first += slots;
    rest.records.inside = (uint32_t)(next != UINT64_MAX ? next - slots : all - slots);
    memcpy((uint8_t *)piece + taken, &rest, sizeof rest);
    free_up_to(s, s->tail + taken);
}

void brick_spool_clear(struct brick_spool *s)
{
    uint64_t end = brick_spool_ready(s);
    for (struct brick_chunk *piece; (piece = brick_spool_oldest(s, end)) != NULL;) {
        brick_spool_refuse(s, brick_piece_slots(piece));
        brick_spool_took(s, piece, brick_piece_slots(piece));
    }
}

uint64_t brick_spool_charge(struct brick_spool *s)
{
    uint64_t refused = brick_load_relaxed(&s->refused_slots), since = refused - s->charged;
    s->charged = refused;
    return since;
}
