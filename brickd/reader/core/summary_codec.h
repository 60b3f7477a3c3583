/* core/summary_codec.h - packs words that are mostly zeros.
 *
 *   words of zeros   0, then how many more of them follow: 0 to 255
 *   another word     a byte whose bit i says that byte i of the word is not zero, then these bytes
 */
#ifndef BRICKD_SUMMARY_CODEC_H
#define BRICKD_SUMMARY_CODEC_H

#include <stddef.h>
#include <stdint.h>

/* Bytes that a word takes at most. */
enum { BRICK_PACKED_MAX = 9 };

/* Returns how many bytes it wrote; there is room for BRICK_PACKED_MAX for each word. */
size_t brick_pack(const uint64_t *words, size_t count, uint8_t *into);

/* How many words these bytes hold; -1: they end within one. */
int64_t brick_packed_words(const uint8_t *packed, size_t size);

/* Unpacks bytes whose words were counted. */
void brick_unpack(const uint8_t *packed, size_t size, uint64_t *into);

#endif
