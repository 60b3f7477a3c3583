/* writer/step_text.c - the texts by which the host names steps, and their records in the event ring.
 *
 * A span has only the key of its step. So a table of the process has the texts given last, and a checksum of a step
 * looks up the text of the step. All threads write to the table without a lock. A look-up accepts an entry only if the
 * FNV-1a of its text is the key, so it ignores an entry that is torn or overwritten.
 *
 * A text is a convenience and must never displace another record, so texts leave half of the ring free, as rows do.
 * This code makes no system call and allocates nothing.
 */
#include "checksum.h"

#include "brick_hash.h"

#include <string.h>

#define REMEMBERED 256u /* 16 KiB; a power of two */
#define WORDS (BRICK_STEP_TEXT_MAX / sizeof(uint64_t))

static struct remembered {
    uint64_t step, length, words[WORDS]; /* relaxed (see above) */
} remembered[REMEMBERED] __attribute__((aligned(64)));
BRICK_ASSERT(sizeof(struct remembered) == 64, "one cache line");

uint64_t brick_step_named(const char *text, size_t length)
{
    const uint64_t step = brick_fnv1a(text, length);
    struct remembered *r = &remembered[step % REMEMBERED];
    uint64_t words[WORDS] = {0};
    if (length > BRICK_STEP_TEXT_MAX)
        return step;
    memcpy(words, text, length);
    brick_store_relaxed(&r->step, step);
    brick_store_relaxed(&r->length, length);
    for (size_t n = 0; n < WORDS; n++)
        brick_store_relaxed(&r->words[n], words[n]);
    return step;
}

void brick_step_tell(struct brick_thread *t, uint64_t step)
{
    const struct remembered *r = &remembered[step % REMEMBERED];
    uint64_t words[WORDS], *told = &t->told[step % BRICK_STEPS_TOLD];
    if (BRICK_LIKELY(*told == step || brick_load_relaxed(&r->step) != step))
        return;
    const uint64_t length = brick_load_relaxed(&r->length);
    for (size_t n = 0; n < WORDS; n++)
        words[n] = brick_load_relaxed(&r->words[n]);
    if (length == 0 || length > BRICK_STEP_TEXT_MAX || brick_fnv1a(words, length) != step
        || !brick_event_room(t, t->event_ring.slots / 2))
        return;
    brick_event_attempt(t);
    struct brick_step_text *record = (struct brick_step_text *)(void *)brick_event_at(t, 0);
    record->length = (uint32_t)length;
    memcpy(record->text, words, sizeof words);
    brick_event_publish(t, record, BRICK_KIND_STEP_TEXT, 1);
    *told = step;
}
