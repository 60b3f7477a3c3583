/* packed.c - packed words and invalid bytes: packed SEED SECONDS
 *
 * Packs words of all kinds into blocks of exactly the returned size, and checks that unpacking gives the same words.
 * Also checks that all bytes that are accepted as packed can be unpacked and packed again. Sanitizers find memory
 * errors.
 */
#include "core/summary_codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WORDS_MAX = 2000 };

static uint64_t state;

static uint64_t random64(void) /* splitmix64 */
{
    uint64_t z = state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static void *block(size_t bytes)
{
    void *p = malloc(bytes > 0 ? bytes : 1);
    if (p == NULL)
        exit(2);
    return p;
}

static void wrong(const char *what)
{
    fprintf(stderr, "packed: %s\n", what);
    exit(1);
}

static uint64_t some_word(void)
{
    uint64_t word = random64();
    switch (random64() % 4) {
    case 0: return word;
    case 1: return word & UINT64_C(0xFF00FF0000FF00FF);
    case 2: return word & 0xFF;
    default: return 0;
    }
}

static uint64_t *some_words(size_t count)
{
    uint64_t *words = block(count * sizeof *words);
    for (size_t n = 0; n < count;) { /* a range of random words, then a range of zeros */
        size_t end = n + random64() % 40, rest = end + random64() % 700;
        for (; n < count && n < end; n++)
            words[n] = some_word();
        for (; n < count && n < rest; n++)
            words[n] = 0;
    }
    return words;
}

/* Returns packed bytes in a block of exactly their size. */
static uint8_t *packed_of(const uint64_t *words, size_t count, size_t *size)
{
    uint8_t *room = block(count * BRICK_PACKED_MAX);
    *size = brick_pack(words, count, room);
    uint8_t *packed = block(*size);
    memcpy(packed, room, *size);
    free(room);
    return packed;
}

static uint64_t *unpacked(const uint8_t *packed, size_t size, int64_t count)
{
    uint64_t *words = block((size_t)count * sizeof *words);
    brick_unpack(packed, size, words);
    return words;
}

static void come_back(const uint64_t *words, size_t count)
{
    size_t size;
    uint8_t *packed = packed_of(words, count, &size);
    if (brick_packed_words(packed, size) != (int64_t)count)
        wrong("the number of packed words is wrong");
    uint64_t *again = unpacked(packed, size, (int64_t)count);
    if (memcmp(again, words, count * sizeof *words) != 0)
        wrong("unpacked words differ from the original words");
    free(again);
    free(packed);
}

/* Tries changed, truncated or random bytes; returns whether they were accepted as packed. */
static int judged(void)
{
    size_t size, count = random64() % WORDS_MAX;
    uint64_t *words = some_words(count);
    uint8_t *packed = packed_of(words, count, &size);
    if (size > 0 && random64() % 2)
        size = random64() % size;
    uint8_t *bytes = block(size);
    memcpy(bytes, packed, size);
    for (uint64_t changes = size > 0 ? random64() % 6 : 0; changes > 0; changes--)
        bytes[random64() % size] = (uint8_t)random64();
    int64_t found = brick_packed_words(bytes, size);
    if (found >= 0) {
        uint64_t *meant = unpacked(bytes, size, found);
        come_back(meant, (size_t)found);
        free(meant);
    }
    free(bytes);
    free(packed);
    free(words);
    return found >= 0;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    state = strtoull(argv[1], NULL, 10);
    clock_t end = clock() + (clock_t)(atof(argv[2]) * CLOCKS_PER_SEC);
    unsigned long long tried = 0, believed = 0;
    for (; clock() < end; tried++) {
        size_t count = random64() % WORDS_MAX;
        uint64_t *words = some_words(count);
        come_back(words, count);
        free(words);
        believed += (unsigned long long)judged();
    }
    printf("%llu arrays packed, %llu changed (%llu accepted)\n", tried, tried, believed);
    return 0;
}
