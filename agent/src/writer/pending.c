/* writer/pending.c - counts this process's deferred work that no finalize has covered yet, by stream.
 *
 * The table is private memory of a fixed size, for any number of streams. A word has 40 bits of a stream's hash and the
 * number of its starts; a word of 0 is free. Threads do not wait for each other, so in the worst case one stream has
 * two words; a search visits all words. The starts of streams without a word are counted together, and are covered only
 * when every stream is finalized. So brick_pending never returns too small a number, unless one stream has more than
 * COUNT starts.
 */
#include "pending.h"

#include <string.h>

#define WORDS 64u
#define COUNT UINT64_C(0xFFFFFF) /* the largest count of a word: a word with this count counts no further */

static uint64_t words[WORDS];
static uint64_t crowded; /* starts of all streams without a word in the table */

static uint64_t tag_of(uint64_t stream) { return stream * UINT64_C(0x9E3779B97F4A7C15) & ~COUNT; }

static int is_of(uint64_t word, const uint64_t *stream)
{
    return word != 0 && (stream == NULL || (word & ~COUNT) == tag_of(*stream));
}

/* Returns 0 if another thread has changed the word; *now is then the new value. */
static int put(uint64_t *word, uint64_t *now, uint64_t then)
{
    return __atomic_compare_exchange_n(word, now, then, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

void brick_pending_add(uint64_t stream)
{
    const uint64_t tag = tag_of(stream);
    for (uint64_t n = 0; n < WORDS; n++) {
        uint64_t *word = &words[((tag >> 58) + n) % WORDS], now = brick_load_relaxed(word);
        while (now == 0 || is_of(now, &stream))
            if (put(word, &now, (now & COUNT) < COUNT ? (now | tag) + 1 : now))
                return;
    }
    brick_fetch_add(&crowded, 1);
}

int brick_pending_any(const uint64_t *stream)
{
    int found = brick_load_relaxed(&crowded) != 0;
    for (uint32_t n = 0; n < WORDS && !found; n++)
        found = is_of(brick_load_relaxed(&words[n]), stream);
    return found;
}

void brick_pending_cover(const uint64_t *stream)
{
    for (uint32_t n = 0; n < WORDS; n++)
        for (uint64_t now = brick_load_relaxed(&words[n]); is_of(now, stream) && !put(&words[n], &now, 0);)
            continue;
    if (stream == NULL)
        brick_store_relaxed(&crowded, 0);
}

void brick_pending_forget(void)
{
    memset(words, 0, sizeof words);
    crowded = 0;
}

uint64_t brick_pending_sum(void)
{
    uint64_t sum = brick_load_relaxed(&crowded);
    for (uint32_t n = 0; n < WORDS; n++)
        sum += brick_load_relaxed(&words[n]) & COUNT;
    return sum;
}
