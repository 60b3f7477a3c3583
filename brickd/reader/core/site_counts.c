#include "site_counts.h"

#include <stdlib.h>

#define WAITED_MAX ((1u << 31) - 1)
#define COUNTS_MIN ((size_t)128)
#define NOWHERE UINT32_MAX

static uint32_t *count_place(const struct brick_fingerprints *p, uint32_t service, uint64_t site)
{
    uint64_t i = brick_digest(p->key ^ service, site);
    for (;; i++) {
        uint32_t *place = &p->counts_index[i & (2 * p->counts_room - 1)];
        if (*place == 0 || (p->counts[*place - 1].site == site && p->counts[*place - 1].service == service))
            return place;
    }
}

static struct brick_site_count *new_count(struct brick_fingerprints *p, uint32_t service, uint64_t site)
{
    struct brick_site_count *c = &p->counts[p->counts_used++];
    *c = (struct brick_site_count){.site = site, .service = service};
    *count_place(p, service, site) = (uint32_t)p->counts_used;
    return c;
}

static uint32_t *waiting_place(const struct brick_fingerprints *p, uint32_t number)
{
    return &p->waiting[number & (p->counts_room - 1)];
}

/* Copies the counts of all services except one to `other`, which has enough room. Sets in `moved` the new index of
 * each. */
static void copy_counts(struct brick_fingerprints *other, const struct brick_fingerprints *p, uint64_t without, uint32_t *moved)
{
    for (size_t n = 0; n < p->counts_used; n++) {
        const struct brick_site_count *c = &p->counts[n];
        moved[n] = NOWHERE;
        if (c->site != 0 && c->service == without)
            continue;
        moved[n] = (uint32_t)other->counts_used;
        *new_count(other, c->service, c->site) = *c;
    }
    for (size_t n = 0; n < p->changed_count; n++)
        if (moved[p->changed[n]] != NOWHERE)
            other->changed[other->changed_count++] = moved[p->changed[n]];
    for (uint32_t n = p->waiting_first; n != p->waiting_end; n++)
        if (moved[*waiting_place(p, n)] != NOWHERE)
            *waiting_place(other, other->waiting_end++) = moved[*waiting_place(p, n)];
}

/* Moves the counts of all services except one into `room` places. Returns 0 if out of memory. */
static int move_counts(struct brick_fingerprints *p, size_t room, uint64_t without)
{
    struct brick_fingerprints other = *p;
    uint32_t *moved = malloc(room * sizeof *moved);
    other.counts_room = room;
    other.counts_used = other.changed_count = other.waiting_first = other.waiting_end = 0;
    other.counts = malloc(room * sizeof *other.counts);
    other.counts_index = calloc(2 * room, sizeof *other.counts_index);
    other.changed = malloc(room * sizeof *other.changed);
    other.waiting = malloc(room * sizeof *other.waiting);
    const int whole = moved != NULL && other.counts != NULL && other.counts_index != NULL && other.changed != NULL
                   && other.waiting != NULL;
    if (whole) {
        const struct brick_fingerprints before = *p;
        copy_counts(&other, &before, without, moved);
        *p = other;
        other = before;
    }
    free(moved);
    free(other.counts);
    free(other.counts_index);
    free(other.changed);
    free(other.waiting);
    return whole;
}

int brick_fingerprints_forget(struct brick_fingerprints *p, uint32_t service)
{
    return p->counts_room == 0 || move_counts(p, p->counts_room, service);
}

struct brick_site_count *brick_count_known(const struct brick_fingerprints *p, uint32_t service, uint64_t site)
{
    const uint32_t place = p->counts_room > 0 ? *count_place(p, service, site) : 0;
    return place != 0 ? &p->counts[place - 1] : NULL;
}

