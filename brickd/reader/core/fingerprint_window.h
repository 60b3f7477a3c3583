/* core/fingerprint_window.h - the newest fingerprints of workers, and which of them must agree.
 *
 * A fingerprint here is one CHECKED record with the digests that select its counterparts. Names are replaced by digests
 * of their texts, because the ids in a worker's segment have no meaning outside of that segment. Fingerprints stay in
 * order of arrival, within a bound of bytes: the oldest are evicted and counted.
 *
 * Fingerprints with one site, context and inputs are a group: all outputs in a group must be equal. For each worker and
 * output, the newest fingerprint is current, while it is in the window and the worker is not muted. The current
 * fingerprints of a group form a ring, so the cost of inserting one does not depend on how many there are. A
 * fingerprint without inputs, or with state beyond its inputs, is in no group.
 *
 * A record of rows becomes one fingerprint per row. These fingerprints have a separate site, because BRICK_SITE_ROWS
 * is set in the site's digest. So rows are never compared with whole tensors, and they are counted separately. The
 * number of rows decides which kernel runs, so the same row may have several outputs in one worker.
 */
#ifndef BRICKD_FINGERPRINT_WINDOW_H
#define BRICKD_FINGERPRINT_WINDOW_H

#include "brick_shm.h"

#include <stddef.h>

/* A flag in the number that stands for a worker's site: unless a record says otherwise, its output depends on more than
 * its inputs. The digest of a site does not include this flag, because a worker flags only its own records. */
#define BRICK_SITE_STATEFUL (UINT64_C(1) << 62)
/* A flag in a site's digest: the site's fingerprints are single rows. */
#define BRICK_SITE_ROWS (UINT64_C(1) << 61)

struct brick_kept_fingerprint {
    uint64_t site;    /* digest of kernel and layer */
    uint64_t context; /* digest of everything that must be equal for a comparison, except the inputs */
    uint64_t inputs;  /* digest of all input checksums, and of a position from the host; 0: no inputs, or one is unreadable */
    uint64_t group;   /* the group; 0: none */
    uint64_t output;  /* the output's checksum */
    uint32_t next, previous; /* if current: lower halves of the numbers of its neighbours in the group's ring */
    uint32_t count : 12;     /* how often its worker had this output, up to the maximum; 0: it is not current */
    uint32_t alone : 20;     /* how often since another worker was last in the group */
    uint32_t worker, service;
    uint64_t step, position, ticks;
    uint64_t backend, of, params, valid;
    uint64_t shard;   /* the part of the model, if the values belong only to that part; else 0 */
    uint64_t at;      /* the number of its first slot, counted from the first slot ever added */
    uint32_t shape;   /* the shape of the output */
    uint32_t form;    /* digest of the dtypes and shapes of the inputs */
    uint16_t slots;
    uint8_t dtype, relation, inputs_count, flags; /* flags: enum brick_checked_flags */
    uint8_t stateful;           /* whether the output depends on state that is not an input */
    uint8_t site_stateful : 1;  /* whether the worker flags the site as stateful */
    uint8_t own_count : 1;      /* whether the site has counts of its own */
    uint8_t steps : 1;          /* whether the worker had this output in several steps, or several times without a step */
};

/* The limit of a worker's current fingerprints in a group. Two are enough to show that it contradicts itself. */
#define BRICK_OUTPUTS_MAX 2u
#define BRICK_ROW_OUTPUTS_MAX 8u /* BRICK_OUTPUTS_MAX for rows: calls of another size may use another kernel */

/* The index. A group has one entry, for any of its current fingerprints. A worker in a group has an entry for each of
 * the worker's current fingerprints. */
struct brick_link {
    uint64_t from;    /* a digest of the group, or of group and worker; 0: free */
    uint32_t to;      /* the lower half of the fingerprint's number */
    uint32_t borders; /* for a group: how many neighbours in its ring have different outputs */
};

