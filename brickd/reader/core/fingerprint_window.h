/* core/fingerprint_window.h - the newest fingerprints of workers, and which of them must agree.
 *
 * A fingerprint here is one CHECKED record, together with digests of everything that decides with which fingerprints it
 * is compared. Names are replaced by digests of their texts, because the ids in a worker's segment have no meaning
 * outside of that segment. The window keeps fingerprints in the order of their arrival. When they need more than a
 * bound of bytes, the oldest are evicted and counted.
 *
 * Fingerprints with the same site, context and inputs form a group: all outputs in a group must be equal. Among the
 * fingerprints of one worker in a group that have the same output, only the newest is current. It stays current until
 * it is evicted or its worker is muted. The current fingerprints of a group form a ring, so the cost of inserting one
 * does not depend on how many there are. A fingerprint is in no group if it has no inputs, or if its output depends on
 * more than its inputs.
 *
 * A record of rows becomes one fingerprint per row. These fingerprints have a separate site, because BRICK_SITE_ROWS
 * is set in the site's digest. So rows are never compared with whole tensors, and they are counted separately. Which
 * kernel runs depends on the number of rows in the call, so one worker may have several outputs for the same row.
 *
 * Rows with a history have a separate site, too (BRICK_SITE_HISTORY). In place of their inputs, their history, lineage and
 * position decide with which rows they must agree.
 */
#ifndef BRICKD_FINGERPRINT_WINDOW_H
#define BRICKD_FINGERPRINT_WINDOW_H

#include "brick_shm.h"

#include <stddef.h>

/* A worker sets this flag in the number of a site to say that the site is stateful: its outputs depend on more than
 * their inputs, except in records that say otherwise. The digest of a site does not include the flag, because it must
 * be the same for workers that do not flag the site. */
#define BRICK_SITE_STATEFUL (UINT64_C(1) << 62)
/* A flag in a site's digest: the site's fingerprints are single rows. */
#define BRICK_SITE_ROWS (UINT64_C(1) << 61)
/* A flag in a site's digest: the site's fingerprints are rows with a history. */
#define BRICK_SITE_HISTORY (UINT64_C(1) << 60)

/* Fingerprints of different tiers are never compared. */
enum brick_tier {
    BRICK_TIER_TENSORS = 0, /* whole tensors */
    BRICK_TIER_ROWS,        /* single rows, by their input rows */
    BRICK_TIER_HISTORY,     /* single rows, by their histories */
    BRICK_TIERS
};

static inline enum brick_tier brick_tier_of_flags(uint8_t flags) /* enum brick_checked_flags */
{
    return (flags & BRICK_CHECKED_HISTORY) != 0 ? BRICK_TIER_HISTORY
           : (flags & BRICK_CHECKED_ROWS) != 0  ? BRICK_TIER_ROWS
                                                : BRICK_TIER_TENSORS;
}

static inline enum brick_tier brick_tier_of_site(uint64_t site)
{
    return (site & BRICK_SITE_HISTORY) != 0 ? BRICK_TIER_HISTORY
           : (site & BRICK_SITE_ROWS) != 0  ? BRICK_TIER_ROWS
                                            : BRICK_TIER_TENSORS;
}

struct brick_kept_fingerprint {
    uint64_t site;    /* digest of kernel and layer */
    uint64_t context; /* digest of everything that must be equal for a comparison, except the inputs */
    uint64_t inputs;  /* digest of all inputs, and of the position if the host gave it; 0: no readable inputs. For a row
                       * with a history: digest of its history, lineage and position */
    uint64_t group;   /* digest of the group; 0: in no group */
    uint64_t output;  /* the output's checksum */
    uint32_t next, previous; /* if current: the lower halves of the numbers of its neighbours in the group's ring */
    uint32_t count : 12;     /* how often its worker had this output, at most COUNT_MAX; 0: not current */
    uint32_t alone : 20;     /* how many of these times the group had no other worker */
    uint32_t worker, service;
    uint64_t step, position, ticks;
    uint64_t backend, of, params, valid;
    uint64_t shard;   /* digest of the part of the model to which the values belong; 0: not only to one part */
    uint64_t at;      /* the number of its first slot; slots are numbered from the first one ever added */
    uint32_t shape;   /* the shape of the output */
    uint32_t form;    /* digest of the dtypes and shapes of the inputs */
    uint16_t slots;
    uint8_t dtype, relation, inputs_count, flags; /* flags: enum brick_checked_flags */
    uint8_t stateful;           /* whether the output depends on state that is not an input */
    uint8_t site_stateful : 1;  /* whether the worker flags the site as stateful */
    uint8_t own_count : 1;      /* whether the site has separate counts, and is not counted as site 0 */
    uint8_t steps : 1;          /* whether the worker had this output in several steps, or several times without a step */
};

/* A worker has at most this many current fingerprints in a group. Two are enough to show that the worker contradicts
 * itself. */
