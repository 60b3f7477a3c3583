#include "births.h"

#include "site_counts.h"

#include <stdlib.h>

#define BIRTHS_MIN ((size_t)128)
/* After a full table was cleaned, at least this many fingerprints are counted before it is cleaned again, because
 * cleaning takes as long as counting a few thousand fingerprints. */
#define TIDY_EVERY 4096u

static uint32_t *place_of(const struct brick_births_table *t, uint64_t key, uint32_t worker, uint64_t site)
{
    for (uint64_t i = brick_digest(key ^ worker, site);; i++) {
        uint32_t *place = &t->index[i & (2 * t->room - 1)];
        if (*place == 0 || (t->rows[*place - 1].site == site && t->rows[*place - 1].worker == worker))
            return place;
    }
}

/* Moves the rows that have fingerprints to a new table of `room` rows. If out of memory, returns 0 and changes
 * nothing. */
static int move(struct brick_fingerprints *p, size_t room)
{
    struct brick_births_table *t = &p->births, other = *t;
    other.room = room;
    other.used = 0;
    other.rows = malloc(room * sizeof *other.rows);
    other.index = calloc(2 * room, sizeof *other.index);
    if (other.rows == NULL || other.index == NULL) {
        free(other.rows);
        free(other.index);
        return 0;
    }
    for (size_t n = 0; n < t->used; n++)
        if (t->rows[n].fingerprints > 0) {
            other.rows[other.used++] = t->rows[n];
            *place_of(&other, p->key, t->rows[n].worker, t->rows[n].site) = (uint32_t)other.used;
        }
    free(t->rows);
    free(t->index);
    *t = other;
    return 1;
}

/* Drops rows whose fingerprints were all evicted, but not more often than once per TIDY_EVERY fingerprints. Returns
 * whether a row is free now. */
static int tidy(struct brick_fingerprints *p)
{
    if (p->births.tidied != 0 && p->end - p->births.tidied < TIDY_EVERY)
        return 0;
    p->births.tidied = p->end;
    for (size_t n = 0; n < p->births.used; n++)
        if (p->births.rows[n].last < p->first)
            p->births.rows[n].fingerprints = 0;
    return move(p, p->births.room) && p->births.used < p->births.most;
}

static struct brick_births *row_of(struct brick_fingerprints *p, const struct brick_kept_fingerprint *fingerprint)
{
    struct brick_births_table *t = &p->births;
    uint32_t *place = t->room > 0 ? place_of(t, p->key, fingerprint->worker, fingerprint->site) : NULL;
    if (place != NULL && *place != 0)
        return &t->rows[*place - 1];
    if (t->used >= t->most ? !tidy(p) : t->used == t->room && !move(p, t->room > 0 ? 2 * t->room : BIRTHS_MIN))
        return NULL;
    t->rows[t->used] = (struct brick_births){
        .site = fingerprint->site, .service = fingerprint->service, .worker = fingerprint->worker};
    *place_of(t, p->key, fingerprint->worker, fingerprint->site) = (uint32_t)++t->used;
    return &t->rows[t->used - 1];
}

static uint32_t more(uint32_t count) { return count + (count < UINT32_MAX); }

static int are_finite(const struct brick_kept_fingerprint *fingerprint, const struct brick_record *slots)
{
    if (fingerprint->inputs_count == 0 || (fingerprint->flags & BRICK_CHECKED_MORE) != 0)
        return 0;
    for (uint32_t n = 1; n <= fingerprint->inputs_count; n++) {
        const struct brick_tensor_sums *input = (const struct brick_tensor_sums *)(const void *)&slots[2 + 2 * n];
        if (input->dtype == 0 || (input->nan | input->pos_inf | input->neg_inf) != 0)
            return 0;
    }
    return 1;
}

void brick_births_count(struct brick_fingerprints *p, const struct brick_kept_fingerprint *fingerprint,
                        const struct brick_record *slots)
{
    const struct brick_tensor_sums *output = (const struct brick_tensor_sums *)(const void *)&slots[2];
    const uint32_t held[BRICK_NOT_FINITE] = {output->nan, output->pos_inf, output->neg_inf};
    struct brick_births *row = row_of(p, fingerprint);
    if (row == NULL) {
        p->births.untracked++;
        return;
    }
    row->fingerprints = more(row->fingerprints);
    row->last = p->end - 1;
    if ((held[0] | held[1] | held[2]) == 0 || !are_finite(fingerprint, slots))
        return;
    for (uint32_t kind = 0; kind < BRICK_NOT_FINITE; kind++)
        if (held[kind] != 0) {
            row->first[kind] = row->times[kind] == 0 ? row->fingerprints : row->first[kind];
            row->times[kind] = more(row->times[kind]);
            p->births.any = 1;
        }
}

static int by_number(const void *one, const void *other)
{
    const uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    return (a > b) - (a < b);
}

void brick_births_forget(struct brick_fingerprints *p, const uint32_t *workers, size_t count)
{
    int any = 0;
    for (size_t n = 0; n < p->births.used; n++)
        if (bsearch(&p->births.rows[n].worker, workers, count, sizeof *workers, by_number) != NULL) {
            p->births.rows[n].fingerprints = 0;
            any = 1;
        }
    if (any)
        (void)move(p, p->births.room); /* if out of memory, these rows stay in the table, with 0 fingerprints */
}

static int has_births(const struct brick_births *row) { return (row->times[0] | row->times[1] | row->times[2]) != 0; }

static uint64_t whose(const struct brick_fingerprints *p, const struct brick_births *row)
{
    return brick_digest(p->key ^ row->service, row->site);
}

static int by_digest(const void *one, const void *other)
{
    const uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

size_t brick_births_rows(const struct brick_fingerprints *p, struct brick_births *rows, size_t most)
{
    const struct brick_births_table *t = &p->births;
    size_t count = 0;
    if (!t->any)
        return 0;
    for (size_t n = 0; n < t->used && count < most; n++)
        if (has_births(&t->rows[n]))
            rows[count++] = t->rows[n];
    const size_t sites = count;
    uint64_t *at = malloc((sites + 1) * sizeof *at);
    if (at == NULL)
        return SIZE_MAX;
    for (size_t n = 0; n < sites; n++)
        at[n] = whose(p, &rows[n]);
    qsort(at, sites, sizeof *at, by_digest);
    for (size_t n = 0; n < t->used && count < most; n++) {
        const uint64_t own = whose(p, &t->rows[n]);
        if (!has_births(&t->rows[n]) && bsearch(&own, at, sites, sizeof *at, by_digest) != NULL)
            rows[count++] = t->rows[n];
    }
    free(at);
    return count;
}
