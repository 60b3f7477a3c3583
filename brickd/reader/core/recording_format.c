#include "recording_format.h"

#include "brick_hash.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define ODD UINT64_C(0x9E3779B97F4A7C15)

/* ---- checksum ---------------------------------------------------------- */

void brick_sum_begin(struct brick_sum *s, const struct brick_key *key)
{
    for (uint64_t j = 0; j < 8; j++)
        s->lanes[j] = brick_mixed(brick_mixed(key->words[0] + (j + 1) * ODD) + key->words[1]);
    s->blocks = 0;
}

static inline uint64_t step(uint64_t lane, uint64_t word)
{
    lane += word;
    return (lane << 29 | lane >> 35) * ODD;
}

/* Eight separate variables, because gcc keeps them in registers. With an array, this would be three times slower. */
void brick_sum_add(struct brick_sum *s, const void *blocks, uint64_t count)
{
    uint64_t a = s->lanes[0], b = s->lanes[1], c = s->lanes[2], d = s->lanes[3];
    uint64_t e = s->lanes[4], f = s->lanes[5], g = s->lanes[6], h = s->lanes[7];
    const uint8_t *at = blocks;
    for (uint64_t i = 0; i < count; i++, at += BRICK_BLOCK) {
        uint64_t w[8];
        memcpy(w, at, sizeof w);
        a = step(a, w[0]);
        b = step(b, w[1]);
        c = step(c, w[2]);
        d = step(d, w[3]);
        e = step(e, w[4]);
        f = step(f, w[5]);
        g = step(g, w[6]);
        h = step(h, w[7]);
    }
    const uint64_t lanes[8] = {a, b, c, d, e, f, g, h};
    memcpy(s->lanes, lanes, sizeof lanes);
    s->blocks += count;
}

uint64_t brick_sum_end(const struct brick_sum *s)
{
    uint64_t h = brick_mixed(s->blocks);
    for (int j = 0; j < 8; j++)
        h = brick_mixed(h + ODD + s->lanes[j]);
    return h;
}

/* Returns the checksum of a block. The last word of the block holds the checksum itself and counts as 0. */
static uint64_t sum_of(const void *block, const struct brick_key *key)
{
    uint64_t words[BRICK_BLOCK / sizeof(uint64_t)];
    struct brick_sum s;
    memcpy(words, block, sizeof words);
    words[7] = 0;
    brick_sum_begin(&s, key);
    brick_sum_add(&s, words, 1);
    return brick_sum_end(&s);
}

uint64_t brick_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- title ------------------------------------------------------------- */

static const struct brick_key zeros;

void brick_title_seal(struct brick_title *title) { title->sum = sum_of(title, &zeros); }

struct brick_key brick_title_key(const struct brick_title *title)
{
    struct brick_key key;
    memcpy(key.words, title->id, sizeof key.words);
    /* Each file of a series has another key, so a chunk of one file is invalid in another file. */
    key.words[1] += brick_mixed(title->number + ODD);
    return key;
}

static int refuse(char *reason, size_t room, const char *format, ...) __attribute__((format(printf, 3, 4)));
static int refuse(char *reason, size_t room, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(reason, room, format, values);
    va_end(values);
    return 0;
}

int brick_title_judge(const void *bytes, uint64_t length, struct brick_title *title, char *reason, size_t room)
{
    struct brick_title seen[2];
    uint64_t sum = 0, expected = 0;
    int titles = 0, other = -1;
    memset(seen, 0, sizeof seen);
    memcpy(seen, bytes, length < sizeof seen ? length : sizeof seen);
    for (int i = 0; i < 2; i++) {
        if (seen[i].magic != BRICK_TITLE_MAGIC)
            continue;
        titles++;
        sum = seen[i].sum;
        expected = sum_of(&seen[i], &zeros);
        if (seen[i].major == BRICK_RECORDING_MAJOR && sum == expected) {
            *title = seen[i];
            return 1;
        }
        if (seen[i].major != BRICK_RECORDING_MAJOR)
            other = other < 0 ? i : other;
    }
    if (length == 0)
        return refuse(reason, room, "is empty: no recording has begun in it");
    if (titles == 0)
        return refuse(reason, room, "is not a recording of brickd: it begins with %016llx, expected %016llx",
                      (unsigned long long)seen[0].magic, (unsigned long long)BRICK_TITLE_MAGIC);
    /* This code cannot check the checksums of another major version. But if both titles name the same version, they are
     * not damaged. */
    if (titles == 2 && other == 0 && seen[1].major == seen[0].major)
        return refuse(reason, room, "has format %u.%u, this brickd reads %u.x: use the brickd that wrote it",
                      seen[0].major, seen[0].minor, BRICK_RECORDING_MAJOR);
    if (length < sizeof seen)
        return refuse(reason, room, "was cut within its title: it has %llu bytes, expected at least %zu",
                      (unsigned long long)length, sizeof seen);
    return refuse(reason, room, "has a damaged title: its checksum is %016llx, expected %016llx", (unsigned long long)expected,
                  (unsigned long long)sum);
}

/* ---- chunks ------------------------------------------------------------ */

void brick_chunk_seal(struct brick_chunk *head, const struct brick_key *key) { head->head_sum = sum_of(head, key); }

int brick_chunk_whole(const struct brick_chunk *head, const struct brick_key *key)
{
    return head->magic == BRICK_CHUNK_MAGIC && head->length <= BRICK_BODY_MAX && head->head_sum == sum_of(head, key);
}
