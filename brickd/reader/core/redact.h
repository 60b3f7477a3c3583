/* core/redact.h - removes a customer's data from slots of rings, in two degrees.
 *
 * What stays is listed, all else goes: each record of a known kind is rebuilt of its kind,
 * times, amounts, numbers of paths, sites and names, and what its degree leaves.
 *
 * BRICK_LEFT_KEYED: names by the host (steps, positions, streams, digests of parameters)
 * stay, and checksums, which are made with a key of the service. Statistics, fnv1a and
 * sketches, which identify a tensor without that key, become zeros.
 *
 * BRICK_LEFT_EQUAL, which may be given away: names by the host and checksums are replaced
 * by digests with a random key, too: equal ones stay equal, but equal nothing elsewhere.
 * 0, which means none, stays. What the agent counts, an occurrence or an unnamed generation
 * of weights, stays, and so does the number of a weight's expert, which is part of its name.
 *
 * fnv1a is 0 of no tensor: readers know by it that values were left out. A record of an
 * unknown kind keeps its kind and length; slots of no known record become zeros.
 */
#ifndef BRICKD_REDACT_H
#define BRICKD_REDACT_H

#include "recording_format.h"

enum brick_left { BRICK_LEFT_ALL, BRICK_LEFT_KEYED, BRICK_LEFT_EQUAL };

struct brick_redactor {
    enum brick_left left; /* of each record; not BRICK_LEFT_ALL */
    uint64_t key[2];
    /* A checksum that reaches beyond the last piece: */
    struct brick_records place; /* where it continues; `inside`: its slots to come */
    uint32_t done;              /* its slots so far; 0: there is none */
};

/* With a new key. 0, with errno. */
int brick_redactor_begin(struct brick_redactor *r, enum brick_left left);
/* Erases the key. */
void brick_redactor_end(struct brick_redactor *r);

/* Redacts the slots of a piece; each piece once, in the order of the rings. */
void brick_redact(struct brick_redactor *r, const struct brick_records *of, void *slots, uint64_t count);

/* Redacts the slots of a checksum's only tensor, those after the first. */
#define BRICK_TENSOR_SLOTS 3u
void brick_redact_tensor(const struct brick_redactor *r, void *slots);

/* The new name of a step, or of a generation that the host named. */
uint64_t brick_redacted_step(const struct brick_redactor *r, uint64_t step);

/* The new name of the key of checksums; never 0 where they were replaced. */
uint64_t brick_redacted_name(const struct brick_redactor *r, uint64_t name);

#endif