#define BRICK_OUTPUTS_MAX 2u
#define BRICK_ROW_OUTPUTS_MAX 8u /* the same limit for rows: calls of another size may use another kernel */

/* An entry of the index, which finds fingerprints. Each group has one entry, which refers to any of its current
 * fingerprints. Each worker in a group also has an entry for each of its current fingerprints there. */
struct brick_link {
    uint64_t from;    /* a digest of the group, or of group and worker; 0: free */
    uint32_t to;      /* the lower half of the fingerprint's number */
    uint32_t borders; /* for a group: how many pairs of neighbours in its ring have different outputs */
};

/* A fingerprint is unlike if its group also has another output. One call of brick_fingerprints_take_unlike returns at
 * most BRICK_UNLIKE_MAX of them. Until this call, each site keeps at most BRICK_UNLIKE_OF_A_SITE unlike fingerprints,
 * and at most two more whose differences may be due to rounding. */
#define BRICK_UNLIKE_MAX 128u
#define BRICK_UNLIKE_OF_A_SITE 4u

/* The counts of one site of a service since the last call of brick_fingerprints_take_counts. */
struct brick_site_count {
    uint64_t site; /* the site's number, with BRICK_SITE_STATEFUL if the workers flag the site */
    uint32_t service;
    uint32_t changed : 1; /* whether the site is in p->changed */
    /* The number of unlike fingerprints since the site was last in the result of brick_fingerprints_take_unlike, at
     * most WAITED_MAX. If it is above 0, the site is in p->waiting. */
    uint32_t waited : 31;
    uint64_t fingerprints;
    uint64_t bare;     /* how many fingerprints had no readable inputs */
    uint64_t stateful; /* how many had an output that depends on more than the inputs */
    uint64_t met;      /* how many have or had another worker in their group */
    uint64_t unlike;   /* how many found another output in their group */
    uint64_t gone;     /* how many were evicted or muted before another worker joined their group */
    uint64_t waiting[BRICK_UNLIKE_OF_A_SITE]; /* the numbers of some unlike fingerprints */
    struct {
        uint64_t waited;  /* unlike fingerprints that rounding may explain; if above 0, the site is in p->waiting */
        uint64_t waiting; /* the number of one of them, kept apart from the others that wait */
    } rounded[2];         /* [0]: the difference is in at most one place of the sketch; [1]: in several places */
};
#define BRICK_SITE_COUNTS_MAX 65536u
#define BRICK_BIRTHS_MAX 65536u

enum { BRICK_BORN_NAN, BRICK_BORN_POS_INF, BRICK_BORN_NEG_INF, BRICK_NOT_FINITE };

/* The counts of one worker at one site (births.h). A count that reaches its maximum stays there. */
struct brick_births {
    uint64_t site, last;           /* the site without BRICK_SITE_STATEFUL; the number of the newest fingerprint */
    uint32_t service, worker;
    uint32_t fingerprints;         /* the number of fingerprints; 0: the row will be dropped */
    uint32_t first[BRICK_NOT_FINITE]; /* for each kind: which fingerprint had the first birth, counted from 1 */
    uint32_t times[BRICK_NOT_FINITE];
};

struct brick_births_table {
    struct brick_births *rows;
    uint32_t *index; /* each row's place in `rows` plus 1, by digest of worker and site; 0: free */
    size_t room, used, most;
    uint64_t untracked; /* how many fingerprints got no row */
    uint64_t tidied;    /* the value of p->end when the full table was last cleaned; 0: never cleaned */
    int any;            /* whether there was ever a birth */
};

struct brick_fingerprints {
    struct brick_kept_fingerprint *fingerprints;  /* a ring buffer */
    struct brick_record *slots;  /* a ring buffer */
    struct brick_link *links;    /* a hash table with open addressing */
    struct brick_site_count *counts; /* the counts of sites, in order of arrival */
    uint32_t *counts_index;          /* each site's place in `counts` plus 1, by digest; 0: free */
    uint32_t *changed;               /* the places in `counts` of the counts that changed */
    uint32_t *waiting;               /* a ring of places in `counts`: sites with fingerprints that wait, oldest first */
    uint64_t first, end;             /* the window holds the fingerprints with the numbers first to end - 1 */
    uint64_t slots_first, slots_end;
    size_t fingerprints_room, slots_room, links_room, counts_room; /* powers of two, or 0 */
    size_t counts_used, changed_count;
    uint32_t waiting_first, waiting_end;
    size_t bytes_max;    /* 0: fingerprints are not kept or counted */
    size_t counts_max;   /* further sites are counted as site 0 */
    uint64_t refused;    /* the number of invalid records */
    uint64_t unlike_all; /* unlike fingerprints; those that rounding may explain count once per site and kind
                          * between two calls of brick_fingerprints_take_unlike */
    struct brick_births_table births;
    uint64_t key;        /* random, so that no worker can make groups collide */
};

