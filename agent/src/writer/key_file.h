/* key_file.h - the service's secret key for checksums. */
#ifndef BRICK_KEY_FILE_H
#define BRICK_KEY_FILE_H

#include "common.h"

struct brick_secret {
    struct brick_fingerprint_key key; /* 0: there is none */
    uint64_t name;                    /* shows other workers whether they have the same key */
};
/* Reads or creates the key at its first use. After that it never changes, so no process makes checksums with two keys.
 * Returns 0 if it is temporarily unavailable. */
BRICK_HIDDEN int brick_secret(struct brick_secret *secret);

#endif
