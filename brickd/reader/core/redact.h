/* core/redact.h - takes out of slots of rings what is a customer's, in two degrees.
 *
 * What stays is listed, all else goes: of each kind of records that is known the
 * record is made anew of its kind, its times, its amounts, its numbers of paths,
 * sites and names, and what its degree leaves of the rest.
 *
 * BRICK_LEFT_KEYED: what a host called something (steps, positions, streams,
 * digests of parameters) stays, and checksums, which a key of the service made.
 * Statistics, fnv1a and sketches, which tell a tensor from others without that
 * key, are zeros.
 *
 * BRICK_LEFT_EQUAL, which may be given away: what a host called something and
 * checksums are replaced by what a random key makes of them, too: the same stays
 * the same, nothing before and nothing elsewhere is. 0, which says that there is
 * none, stays. What the agent itself counts, an occurrence or a generation of
 * weights that nobody named, stays, and so does the number of a weight's expert,
 * which is of its name.
 *
 * That fnv1a is 0, as it is of no tensor, tells readers that the values of a
 * checksum's tensors were left out.
 *
 * A record that cannot be made out keeps its kind and its length; what belongs
 * to none that is known becomes zeros.
 */
#ifndef BRICKD_REDACT_H
#define BRICKD_REDACT_H

#include "recording_format.h"

enum brick_left { BRICK_LEFT_ALL, BRICK_LEFT_KEYED, BRICK_LEFT_EQUAL };

struct brick_redactor {
    enum brick_left left; /* of each record; not all */
    uint64_t key[2];
    /* A checksum that reaches beyond the last piece. */
    struct brick_records place; /* where it goes on; `inside`: so many of its slots are still to come */
    uint32_t done;              /* of its slots; 0: there is none */
};

/* With a new key. 0, with errno. */
int brick_redactor_begin(struct brick_redactor *r, enum brick_left left);
/* Nobody knows the key any more. */
void brick_redactor_end(struct brick_redactor *r);

/* The slots of a piece, each piece once and in the order in which they were taken from the rings. */
void brick_redact(struct brick_redactor *r, const struct brick_records *of, void *slots, uint64_t count);

/* The slots of a checksum's only tensor, those behind the first, wherever they stand. */
#define BRICK_TENSOR_SLOTS 3u
void brick_redact_tensor(const struct brick_redactor *r, void *slots);

/* What a step is called now, or a generation that somebody named. */
uint64_t brick_redacted_step(const struct brick_redactor *r, uint64_t step);

/* What a key that checksums were made with is called now; never 0 where they were made anew with another. */
uint64_t brick_redacted_name(const struct brick_redactor *r, uint64_t name);

#endif