/* The worker of a record. `sites` and `names` map the numbers in its records to digests; the digest 0 means unknown. */
struct brick_origin {
    uint32_t worker, service;
    uint64_t shard; /* the worker's part of the model; 0: it has the complete model */
    const uint64_t *sites, *names;
    size_t sites_count, names_count;
    int named; /* 1: refuse records with unknown numbers; 0: use a digest of the number instead */
};

void brick_fingerprints_init(struct brick_fingerprints *p, size_t bytes_max, uint64_t key);
void brick_fingerprints_free(struct brick_fingerprints *p);

/* Sets the bound of bytes, which must not be 0, and evicts the oldest fingerprints until the others fit. If out of
 * memory, returns 0, and the window keeps its present memory. */
int brick_fingerprints_limit(struct brick_fingerprints *p, size_t bytes_max);

enum brick_added {
    BRICK_ADDED = 0,
    BRICK_ADDED_NOT,     /* an invalid record */
    BRICK_ADDED_UNKNOWN, /* an id in the record has no digest yet */
    BRICK_ADDED_NO_MEMORY
};

/* Adds the record at `slots`, where `left` slots are readable. */
enum brick_added brick_fingerprints_add(struct brick_fingerprints *p, const struct brick_origin *by,
                                        const struct brick_record *slots, size_t left);

/* Drops the counts of a service's sites. Returns 0, and changes nothing, if out of memory. */
int brick_fingerprints_forget(struct brick_fingerprints *p, uint32_t service);

/* Removes the fingerprints of these workers from all groups. Sorts `workers`. */
void brick_fingerprints_mute(struct brick_fingerprints *p, uint32_t *workers, size_t count);

/* Copies the counts of the sites that changed since the last call, which are p->changed_count, and resets them to 0. */
void brick_fingerprints_take_counts(struct brick_fingerprints *p, struct brick_site_count *counts);

/* Copies the numbers of at most `most` unlike fingerprints, and returns how many. Each number is returned once. The
 * sites take turns, so that no site waits forever. */
size_t brick_fingerprints_take_unlike(struct brick_fingerprints *p, uint64_t *numbers, uint32_t most);

/* Returns an array that maps a worker's number to its place in `workers`, or to UINT32_MAX. *room: the array's length.
 * Returns NULL if out of memory. */
uint32_t *brick_places(const uint32_t *workers, size_t count, size_t *room);

/* The workers to copy: their numbers, their new numbers, and the new numbers of their services. */
struct brick_renumbered {
    const uint32_t *workers, *as, *services;
    size_t count;
    uint64_t *ends; /* result, for each worker: the number after its last fingerprint in the copy; 0: it has none */
};

/* Appends the fingerprints of these workers, without groups. Returns 0 if out of memory. */
int brick_fingerprints_copy(struct brick_fingerprints *p, const struct brick_fingerprints *from,
                            const struct brick_renumbered *r);

static inline int brick_fingerprints_hold(const struct brick_fingerprints *p, uint64_t number)
{
    return number >= p->first && number < p->end;
}

/* brick_fingerprints_at returns the fingerprint with this number in p. brick_fingerprints_slots copies its slots, of
 * which there are at most BRICK_CHECKED_SLOTS_MAX, to a contiguous array. */
const struct brick_kept_fingerprint *brick_fingerprints_at(const struct brick_fingerprints *p, uint64_t number);
void brick_fingerprints_slots(const struct brick_fingerprints *p, const struct brick_kept_fingerprint *fingerprint,
                              struct brick_record *slots);

/* Returns a number that is different for each step: the step or, for a fingerprint without a step, its time. */
static inline uint64_t brick_fingerprint_step(const struct brick_kept_fingerprint *fingerprint)
{
    return (fingerprint->flags & BRICK_CHECKED_STEP) != 0 ? fingerprint->step : fingerprint->ticks;
}

static inline enum brick_tier brick_fingerprint_tier(const struct brick_kept_fingerprint *fingerprint)
{
    return brick_tier_of_flags(fingerprint->flags);
}

/* Returns the site, with BRICK_SITE_STATEFUL if the worker flags the site. */
static inline uint64_t brick_fingerprint_site(const struct brick_kept_fingerprint *fingerprint)
{
    return fingerprint->site | (fingerprint->site_stateful ? BRICK_SITE_STATEFUL : 0);
}

/* Returns whether the fingerprint is in a group, that is, compared with fingerprints of equal inputs. */
static inline int brick_fingerprint_is_grouped(const struct brick_kept_fingerprint *fingerprint)
{
    return fingerprint->inputs != 0 && !fingerprint->stateful;
}

/* brick_fingerprints_current returns the number of any current fingerprint in the group of this fingerprint, or p->end
 * if there is none. brick_fingerprints_next returns the number of the next one in the group's ring. */
uint64_t brick_fingerprints_current(const struct brick_fingerprints *p, const struct brick_kept_fingerprint *fingerprint);
uint64_t brick_fingerprints_next(const struct brick_fingerprints *p, uint64_t current);

#endif
