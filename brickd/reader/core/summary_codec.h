/* core/summary_codec.h - words that are mostly zeros, in little room.
 *
 *   a word of zeros   0, then how many more of them follow: 0 to 255
 *   another word      a byte whose bit i says that byte i of the word is not zero, then these bytes
 */
#ifndef BRICKD_SUMMARY_CODEC_H
#define BRICKD_SUMMARY_CODEC_H

#include <stddef.h>
#include <stdint.h>

/* So many bytes a word takes at most. */
enum { BRICK_PACKED_MAX = 9 };

/* How many bytes it came to; there is room for the most that it can be. */
size_t brick_pack(const uint64_t *words, size_t count, uint8_t *into);

/* How many words are in there; -1: it ends within one. */
int64_t brick_packed_words(const uint8_t *packed, size_t size);

/* Of packed bytes whose words were counted. */
void brick_unpack(const uint8_t *packed, size_t size, uint64_t *into);

#endif
