/* core/redact.h - removes a customer's data from slots of rings, in two degrees.
 *
 * An allowlist decides which fields stay. Each record of a known kind is rebuilt from its kind, times, amounts, ids of
 * paths, sites and names, and from the fields that the degree of redaction keeps.
 *
 * BRICK_LEFT_KEYED keeps the host's names (steps and their texts, positions, streams, digests of parameters) and the
 * checksums, which use a key of the service. Statistics, fnv1a and sketches become zeros, because they identify a tensor
 * even without that key.
 *
 * BRICK_LEFT_EQUAL is safe to share. This degree also omits the texts of steps, and replaces the host's other names and
 * the checksums by digests with a random key. Equal values stay equal, but cannot be compared with other files. A value
 * of 0, which means that there is none, stays 0. The agent's own counts are also kept: occurrences, generations of
 * weights that the host does not name, and the index of a weight's expert, which is part of the weight's name.
 *
 * A tensor never has an fnv1a of 0, so 0 shows readers that values were omitted. A record of an unknown kind keeps its
 * kind and length. Slots without a known record become zeros.
 */
#ifndef BRICKD_REDACT_H
#define BRICKD_REDACT_H

#include "recording_format.h"

enum brick_left { BRICK_LEFT_ALL, BRICK_LEFT_KEYED, BRICK_LEFT_EQUAL };

struct brick_redactor {
    enum brick_left left; /* which fields of each record stay */
    uint64_t key[2];
    /* A checksum that continues after the last piece: */
    struct brick_records place; /* where the checksum continues; `inside`: the number of its remaining slots */
    uint32_t done;              /* the number of its slots so far; 0: there is no such checksum */
};

/* Makes a new key. Returns 0 with errno on failure. */
int brick_redactor_begin(struct brick_redactor *r, enum brick_left left);
/* Erases the key. */
void brick_redactor_end(struct brick_redactor *r);

/* Redacts the slots of a piece. Call it once for each piece, in the order of the rings. */
void brick_redact(struct brick_redactor *r, const struct brick_records *of, void *slots, uint64_t count);

/* Redacts the slots of a checksum's only tensor, which are the slots after the first. */
#define BRICK_TENSOR_SLOTS 3u
void brick_redact_tensor(const struct brick_redactor *r, void *slots);

/* Returns the redacted number of a step, or of a generation that the host named. */
uint64_t brick_redacted_step(const struct brick_redactor *r, uint64_t step);

/* Returns the redacted name of the key of checksums; never 0 if checksums were replaced. */
uint64_t brick_redacted_name(const struct brick_redactor *r, uint64_t name);

#endif
