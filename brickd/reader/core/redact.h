/* core/redact.h - removes a customer's data from slots of rings, in two degrees.
 *
 * An allowlist decides which fields stay. Each record of a known kind is rebuilt from its kind, times, amounts, ids of
 * paths, sites and names, and from the fields that the degree of redaction keeps.
 *
 * BRICK_LEFT_KEYED keeps what the host named (steps and their texts, positions, streams, digests of parameters), and
 * the checksums, which are made with a key of the service. Statistics, fnv1a and sketches become zeros, because they
 * identify a tensor even to a reader without that key.
 *
 * BRICK_LEFT_EQUAL is safe to share. This degree also omits the texts of steps, and replaces the host's other names and
 * the checksums by digests with a random key. Equal values stay equal, but cannot be compared with other files. A value
 * of 0 means that there is no value, and stays 0. The agent's own counts are also kept: occurrences, generations of
 * weights that the host does not name, and the index of a weight's expert, which is part of the weight's name.
 *
 * No tensor has an fnv1a of 0, so readers know from a 0 that values were omitted. A record of an unknown kind keeps its
 * kind and length. Slots without a known record become zeros.
 */
#ifndef BRICKD_REDACT_H
#define BRICKD_REDACT_H

#include "recording_format.h"

enum brick_left { BRICK_LEFT_ALL, BRICK_LEFT_KEYED, BRICK_LEFT_EQUAL };

struct brick_redactor {
    enum brick_left left; /* which fields of a record stay */
    uint64_t key[2];
    /* If the last piece ended within a checksum, the next piece of the ring continues it. */
    struct brick_records place; /* where the checksum continues; `inside`: how many of its slots are left */
    uint32_t done;              /* how many of its slots are done; 0: the last piece did not end within a checksum */
};

/* Makes a new key. Returns 0 with errno on failure. */
int brick_redactor_begin(struct brick_redactor *r, enum brick_left left);
/* Erases the key. */
void brick_redactor_end(struct brick_redactor *r);

/* Redacts the slots of a piece. Call it once for each piece of a ring, in order. */
void brick_redact(struct brick_redactor *r, const struct brick_records *of, void *slots, uint64_t count);

/* Redacts the BRICK_TENSOR_SLOTS slots that follow the first slot of a checksum with one tensor. */
#define BRICK_TENSOR_SLOTS 3u
void brick_redact_tensor(const struct brick_redactor *r, void *slots);

/* Returns what a recording has in place of the number of a step, or of a generation that the host named. */
uint64_t brick_redacted_step(const struct brick_redactor *r, uint64_t step);

/* Returns what a recording has in place of the name of the checksums' key. It is never 0 if checksums are replaced. */
uint64_t brick_redacted_name(const struct brick_redactor *r, uint64_t name);

#endif
