/* brick_fingerprint.h - what is kept of a tensor, so that two can be compared later, elsewhere.
 *
 * THE DEFINITION. In any language and on any device it gives the same: the checksum
 * and the counts exactly, the sketch within 1e-6 of the tensor's L2 norm.
 *
 * A tensor is a sequence of elements of one type in flat (C) order: the last
 * index runs fastest, whatever the strides. Where only the first `valid` rows
 * (indices of dimension 0) count, the others do not exist: their bytes and
 * values enter nothing. A tensor of no dimension is one element.
 *
 * All arithmetic on integers is modulo 2^64 and unsigned; XOR, AND, >> and <<
 * are those of C. The key is a 128-bit secret of the service, 0 where there is
 * none. Two functions mix:
 *
 *   splitmix64(x):  z = x + 0x9E3779B97F4A7C15
 *                   z = (z XOR (z >> 30)) * 0xBF58476D1CE4E5B9
 *                   z = (z XOR (z >> 27)) * 0x94D049BB133111EB
 *                   z XOR (z >> 31)
 *   sip(a, ...) = SipHash-2-4 of the numbers in brackets, 8 little-endian bytes
 *                 each (of none, no byte), with the 16 little-endian bytes of the key
 *   h(b)        = splitmix64(b XOR sip())   of the block with number b = 0, 1, ...
 *
 * CHECKSUM. The elements' bytes, one after the other in flat order, each
 * element's as they lie in the memory of a little-endian machine, are read as
 * 32-bit little-endian words u; zero bytes fill up the last one. 16 words are a
 * block; word j = 0..15 of block b has the odd weight
 *
 *   w = ((h(b) >> 32) XOR c[j]) | 1
 *
 * where c[j] are the first 32 bits behind the point of the cube roots of the
 * primes 2, 3, 5, ..., 53. (Were they values of splitmix64, as h(b) is, words of
 * neighbouring blocks would weigh the same.)
 *
 *   428A2F98 71374491 B5C0FBCF E9B5DBA5 3956C25B 59F111F1 923F82A4 AB1C5ED5
 *   D807AA98 12835B01 243185BE 550C7DC3 72BE5D74 80DEB1FE 9BDC06A7 C19BF174
 *
 *   S        = the sum of u * w over all words
 *   checksum = sip(S, bytes, dtype)
 *
 * with the number of bytes and that of the type (enum brick_dtype). Any order
 * of summation gives the same S; one word that changes always changes it.
 *
 * VALUES. What follows sees the elements as numbers: a bool is 1 where its byte
 * is not 0, an integer of 64 bits is rounded to float64. NaN, +Inf and -Inf are
 * counted. min, max, mean and L2 (the square root of the sum of squares) are
 * float64 over the finite elements; 0 where there are none; a zero among them
 * is +0. Their last bits depend on the order of summation.
 *
 * SKETCH. 16 elements are a block, whatever their size; the last one may be
 * shorter. Lane j = 0..15 of block b, 0 where it is not finite, is negated if bit
 * j of h(b) is set, and added to place j XOR ((h(b) >> 16) AND 15). The 16 sums
 * are rounded to float32: one beyond its range is infinite.
 *
 * Sketches are linear. Of two tensors with the same type, number of elements and
 * key, the difference of the sketches is the sketch of the difference, and
 *
 *   sqrt(sum of (a.sketch - b.sketch)^2) / a.l2
 *
 * estimates the L2 norm of what differs, relative to that of the first.
 *
 * SECRECY. The S of two known tensors would give the weights away, and the sketch of
 * one shows bits of h. So S goes into sip alone, and h has a key that sip made: to
 * find that key gives sip of one more message, and nothing else of the service's key.
 * Without the key, checksums show which tensors are equal, and no more; sketches show
 * more, whatever the key (docs/how-to/record-and-share.md).
 *
 * FNV1A. The checksum of the profiler that brickd grew out of: FNV-1a with 64
 * bits over the first 64 elements (or as many as there are), each as the 4
 * little-endian bytes of a float32. float32 elements enter with the bits that
 * they have; all others are rounded to float32 (64-bit integers by way of
 * float64), a NaN among them is 0x7FC00000. It sees 256 bytes: it is shown, and
 * decides nothing.
 */