/* The limits of unlike fingerprints that one call takes: in total, and of one site (fewer if more sites wait). */
#define BRICK_UNLIKE_MAX 128u
#define BRICK_UNLIKE_OF_A_SITE 4u

/* The counts of one site of a service since they were last taken. */
struct brick_site_count {
    uint64_t site; /* the site's number, with BRICK_SITE_STATEFUL if the workers flag the site */
    uint32_t service;
    uint32_t changed : 1; /* whether the site is in p->changed */
    /* Unlike fingerprints since some were last taken, up to the maximum; above 0, the site is in p->waiting. */
    uint32_t waited : 31;
    uint64_t fingerprints;
    uint64_t bare;     /* fingerprints without readable inputs */
    uint64_t stateful; /* fingerprints with an output that depends on more than the inputs */
    uint64_t met;      /* fingerprints whose group has another worker */
    uint64_t unlike;   /* fingerprints whose group has another output */
    uint64_t gone;     /* fingerprints evicted or replaced before another worker joined the group */
    uint64_t waiting[BRICK_UNLIKE_OF_A_SITE]; /* the numbers of some unlike fingerprints */
    struct {
        uint64_t waited;  /* unlike fingerprints that rounding may explain; above 0, the site is in p->waiting */
        uint64_t waiting; /* the number of one such fingerprint; it does not displace the other unlike fingerprints */
    } rounded[2];         /* [0]: the difference is in at most one place of the sketch; [1]: in several places */
};
#define BRICK_SITE_COUNTS_MAX 65536u
#define BRICK_BIRTHS_MAX 65536u

enum { BRICK_BORN_NAN, BRICK_BORN_POS_INF, BRICK_BORN_NEG_INF, BRICK_NOT_FINITE };

/* The counts of one worker at one site (births.h), each up to its maximum. */
struct brick_births {
    uint64_t site, last;           /* the site without BRICK_SITE_STATEFUL; the number of the newest fingerprint */
    uint32_t service, worker;
    uint32_t fingerprints;         /* the number of fingerprints; 0: the row will be dropped */
    uint32_t first[BRICK_NOT_FINITE]; /* for each kind, the fingerprint (counted from 1) of the first birth */
    uint32_t times[BRICK_NOT_FINITE];
};

struct brick_births_table {
    struct brick_births *rows;
    uint32_t *index; /* each row's place in `rows` plus 1, by digest of worker and site; 0: free */
    size_t room, used, most;
    uint64_t untracked; /* fingerprints without a row */
    uint64_t tidied;    /* p->end when the full table was last cleaned; 0: never */
    int any;            /* whether there ever was a birth */
};

struct brick_fingerprints {
    struct brick_kept_fingerprint *fingerprints;  /* a ring */
    struct brick_record *slots;  /* a ring */
    struct brick_link *links;    /* a hash table with open addressing */
    struct brick_site_count *counts; /* the counts of sites, in order of arrival */
    uint32_t *counts_index;          /* each site's place in `counts` plus 1, by digest; 0: free */
    uint32_t *changed;               /* places of the counts that changed */
    uint32_t *waiting;               /* a ring of places: sites with unlike fingerprints, the longest waiting first */
    uint64_t first, end;             /* the window holds the numbers [first, end) */
    uint64_t slots_first, slots_end;
    size_t fingerprints_room, slots_room, links_room, counts_room; /* powers of two, or 0 */
    size_t counts_used, changed_count;
    uint32_t waiting_first, waiting_end;
    size_t bytes_max;    /* 0: fingerprints are not kept or counted */
    size_t counts_max;   /* further sites are counted as site 0 */
    uint64_t refused;    /* the number of invalid records */
    uint64_t unlike_all; /* unlike fingerprints; if rounding may explain them, only one per site, kind and take */
    struct brick_births_table births;
    uint64_t key;        /* random, so that no worker can make groups collide */
};

