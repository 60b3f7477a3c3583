/* core/fingerprint_window.h - the newest fingerprints of workers, and which of them must agree.
 *
 * A fingerprint is one CHECKED record with the digests that decide what it is compared
 * with. Names are digests of their texts, so that numbers of one worker's segment mean
 * nothing here. Fingerprints keep the order in which they came, within a bound of bytes:
 * the oldest make room, and are counted.
 *
 * Fingerprints of one site, context and inputs are a group: all outputs in it must be
 * equal. The current fingerprint of a worker and an output is the newest, as long as it is
 * in the window and the worker is not mute. The current ones of a group form a ring, so
 * that adding one costs the same however many there are. A fingerprint without inputs, or
 * with a state that its inputs do not show, is in no group.
 */
#ifndef BRICKD_FINGERPRINT_WINDOW_H
#define BRICKD_FINGERPRINT_WINDOW_H

#include "brick_shm.h"

#include <stddef.h>

/* In a worker's number for a site: unless the record says otherwise, its inputs do not show all that decides. Each worker says
 * it of its own records alone, so a site's digest does not have it. */
#define BRICK_SITE_STATEFUL (UINT64_C(1) << 62)

struct brick_kept_fingerprint {
    uint64_t site;    /* of a kernel and a layer */
    uint64_t context; /* of all below that must be equal for two to be comparable */
    uint64_t inputs;  /* of the checksums of all inputs, and of the position if the host named it; 0: no readable inputs */
    uint64_t group;   /* 0: none */
    uint64_t output;  /* the checksum */
    uint32_t next, previous; /* of a current one, in the ring of its group: the lower halves of their numbers */
    uint32_t count : 12;     /* how often its worker had this output, or more; 0: it is not current */
    uint32_t alone : 20;     /* how often since another worker was last in the group */
    uint32_t worker, service;
    uint64_t step, position, ticks;
    uint64_t backend, of, params, valid;
    uint64_t shard;   /* of the model, if its numbers belong to that alone; else 0 */
    uint64_t at;      /* of its slots, counted from the first that ever came */
    uint32_t shape;   /* of the output */
    uint32_t form;    /* of the inputs: dtypes and shapes */
    uint16_t slots;
    uint8_t dtype, relation, inputs_count, flags; /* flags: enum brick_checked_flags */
    uint8_t stateful;           /* something decides what no input shows */
    uint8_t site_stateful : 1;  /* its worker says so of the site */
    uint8_t own_count : 1;      /* there was room to count its site separately */
};

#define BRICK_OUTPUTS_MAX 2u /* current ones of a worker in a group: two contradict each other, and more would say no more */

/* The index: of a group any current fingerprint, of a worker in it each. */
struct brick_link {
    uint64_t from;    /* a digest of group, or of group and worker; 0: free */
    uint32_t to;      /* the lower half of the fingerprint's number */
    uint32_t borders; /* of a group: how often two neighbours in its ring have different outputs */
};

/* At most so many unlike fingerprints are taken at once; so many of a site, or fewer where more sites wait. */
#define BRICK_UNLIKE_MAX 128u
#define BRICK_UNLIKE_OF_A_SITE 4u

/* Of one site of a service, since the counts were last taken. */
struct brick_site_count {
    uint64_t site; /* with or without BRICK_SITE_STATEFUL, as its workers have it */
    uint32_t service;
    uint32_t changed : 1; /* it is among p->changed */
    uint32_t waited : 31; /* unlike fingerprints since some were last taken, or more; if any, it is among p->waiting */
    uint64_t fingerprints;
    uint64_t bare;     /* without inputs */
    uint64_t stateful; /* with inputs that do not show all that decides */
    uint64_t met;      /* with another worker in the group */
    uint64_t unlike;   /* with another output in the group */
    uint64_t gone;     /* no longer current before another worker came into the group */
    uint64_t waiting[BRICK_UNLIKE_OF_A_SITE]; /* the numbers of some of the unlike ones */
    struct {
        uint64_t waited;  /* unlike ones that rounding may explain; if any, the site is among p->waiting, too */
        uint64_t waiting; /* the number of one: they keep no other from being looked at */
    } rounded[2];         /* in one place of the sketch at most, and in several */
};
#define BRICK_SITE_COUNTS_MAX 65536u
#define BRICK_BIRTHS_MAX 65536u

enum { BRICK_BORN_NAN, BRICK_BORN_POS_INF, BRICK_BORN_NEG_INF, BRICK_NOT_FINITE };

/* Of one worker at one site (births.h). Counts stop at their largest number. */
struct brick_births {
    uint64_t site, last;           /* without BRICK_SITE_STATEFUL; the number of its newest fingerprint */
    uint32_t service, worker;
    uint32_t fingerprints;         /* 0: the row is to be dropped */
    uint32_t first[BRICK_NOT_FINITE]; /* the fingerprint, counted from 1, in which a kind was born first */
    uint32_t times[BRICK_NOT_FINITE];
};

struct brick_births_table {
    struct brick_births *rows;
    uint32_t *index; /* of each worker and site its place among these plus 1; 0: free */
    size_t room, used, most;
    uint64_t untracked; /* fingerprints that found no row */
    uint64_t tidied;    /* how many fingerprints there were when the full table was tidied last; 0: never */
    int any;            /* whether anything was ever born */
};