struct brick_site_count *brick_count_of(struct brick_fingerprints *p, uint32_t service, uint64_t site)
{
    struct brick_site_count *c = brick_count_known(p, service, site);
    if (c != NULL)
        return c;
    if (p->counts_used >= p->counts_max) {
        if ((c = brick_count_known(p, 0, 0)) != NULL)
            return c;
        service = 0;
        site = 0;
    }
    if (p->counts_used == p->counts_room
        && !move_counts(p, p->counts_room > 0 ? 2 * p->counts_room : COUNTS_MIN, UINT64_MAX))
        return NULL;
    return new_count(p, service, site);
}

static uint32_t place_of(const struct brick_fingerprints *p, const struct brick_site_count *c)
{
    return (uint32_t)(c - p->counts);
}

void brick_count_changes(struct brick_fingerprints *p, struct brick_site_count *c)
{
    if (!c->changed)
        p->changed[p->changed_count++] = place_of(p, c);
    c->changed = 1;
}

void brick_fingerprints_take_counts(struct brick_fingerprints *p, struct brick_site_count *counts)
{
    for (size_t n = 0; n < p->changed_count; n++) {
        struct brick_site_count *c = &p->counts[p->changed[n]];
        counts[n] = *c;
        c->fingerprints = c->bare = c->stateful = c->met = c->unlike = c->gone = 0;
        c->changed = 0;
    }
    p->changed_count = 0;
}

/* ---- unlike fingerprints ------------------------------------------------- */

static uint32_t waiting_of(const struct brick_site_count *c)
{
    return c->waited < BRICK_UNLIKE_OF_A_SITE ? c->waited : BRICK_UNLIKE_OF_A_SITE;
}

static int any_wait(const struct brick_site_count *c)
{
    return c->waited > 0 || c->rounded[0].waited > 0 || c->rounded[1].waited > 0;
}

void brick_count_unlike(struct brick_fingerprints *p, uint64_t number, struct brick_site_count *count, enum brick_rounded how)
{
    count->unlike++;
    if (!any_wait(count))
        *waiting_place(p, p->waiting_end++) = place_of(p, count);
    if (how != BRICK_ROUNDED_NOT) {
        uint64_t *waited = &count->rounded[how - 1].waited, *waiting = &count->rounded[how - 1].waiting;
        p->unlike_all += *waited == 0;
        if (*waited == 0 || *waiting < p->first || brick_mixed(BRICK_ODD + number) % (*waited + 1) == 0)
            *waiting = number;
        *waited += 1;
        return;
    }
    p->unlike_all++;
    uint64_t place = count->waited;
    if (place >= BRICK_UNLIKE_OF_A_SITE)
        place = brick_mixed(BRICK_ODD + number) % (count->waited + 1u);
    for (uint32_t n = 0; n < waiting_of(count); n++)
        if (count->waiting[n] < p->first) /* the waiting fingerprint was evicted */
            place = n;
    if (place < BRICK_UNLIKE_OF_A_SITE)
        count->waiting[place] = number;
    count->waited += count->waited < WAITED_MAX;
}

size_t brick_fingerprints_take_unlike(struct brick_fingerprints *p, uint64_t *numbers, uint32_t most)
{
    const uint32_t sites = p->waiting_end - p->waiting_first;
    const uint32_t each = sites > most ? 1 : sites > 0 ? most / sites : 0;
    size_t count = 0;
    while (p->waiting_first != p->waiting_end && count < most) {
        struct brick_site_count *c = &p->counts[*waiting_place(p, p->waiting_first++)];
        uint32_t taken = 0;
        for (uint32_t n = 0; n < waiting_of(c) && taken < each; n++)
            if (c->waiting[n] >= p->first) {
                numbers[count++] = c->waiting[n];
                taken++;
            }
        for (uint32_t n = 0; n < 2; n++) {
            const int held = c->rounded[n].waited > 0 && c->rounded[n].waiting >= p->first;
            if (held && taken < each && count < most) {
                numbers[count++] = c->rounded[n].waiting;
                taken++;
            }
            c->rounded[n].waited = 0;
        }
        c->waited = 0;
    }
    return count;
}
