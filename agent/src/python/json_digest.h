/* python/json_digest.h - digests of the params of a checksum. */
#ifndef BRICK_JSON_DIGEST_H
#define BRICK_JSON_DIGEST_H

#include "core.h"

/* Computes the digest of a JSON value. Returns 0, or -1 with an exception set. */
int core_digest_json(PyObject *value, uint64_t *digest);
/* For a value that is not JSON: the digest of the name of its type. */
uint64_t core_digest_type(PyObject *value);

#endif
