/* fingerprint.c - the fingerprint for tests, with any variant and floating-point modes. */
#include "fingerprint/simd.h"
#include "brick_siphash.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

static const struct brick_fingerprint_key none;

/* Returns "" on success, NULL if this machine does not have the variant, or the reason of a refusal. */
const char *fingerprint_by(const char *variant, const struct brick_tensor *tensor, struct brick_fingerprint_key key,
                           struct brick_fingerprint *fingerprint);
const char *fingerprint_by(const char *variant, const struct brick_tensor *tensor, struct brick_fingerprint_key key,
                           struct brick_fingerprint *fingerprint)
{
    const struct brick_kernel *kernel = brick_kernel_named(variant);
    if (kernel == NULL)
        return NULL;
    const char *refused = brick_fingerprint_with(kernel, tensor, key, fingerprint);
    return refused != NULL ? refused : "";
}

/* Computes the fingerprint in pieces; the list of sizes is repeated. */
const char *fingerprint_in_pieces(const char *variant, const struct brick_tensor *tensor,
                                  struct brick_fingerprint_key key, const uint64_t *bytes, uint64_t turns,
                                  struct brick_fingerprint *fingerprint);
const char *fingerprint_in_pieces(const char *variant, const struct brick_tensor *tensor,
                                  struct brick_fingerprint_key key, const uint64_t *bytes, uint64_t turns,
                                  struct brick_fingerprint *fingerprint)
{
    static struct {
        char odd; /* an address that is not aligned for vectors */
        struct brick_pieces pieces;
    } held;
    const struct brick_kernel *kernel = brick_kernel_named(variant);
    if (kernel == NULL)
        return NULL;
    const char *refused = brick_pieces_begin_with(kernel, &held.pieces, tensor, key);
    if (refused != NULL)
        return refused;
    enum brick_pieces_state now = BRICK_PIECES_MORE;
    for (uint64_t turn = 0; now == BRICK_PIECES_MORE; turn++)
        now = brick_pieces_add(&held.pieces, tensor, bytes[turn % turns]);
    brick_pieces_end(&held.pieces, fingerprint);
    return now == BRICK_PIECES_DONE ? "" : "it has moved";
}

/* Begins with `tensor`, continues with `other`, and returns the result. */
int moved(const struct brick_tensor *tensor, const struct brick_tensor *other);
int moved(const struct brick_tensor *tensor, const struct brick_tensor *other)
{
    static struct brick_pieces pieces;
    return brick_pieces_begin(&pieces, tensor, none) == NULL ? (int)brick_pieces_add(&pieces, other, 1) : -1;
}

/* Returns "" if the fingerprint was made and the modes and flags of the floating-point unit are unchanged. */
const char *fingerprint_under(unsigned modes, const struct brick_tensor *tensor, struct brick_fingerprint *fingerprint);
const char *fingerprint_under(unsigned modes, const struct brick_tensor *tensor, struct brick_fingerprint *fingerprint)
{
#if defined(__x86_64__)
    const unsigned before = _mm_getcsr();
    _mm_setcsr(modes);
    const char *refused = brick_fingerprint(tensor, none, fingerprint);
    const unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    if (after != modes)
        return "the modes have changed";
#else
    (void)modes;
    const char *refused = brick_fingerprint(tensor, none, fingerprint);
#endif
    return refused != NULL ? refused : "";
}

/* Computes SipHash as fingerprint/fingerprint.c and the reader's redact.c do. */
uint64_t siphash(const uint64_t *key, const uint64_t *words, uint32_t count);
uint64_t siphash(const uint64_t *key, const uint64_t *words, uint32_t count) { return brick_siphash(key, words, count); }
