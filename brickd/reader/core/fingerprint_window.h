/* core/fingerprint_window.h - what workers said of their tensors: the newest of it, and who said the same of the same.
 *
 * A fingerprint is one CHECKED record with what it is compared by. Names are known by
 * digests of their texts, so that the numbers of one worker's segment mean
 * nothing here. Fingerprints stand in the order in which they came, within a bound of
 * bytes: what has no room any more goes, the oldest first, and is counted.
 *
 * Fingerprints of one site, context and inputs are a group: in it every output must be
 * the same. An opinion is the newest fingerprint of a worker and an output, as long as
 * it is here and the worker is not mute; a group's opinions stand in a ring, so
 * that one more costs the same however many there are. In no group is what has
 * no inputs, and where something decides that these do not show.
 */
#ifndef BRICKD_FINGERPRINT_WINDOW_H
#define BRICKD_FINGERPRINT_WINDOW_H

#include "brick_shm.h"

#include <stddef.h>

/* Of a worker's number for a site: where a record says nothing of that, no input shows all that decides there. It is
 * said by each worker of its own records alone: what stands for a site does not have it. */
#define BRICK_SITE_STATEFUL (UINT64_C(1) << 62)

struct brick_kept_fingerprint {
    uint64_t site;    /* of a kernel and a layer */
    uint64_t context; /* of all below that must be equal for two to be comparable */
    uint64_t inputs;  /* of the checksums of all inputs, and of the position, where the host said it; 0: there are no
                         inputs, or one could not be read */
    uint64_t group;   /* 0: it is in none */
    uint64_t output;  /* the checksum */
    uint32_t next, previous; /* of an opinion, in the ring of its group: the lower halves of their numbers */
    uint32_t count : 12;     /* of an opinion: how often it was said; so often, or more; 0: it is none */
    uint32_t alone : 20;     /* since another worker last had the same to do */
    uint32_t worker, service;
    uint64_t step, position, ticks;
    uint64_t backend, of, params, valid;
    uint64_t shard;   /* whose numbers these are alone; 0: nobody's, or its relation says that all shards have them */
    uint64_t at;      /* of its slots, counted from the first that ever came */
    uint32_t shape;   /* of the output */
    uint32_t form;    /* of the inputs: dtypes and shapes */
    uint16_t slots;
    uint8_t dtype, relation, inputs_count, flags; /* flags: enum brick_checked_flags */
    uint8_t stateful;           /* something decides what no input shows */
    uint8_t site_stateful : 1;  /* so what its worker calls the site says */
    uint8_t apart : 1;          /* there was room to count it by its site */
};

#define BRICK_OUTPUTS_MAX 2u /* opinions of one worker in a group: it contradicts itself, and more of them would say no more */

/* Where an opinion is found: any of a group's, and each of a worker's in it. */
struct brick_link {
    uint64_t from;    /* a digest of these; 0: it is free */
    uint32_t to;      /* the lower half of its number */
    uint32_t borders; /* of a group: how many in its ring stand before one of another output */
};

/* So many that are unlike are told at once, and of a site so many: of each fewer, where more sites wait. */
#define BRICK_UNLIKE_MAX 128u
#define BRICK_UNLIKE_OF_A_SITE 4u

/* Of one site of a service, since it was last told. */
struct brick_site_count {
    uint64_t site; /* as its workers have it: with BRICK_SITE_STATEFUL or without */
    uint32_t service;
    uint32_t changed : 1; /* it stands among p->changed */
    uint32_t waited : 31; /* how many fingerprints were unlike since these were last told, or more; if any, it stands among
                             p->waiting */
    uint64_t fingerprints;
    uint64_t bare;   /* without inputs */
    uint64_t stateful; /* with inputs that do not show all that decides */
    uint64_t met;    /* another worker had the same to do */
    uint64_t unlike; /* its group had another output */
    uint64_t gone;   /* they were no opinion any more before another worker had the same to do */
    uint64_t waiting[BRICK_UNLIKE_OF_A_SITE]; /* the numbers of some of these */
    struct {
        uint64_t waited;  /* how many more were unlike, and rounding may have made that; if any, it stands there, too */
        uint64_t waiting; /* the number of one of these: they keep nothing else from being looked at */
    } rounded[2];         /* in one place of the sketch at the most, and in several */
};
#define BRICK_SITE_COUNTS_MAX 65536u /* further ones are counted in the place of site 0 */