#ifndef BRICK_FINGERPRINT_H
#define BRICK_FINGERPRINT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The numbers are part of every checksum: they never change. */
enum brick_dtype {
    BRICK_BOOL = 1,
    BRICK_INT8 = 2,
    BRICK_INT16 = 3,
    BRICK_INT32 = 4,
    BRICK_INT64 = 5,
    BRICK_UINT8 = 6,
    BRICK_UINT16 = 7,
    BRICK_UINT32 = 8,
    BRICK_UINT64 = 9,
    BRICK_FLOAT16 = 10,
    BRICK_BFLOAT16 = 11,
    BRICK_FLOAT32 = 12,
    BRICK_FLOAT64 = 13,
    BRICK_FLOAT8_E4M3FN = 14,
    BRICK_FLOAT8_E4M3FNUZ = 15,
    BRICK_FLOAT8_E5M2 = 16,
    BRICK_FLOAT8_E5M2FNUZ = 17
};
#define BRICK_DTYPES 18

/* A tensor in this process's memory, aligned or not, in the byte order of this machine. */
struct brick_tensor {
    const void *data;       /* of the element whose indices are all 0 */
    uint32_t dtype;         /* enum brick_dtype */
    uint32_t dims;          /* 0 to BRICK_DIMS_MAX */
    const int64_t *shape;
    const int64_t *strides; /* in bytes, any; NULL: C order without gaps */
    uint64_t valid;         /* rows that count, at most shape[0]; BRICK_ALL_ROWS for all */
};
#define BRICK_DIMS_MAX 64
#define BRICK_ALL_ROWS UINT64_MAX

/* A number of 128 bits, the lower half first. */
struct brick_fingerprint_key {
    uint64_t words[2];
};

struct brick_fingerprint {
    uint64_t checksum;
    uint64_t fnv1a;
    uint64_t elements;
    uint64_t bytes;
    uint64_t nan, pos_inf, neg_inf;
    double min, max, mean, l2;
    float sketch[16];
};

/* One pass over the data (a second one for float64 beyond 2^480, or all below 2^-480); on any thread, also in a
 * signal handler. It allocates nothing, makes no system call, takes less than 32 KiB of stack, and leaves the
 * floating-point modes and flags of the thread as they were. If the memory changes meanwhile, the result is of
 * neither state. Returns NULL and fills in *fingerprint; else says what is wrong, and *fingerprint is all zero. */
const char *brick_fingerprint(const struct brick_tensor *tensor, struct brick_fingerprint_key key,
                              struct brick_fingerprint *fingerprint);

/* The state of the same computation a piece at a time, with the same promises and, to the last bit, the same result. It must
 * not be moved in memory. */
struct brick_pieces {
    uint64_t own[512];
};
enum brick_pieces_state {
    BRICK_PIECES_DONE = 0,
    BRICK_PIECES_MORE = 1,
    BRICK_PIECES_MOVED = 2 /* this is not the tensor that was begun: its address, shape or dtype is another */
};

/* NULL, or a text that says what is wrong. */
const char *brick_pieces_begin(struct brick_pieces *pieces, const struct brick_tensor *tensor,
                               struct brick_fingerprint_key key);

/* Takes `bytes` more of it, in steps of 4,096, at least one step. Needs the tensor's memory and its description during the
 * call alone. */
enum brick_pieces_state brick_pieces_add(struct brick_pieces *pieces, const struct brick_tensor *tensor, uint64_t bytes);

/* Call it after BRICK_PIECES_DONE. */
void brick_pieces_end(const struct brick_pieces *pieces, struct brick_fingerprint *fingerprint);

#ifdef __cplusplus
}
#endif

#endif
