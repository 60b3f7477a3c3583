/* key_file.h - the service's secret key for checksums. */
#ifndef BRICK_KEY_FILE_H
#define BRICK_KEY_FILE_H

#include "common.h"

struct brick_secret {
    struct brick_fingerprint_key key; /* 0: no key */
    uint64_t name;                    /* the public name of the key: equal in two workers if they have the same key */
};
/* Returns the key. The first call reads the key file, or creates it. The key never changes after that, so all checksums
 * of a process use one key. Returns 0 if the key is temporarily unavailable. */
BRICK_HIDDEN int brick_secret(struct brick_secret *secret);

#endif