struct brick_fingerprints {
    struct brick_kept_fingerprint *fingerprints;  /* a ring */
    struct brick_record *slots;  /* a ring */
    struct brick_link *links;      /* open addressing */
    struct brick_site_count *counts; /* in the order in which sites were first heard of */
    uint32_t *counts_index;          /* of each site its place among these, and 1 more, by digest; 0: free */
    uint32_t *changed;               /* places: of what is not told yet */
    uint32_t *waiting;               /* a ring of places: of sites of which fingerprints wait, the longest first */
    uint64_t first, end;           /* numbers of fingerprints */
    uint64_t slots_first, slots_end;
    size_t fingerprints_room, slots_room, links_room, counts_room; /* powers of two, or 0 */
    size_t counts_used, changed_count;
    uint32_t waiting_first, waiting_end;
    size_t bytes_max;              /* 0: nothing is held, or counted */
    uint64_t refused;              /* records that are none */
    uint64_t unlike_all;           /* how many there were; of those that rounding may have made, one each time */
    uint64_t key;                  /* so that nobody can tell which groups lie beside each other */
};

/* Whose records, and what its numbers stand for: digests of texts, 0 of those that are not known. */
struct brick_origin {
    uint32_t worker, service;
    uint64_t shard; /* of the model, that it holds; 0: all of it */
    const uint64_t *sites, *names;
    size_t sites_count, names_count;
    int named; /* else what is not known stands for itself */
};

void brick_fingerprints_init(struct brick_fingerprints *p, size_t bytes_max, uint64_t key);
void brick_fingerprints_free(struct brick_fingerprints *p);

enum brick_added {
    BRICK_ADDED = 0,
    BRICK_ADDED_NOT,     /* it is no record */
    BRICK_ADDED_UNKNOWN, /* one of its numbers is not known to the speaker */
    BRICK_ADDED_NO_MEMORY
};

/* Adds the record that begins here, of the `left` slots that there are. */
enum brick_added brick_fingerprints_add(struct brick_fingerprints *p, const struct brick_origin *by,
                                  const struct brick_record *slots, size_t left);

/* Nothing is known of a service's sites any more. 0: there is no memory, and nothing is changed. */
int brick_fingerprints_forget(struct brick_fingerprints *p, uint32_t service);

/* What some workers said is no opinion any more: in no group is anything of theirs. Sorts the numbers. */
void brick_fingerprints_mute(struct brick_fingerprints *p, uint32_t *workers, size_t count);

/* Puts down what was counted of p->changed_count sites since this was last called. */
void brick_fingerprints_take_counts(struct brick_fingerprints *p, struct brick_site_count *counts);

/* Puts down the numbers of fingerprints that are unlike, at most BRICK_UNLIKE_MAX, none of them twice. How many: no site keeps
 * another one waiting for ever. */
size_t brick_fingerprints_take_unlike(struct brick_fingerprints *p, uint64_t *numbers);

/* By the number of a worker, as far as the largest of these goes, its place among them; UINT32_MAX of who is none of
 * them. `room`: of so many numbers. NULL: there is no memory. */
uint32_t *brick_places(const uint32_t *workers, size_t count, size_t *room);

/* Some workers, and under which numbers they and their services are known where what they said is copied to. */
struct brick_renumbered {
    const uint32_t *workers, *as, *services;
    size_t count;
    uint64_t *ends; /* found: of each the number after the last one of its own there; 0: there is none */
};

/* Has theirs beside its own, as if they had come now; they meet nobody. 0: there is no memory. */
int brick_fingerprints_copy(struct brick_fingerprints *p, const struct brick_fingerprints *from, const struct brick_renumbered *r);

static inline int brick_fingerprints_hold(const struct brick_fingerprints *p, uint64_t number)
{
    return number >= p->first && number < p->end;
}

/* The fingerprint of a number from p->first to p->end - 1, and its slots, one behind the other (BRICK_CHECKED_SLOTS_MAX fit). */
const struct brick_kept_fingerprint *brick_fingerprints_at(const struct brick_fingerprints *p, uint64_t number);
void brick_fingerprints_slots(const struct brick_fingerprints *p, const struct brick_kept_fingerprint *fingerprint, struct brick_record *slots);

/* Its worker's number for the site. */
static inline uint64_t brick_fingerprint_site(const struct brick_kept_fingerprint *fingerprint)
{
    return fingerprint->site | (fingerprint->site_stateful ? BRICK_SITE_STATEFUL : 0);
}

/* Whether it may be held against others. */
static inline int brick_fingerprint_is_grouped(const struct brick_kept_fingerprint *fingerprint) { return fingerprint->inputs != 0 && !fingerprint->stateful; }

/* The number of an opinion in the group of a fingerprint, any; p->end: there is none. And of the one behind it, around. */
uint64_t brick_fingerprints_current(const struct brick_fingerprints *p, const struct brick_kept_fingerprint *fingerprint);
uint64_t brick_fingerprints_next(const struct brick_fingerprints *p, uint64_t opinion);

#endif
