/* brick_fingerprint.h - the fingerprint of a tensor. Tensors are compared by their fingerprints, later and on any
 * machine.
 *
 * DEFINITION. Every language and every device gives the same result: the checksum and the counts exactly, the sketch
 * within 1e-6 of the tensor's L2 norm.
 *
 * A tensor is a sequence of elements of one type in flat (C) order: the last index runs fastest, independent of the
 * strides. If only the first `valid` rows (indices of dimension 0) are valid and the rest is padding, the padding has
 * no effect. A tensor with no dimensions has one element.
 *
 * All arithmetic on integers is modulo 2^64 and unsigned; XOR, AND, >> and << are those of C. The key is a 128-bit
 * secret of the service, 0 if there is none. Two functions mix bits, and h uses both:
 *
 *   splitmix64(x):  z = x + 0x9E3779B97F4A7C15
 *                   z = (z XOR (z >> 30)) * 0xBF58476D1CE4E5B9
 *                   z = (z XOR (z >> 27)) * 0x94D049BB133111EB
 *                   z XOR (z >> 31)
 *   sip(a, ...) = SipHash-2-4 of the numbers in brackets, 8 little-endian bytes
 *                 each (no numbers: no bytes), with the 16 little-endian bytes of the key
 *   h(b)        = splitmix64(b XOR sip())   the hash of block number b = 0, 1, ...
 *
 * CHECKSUM. The elements are written one after the other in flat order, each in little-endian byte order. These bytes
 * are read as 32-bit little-endian words u; zero bytes fill up the last word. 16 words are a block; word j = 0..15 of
 * block b has the odd weight
 *
 *   w = ((h(b) >> 32) XOR c[j]) | 1
 *
 * where c[0] to c[15] are the first 32 bits of the fractions of the cube roots of the primes 2, 3, 5, ..., 53. (h(b) is
 * a value of splitmix64. If the c[j] were values of splitmix64, some words of neighbouring blocks would have equal
 * weights.)
 *
 *   428A2F98 71374491 B5C0FBCF E9B5DBA5 3956C25B 59F111F1 923F82A4 AB1C5ED5
 *   D807AA98 12835B01 243185BE 550C7DC3 72BE5D74 80DEB1FE 9BDC06A7 C19BF174
 *
 *   S        = the sum of u * w over all words
 *   checksum = sip(S, bytes, dtype)
 *
 * `bytes` is the number of bytes, and `dtype` the value of the type in enum brick_dtype. Any order of summation gives
 * the same S. A change of one word always changes S.
 *
 * VALUES. Counts, statistics and sketch use the elements as numbers: a bool is 1 if its byte is not 0, and an integer
 * of 64 bits is rounded to float64. NaN, +Inf and -Inf are counted. min, max, mean and L2 (the square root of the sum
 * of squares) are float64 over the finite elements. Without finite elements, these statistics are 0. A -0 counts as +0.
 * The last bits of these statistics depend on the order of summation.
 *
 * SKETCH. 16 elements are a block, whatever the size of an element; the last block may be shorter. Element j = 0..15 of
 * block b is negated if bit j of h(b) is set, and is then added to sum j XOR ((h(b) >> 16) AND 15). An element that is
 * not finite counts as 0. The 16 sums are rounded to float32; a sum beyond the range of float32 is infinite.
 *
 * Sketches are linear. For two tensors with the same type, number of elements and key, the difference of the sketches
 * is the sketch of the difference, and
 *
 *   sqrt(sum of (a.sketch - b.sketch)^2) / a.l2
 *
 * estimates the L2 norm of the difference, relative to the L2 norm of the first tensor.
 *
 * SECRECY. An attacker who knows two tensors and sees their S could compute the weights w. So S is never published,
 * only sip(S, ...). The sketch of a known tensor shows bits of h. So h does not use the service's key, but sip(), which
 * is derived from the key. An attacker who finds sip() knows the sip of one message, and nothing else about the
 * service's key. Without the key, checksums show only which tensors are equal; sketches show more, with any key
 * (docs/how-to/record-and-share.md).
 *
 * FNV1A. The checksum of brickd's predecessor: FNV-1a with 64 bits over the first 64 elements (or fewer if there are
 * fewer), each as the 4 little-endian bytes of a float32. float32 elements keep their bits; all others are rounded to
 * float32 (64-bit integers via float64), and a NaN among them is 0x7FC00000. fnv1a covers at most 256 bytes, so brickd
 * shows it but never compares it.
 */
#ifndef BRICK_FINGERPRINT_H
#define BRICK_FINGERPRINT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Types of elements. These values are part of every checksum, so they never change. */
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
    const void *data;       /* address of the element whose indices are all 0 */
    uint32_t dtype;         /* enum brick_dtype */
    uint32_t dims;          /* 0 to BRICK_DIMS_MAX */
    const int64_t *shape;
    const int64_t *strides; /* in bytes, of any size and sign; NULL: C order without gaps */
    uint64_t valid;         /* the number of valid rows, at most shape[0]; BRICK_ALL_ROWS for all */
};
#define BRICK_DIMS_MAX 64
#define BRICK_ALL_ROWS UINT64_MAX

uint32_t brick_dtype_size(uint32_t dtype); /* bytes of an element; 0: the type is unknown */

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

/* Computes a tensor's fingerprint in one pass over the data (two for float64, if values are above 2^480 or all are
 * below 2^-480), on any thread, even in a signal handler. Allocates nothing, makes no system call, needs less than 32
 * KiB of stack, and restores the thread's floating-point modes and flags. If the memory changes during the call, the
 * result describes neither the old nor the new contents. Returns NULL and fills in *fingerprint; or returns an error
 * text and sets *fingerprint to zero. */
const char *brick_fingerprint(const struct brick_tensor *tensor, struct brick_fingerprint_key key,
                              struct brick_fingerprint *fingerprint);

/* Like brick_fingerprint, but leaves fnv1a at 0. For small tensors: with 64 elements, fnv1a takes longer than all the
 * rest. */
const char *brick_fingerprint_small(const struct brick_tensor *tensor, struct brick_fingerprint_key key,
                                    struct brick_fingerprint *fingerprint);

/* The state of a fingerprint that is computed in pieces, with the same promises and exactly the same result as
 * brick_fingerprint. Do not move it in memory. */
struct brick_pieces {
    uint64_t own[512];
};
enum brick_pieces_state {
    BRICK_PIECES_DONE = 0,
    BRICK_PIECES_MORE = 1,
    BRICK_PIECES_MOVED = 2 /* the address, shape or dtype differs from the start */
};

/* Starts a fingerprint in pieces. Returns NULL, or an error text. */
const char *brick_pieces_begin(struct brick_pieces *pieces, const struct brick_tensor *tensor,
                               struct brick_fingerprint_key key);

/* Reads `bytes` more bytes of the tensor, rounded down to a multiple of 4,096, but at least 4,096. Needs the tensor's
 * memory and description only during the call. */
enum brick_pieces_state brick_pieces_add(struct brick_pieces *pieces, const struct brick_tensor *tensor, uint64_t bytes);

/* Fills in *fingerprint; call it after BRICK_PIECES_DONE. */
void brick_pieces_end(const struct brick_pieces *pieces, struct brick_fingerprint *fingerprint);

#ifdef __cplusplus
}
#endif

#endif