/* A worker, and the digests of the texts for its numbers; 0: unknown. */
struct brick_origin {
    uint32_t worker, service;
    uint64_t shard; /* the worker's part of the model; 0: it has the complete model */
    const uint64_t *sites, *names;
    size_t sites_count, names_count;
    int named; /* 0: an unknown number is used unchanged */
};

void brick_fingerprints_init(struct brick_fingerprints *p, size_t bytes_max, uint64_t key);
void brick_fingerprints_free(struct brick_fingerprints *p);

/* Sets the bound of bytes, which must not be 0, and evicts the oldest fingerprints above it. If out of memory, returns
 * 0, and the window keeps its memory. */
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

/* Copies the p->changed_count counts that changed since the last call, and resets them. */
void brick_fingerprints_take_counts(struct brick_fingerprints *p, struct brick_site_count *counts);

/* Copies the numbers of at most `most` unlike fingerprints, each once, and returns their count. Sites take turns, so
 * that none waits forever. */
size_t brick_fingerprints_take_unlike(struct brick_fingerprints *p, uint64_t *numbers, uint32_t most);

/* Returns an array that maps a worker's number to its place in `workers`, or to UINT32_MAX. *room: the array's length.
 * Returns NULL if out of memory. */
uint32_t *brick_places(const uint32_t *workers, size_t count, size_t *room);

/* The workers to copy, with their numbers and their services' numbers in the copy. */
struct brick_renumbered {
    const uint32_t *workers, *as, *services;
    size_t count;
    uint64_t *ends; /* result, per worker: the number after its last fingerprint in the copy, or 0 */
};

/* Appends the fingerprints of these workers, without groups. Returns 0 if out of memory. */
int brick_fingerprints_copy(struct brick_fingerprints *p, const struct brick_fingerprints *from,
                            const struct brick_renumbered *r);

static inline int brick_fingerprints_hold(const struct brick_fingerprints *p, uint64_t number)
{
    return number >= p->first && number < p->end;
}

/* brick_fingerprints_at returns the fingerprint with this number in p. The next function returns a contiguous copy of
 * its slots, at most BRICK_CHECKED_SLOTS_MAX. */
const struct brick_kept_fingerprint *brick_fingerprints_at(const struct brick_fingerprints *p, uint64_t number);
void brick_fingerprints_slots(const struct brick_fingerprints *p, const struct brick_kept_fingerprint *fingerprint,
                              struct brick_record *slots);

/* Returns a number that differs between steps. For a fingerprint without a step, returns the time of the call. */
static inline uint64_t brick_fingerprint_step(const struct brick_kept_fingerprint *fingerprint)
{
    return (fingerprint->flags & BRICK_CHECKED_STEP) != 0 ? fingerprint->step : fingerprint->ticks;
}

static inline int brick_fingerprint_is_row(const struct brick_kept_fingerprint *fingerprint)
{
    return (fingerprint->flags & BRICK_CHECKED_ROWS) != 0;
}

/* Returns the site, with the worker's flag. */
static inline uint64_t brick_fingerprint_site(const struct brick_kept_fingerprint *fingerprint)
{
    return fingerprint->site | (fingerprint->site_stateful ? BRICK_SITE_STATEFUL : 0);
}

/* Returns whether the fingerprint is compared with others of equal inputs. */
static inline int brick_fingerprint_is_grouped(const struct brick_kept_fingerprint *fingerprint)
{
    return fingerprint->inputs != 0 && !fingerprint->stateful;
}

/* Returns the number of a current fingerprint in this fingerprint's group; if this fingerprint is current, its
 * successor in the ring. Returns p->end if there is none. */
uint64_t brick_fingerprints_current(const struct brick_fingerprints *p, const struct brick_kept_fingerprint *fingerprint);
uint64_t brick_fingerprints_next(const struct brick_fingerprints *p, uint64_t current);

#endif
