/* core/summary_codec.h - compresses 64-bit words that are mostly zeros.
 *
 *   a run of zeros   a byte of 0, then a byte with the number of further zero words in the run: 0 to 255
 *   any other word   a byte whose bit i is set if byte i of the word is not zero, then the bytes that are not zero
 */
#ifndef BRICKD_SUMMARY_CODEC_H
#define BRICKD_SUMMARY_CODEC_H

#include <stddef.h>
#include <stdint.h>

/* The largest number of bytes for one word. */
enum { BRICK_PACKED_MAX = 9 };

/* Returns the number of written bytes. `into` must have room for BRICK_PACKED_MAX bytes per word. */
size_t brick_pack(const uint64_t *words, size_t count, uint8_t *into);

/* Returns the number of words in these bytes; -1 if the bytes end within a word. */
int64_t brick_packed_words(const uint8_t *packed, size_t size);

/* Unpacks bytes that brick_packed_words accepted. */
void brick_unpack(const uint8_t *packed, size_t size, uint64_t *into);

#endif
