#include "summary_codec.h"

#include <string.h>

enum { RUN_MAX = 256 };

static size_t zeros(const uint64_t *words, size_t count)
{
    size_t n = 0;
    while (n + 4 <= count && (words[n] | words[n + 1] | words[n + 2] | words[n + 3]) == 0)
        n += 4;
    while (n < count && words[n] == 0)
        n++;
    return n;
}

size_t brick_pack(const uint64_t *words, size_t count, uint8_t *into)
{
    uint8_t *out = into;
    for (size_t n = 0; n < count;) {
        if (words[n] == 0) {
            size_t run = zeros(words + n, count - n < RUN_MAX ? count - n : RUN_MAX);
            *out++ = 0;
            *out++ = (uint8_t)(run - 1);
            n += run;
            continue;
        }
        uint8_t *present = out++;
        *present = 0;
        uint8_t bit = 1;
        for (uint64_t rest = words[n]; rest != 0; rest >>= 8, bit = (uint8_t)(bit << 1)) {
            if ((rest & 0xff) == 0)
                continue;
            *present |= bit;
            *out++ = (uint8_t)rest;
        }
        n++;
    }
    return (size_t)(out - into);
}

int64_t brick_packed_words(const uint8_t *packed, size_t size)
{
    int64_t words = 0;
    size_t at = 0;
    while (at < size) {
        uint8_t present = packed[at++];
        size_t more = present == 0 ? 1 : (size_t)__builtin_popcount(present);
        if (size - at < more)
            return -1;
        words += present == 0 ? packed[at] + 1 : 1;
        at += more;
    }
    return words;
}

void brick_unpack(const uint8_t *packed, size_t size, uint64_t *into)
{
    const uint8_t *end = packed + size;
    while (packed < end) {
        uint32_t present = *packed++;
        if (present == 0) {
            size_t run = (size_t)*packed++ + 1;
            memset(into, 0, run * sizeof *into);
            into += run;
            continue;
        }
        uint64_t word = 0;
        for (; present != 0; present &= present - 1)
            word |= (uint64_t)*packed++ << 8 * (uint32_t)__builtin_ctz(present);
        *into++ = word;
    }
}