struct brick_fingerprints {
    struct brick_kept_fingerprint *fingerprints;  /* a ring */
    struct brick_record *slots;  /* a ring */
    struct brick_link *links;    /* open addressing */
    struct brick_site_count *counts; /* in the order in which sites came */
    uint32_t *counts_index;          /* by digest, of each site its place among these plus 1; 0: free */
    uint32_t *changed;               /* places of the counts that changed */
    uint32_t *waiting;               /* a ring of places: sites with unlike fingerprints, the longest wait first */
    uint64_t first, end;             /* numbers of fingerprints */
    uint64_t slots_first, slots_end;
    size_t fingerprints_room, slots_room, links_room, counts_room; /* powers of two, or 0 */
    size_t counts_used, changed_count;
    uint32_t waiting_first, waiting_end;
    size_t bytes_max;    /* 0: nothing is kept or counted */
    size_t counts_max;   /* further sites are counted as site 0 */
    uint64_t refused;    /* invalid records */
    uint64_t unlike_all; /* unlike fingerprints; those that rounding may explain count once each time they are taken */
    struct brick_births_table births;
    uint64_t key;        /* random, so that no worker can make groups collide */
};

/* A worker, and what its numbers stand for: digests of texts, 0 where one is unknown. */
struct brick_origin {
    uint32_t worker, service;
    uint64_t shard; /* the part of the model that it holds; 0: all of it */
    const uint64_t *sites, *names;
    size_t sites_count, names_count;
    int named; /* else an unknown number stands for itself */
};

void brick_fingerprints_init(struct brick_fingerprints *p, size_t bytes_max, uint64_t key);
void brick_fingerprints_free(struct brick_fingerprints *p);

/* Changes the bound of bytes, which is not 0. Fingerprints that have no room within it leave, the oldest first. 0: no memory,
 * and the window is as large as before. */
int brick_fingerprints_limit(struct brick_fingerprints *p, size_t bytes_max);

enum brick_added {
    BRICK_ADDED = 0,
    BRICK_ADDED_NOT,     /* an invalid record */
    BRICK_ADDED_UNKNOWN, /* one of its numbers has no digest yet */
    BRICK_ADDED_NO_MEMORY
};

/* Adds the record that begins here, of the `left` slots that follow. */
enum brick_added brick_fingerprints_add(struct brick_fingerprints *p, const struct brick_origin *by,
                                        const struct brick_record *slots, size_t left);

/* Drops the counts of a service's sites. 0: no memory, and nothing changed. */
int brick_fingerprints_forget(struct brick_fingerprints *p, uint32_t service);

/* Takes the fingerprints of some workers out of all groups. Sorts the numbers. */
void brick_fingerprints_mute(struct brick_fingerprints *p, uint32_t *workers, size_t count);

/* Copies the p->changed_count counts that changed since the last call, and resets them. */
void brick_fingerprints_take_counts(struct brick_fingerprints *p, struct brick_site_count *counts);

/* Puts the numbers of at most so many unlike fingerprints, none of them twice. Returns how many: no site keeps another one
 * waiting for ever. */
size_t brick_fingerprints_take_unlike(struct brick_fingerprints *p, uint64_t *numbers, uint32_t most);

/* An array of each worker's place among these, by its number; UINT32_MAX: not one of them. `room`: its length. NULL: no
 * memory. */
uint32_t *brick_places(const uint32_t *workers, size_t count, size_t *room);

/* Workers, and the numbers that they and their services get in the copy. */
struct brick_renumbered {
    const uint32_t *workers, *as, *services;
    size_t count;
    uint64_t *ends; /* result, of each: the number after its last fingerprint in the copy, or 0 */
};

/* Appends the fingerprints of these workers, in no group. 0: no memory. */
int brick_fingerprints_copy(struct brick_fingerprints *p, const struct brick_fingerprints *from,
                            const struct brick_renumbered *r);

static inline int brick_fingerprints_hold(const struct brick_fingerprints *p, uint64_t number)
{
    return number >= p->first && number < p->end;
}

/* The fingerprint with a number that p holds, and its slots in one piece (BRICK_CHECKED_SLOTS_MAX fit). */
const struct brick_kept_fingerprint *brick_fingerprints_at(const struct brick_fingerprints *p, uint64_t number);
void brick_fingerprints_slots(const struct brick_fingerprints *p, const struct brick_kept_fingerprint *fingerprint,
                              struct brick_record *slots);

/* Its worker's number for the site. */
static inline uint64_t brick_fingerprint_site(const struct brick_kept_fingerprint *fingerprint)
{
    return fingerprint->site | (fingerprint->site_stateful ? BRICK_SITE_STATEFUL : 0);
}

/* Whether it is compared by its inputs. */
static inline int brick_fingerprint_is_grouped(const struct brick_kept_fingerprint *fingerprint)
{
    return fingerprint->inputs != 0 && !fingerprint->stateful;
}

/* The number of some current fingerprint in the group of this one, or p->end; and of the one after it in the ring. */
uint64_t brick_fingerprints_current(const struct brick_fingerprints *p, const struct brick_kept_fingerprint *fingerprint);
uint64_t brick_fingerprints_next(const struct brick_fingerprints *p, uint64_t current);

#endif
