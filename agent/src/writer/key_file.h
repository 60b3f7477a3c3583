/* key_file.h - the service's secret, with which checksums are keyed. */
#ifndef BRICK_KEY_FILE_H
#define BRICK_KEY_FILE_H

#include "common.h"

struct brick_secret {
    struct brick_fingerprint_key key; /* 0: there is none */
    uint64_t name;                    /* by which others may know that they have the same */
};
/* Read at its first use, or made; after that the same for good, so that no process has checksums of two keys. 0: it cannot
 * be had now, for a reason that passes. */
BRICK_HIDDEN int brick_secret(struct brick_secret *secret);

#endif
