/* fingerprint.c - the fingerprint for tests: by a variant of their choice, under modes of their choice. */
#include "brick_kernel.h"

/* "" when done; NULL where this machine has no such variant; else why it was refused. */
const char *fingerprint_by(const char *variant, const struct brick_tensor *tensor, uint64_t key,
                           struct brick_fingerprint *fingerprint);
const char *fingerprint_by(const char *variant, const struct brick_tensor *tensor, uint64_t key,
                           struct brick_fingerprint *fingerprint)
{
    const struct brick_kernel *kernel = brick_kernel_named(variant);
    if (kernel == NULL)
        return NULL;
    const char *refused = brick_fingerprint_with(kernel, tensor, key, fingerprint);
    return refused != NULL ? refused : "";
}

/* "" when done and modes and flags are as they were. */
const char *fingerprint_under(unsigned modes, const struct brick_tensor *tensor, struct brick_fingerprint *fingerprint);
const char *fingerprint_under(unsigned modes, const struct brick_tensor *tensor, struct brick_fingerprint *fingerprint)
{
#if defined(__x86_64__)
    const unsigned before = _mm_getcsr();
    _mm_setcsr(modes);
    const char *refused = brick_fingerprint(tensor, 0, fingerprint);
    const unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    if (after != modes)
        return "the modes have changed";
#else
    (void)modes;
    const char *refused = brick_fingerprint(tensor, 0, fingerprint);
#endif
    return refused != NULL ? refused : "";
}
