#include "site_counts.h"

#include "births.h"
#include "record_walk.h"

#include <stdlib.h>
#include <string.h>

/* To find out whether rounding explains an unlike fingerprint, it is compared with other outputs of its group. NEAREST
 * limits how many neighbours in the ring are visited, OUTPUTS_NEAREST how many other outputs are compared. */
#define NEAREST 16u
#define OUTPUTS_NEAREST 4u

#define COUNT_MAX ((1u << 12) - 1)
#define ALONE_MAX ((1u << 20) - 1)

/* These decide how large the arrays are. A record has at least four slots, so there is one fingerprint for each four
 * slots. A fingerprint has at most two links, and the hash table has twice as much room. */
#define SLOTS_EACH 4u
#define LINKS_EACH 4u
#define SLOTS_MIN ((size_t)1024)
#define BYTES_OF_A_SLOT \
    (sizeof(struct brick_record) \
     + (sizeof(struct brick_kept_fingerprint) + LINKS_EACH * sizeof(struct brick_link)) / SLOTS_EACH)

void brick_fingerprints_init(struct brick_fingerprints *p, size_t bytes_max, uint64_t key)
{
    memset(p, 0, sizeof *p);
    p->bytes_max = bytes_max;
    p->counts_max = BRICK_SITE_COUNTS_MAX;
    p->births.most = BRICK_BIRTHS_MAX;
    p->key = key;
}

void brick_fingerprints_free(struct brick_fingerprints *p)
{
    free(p->fingerprints);
    free(p->slots);
    free(p->links);
    free(p->counts);
    free(p->counts_index);
    free(p->changed);
    free(p->waiting);
    free(p->births.rows);
    free(p->births.index);
}

/* ---- room --------------------------------------------------------------- */

static struct brick_kept_fingerprint *fingerprint_of(const struct brick_fingerprints *p, uint64_t number)
{
    return &p->fingerprints[number & (p->fingerprints_room - 1)];
}

/* Returns the 64-bit number of a fingerprint in p, from the lower 32 bits of the number. */
static uint64_t number_of(const struct brick_fingerprints *p, uint32_t lower_half)
{
    return p->first + (uint32_t)(lower_half - (uint32_t)p->first);
}

const struct brick_kept_fingerprint *brick_fingerprints_at(const struct brick_fingerprints *p, uint64_t number)
{
    return fingerprint_of(p, number);
}

void brick_fingerprints_slots(const struct brick_fingerprints *p, const struct brick_kept_fingerprint *fingerprint,
                              struct brick_record *slots)
{
    for (uint64_t n = 0; n < fingerprint->slots; n++)
        slots[n] = p->slots[(fingerprint->at + n) & (p->slots_room - 1)];
}

static size_t link_home(const struct brick_fingerprints *p, uint64_t from) { return from >> 1 & (p->links_room - 1); }

/* Searches from `place` on. Returns the first link with this `from`, or a free entry if there is none. */
static size_t link_at(const struct brick_fingerprints *p, uint64_t from, size_t place)
{
    for (;; place++) {
        place &= p->links_room - 1;
        if (p->links[place].from == from || p->links[place].from == 0)
            return place;
    }
}

static size_t link_of(const struct brick_fingerprints *p, uint64_t from) { return link_at(p, from, link_home(p, from)); }

static void put_link(struct brick_fingerprints *p, struct brick_link w)
{
    size_t place = link_home(p, w.from);
    while (p->links[place].from != 0)
        place = (place + 1) & (p->links_room - 1);
    p->links[place] = w;
}

/* Removes a link. Moves up later links that would otherwise be unreachable. */
static void remove_link(struct brick_fingerprints *p, size_t place)
{
    const size_t mask = p->links_room - 1;
    for (size_t n = (place + 1) & mask; p->links[n].from != 0; n = (n + 1) & mask)
        if (((n - link_home(p, p->links[n].from)) & mask) >= ((n - place) & mask)) {
            p->links[place] = p->links[n];
            place = n;
        }
    p->links[place].from = 0;
}

/* Changes the number of slots to `slots_room`, in which the content of p must fit. Returns 0 if out of memory. */
static int resize(struct brick_fingerprints *p, size_t slots_room)
{
    struct brick_fingerprints wider = *p;
    wider.slots_room = slots_room;
    wider.fingerprints_room = wider.slots_room / SLOTS_EACH;
    wider.links_room = wider.fingerprints_room * LINKS_EACH;
    wider.slots = malloc(wider.slots_room * sizeof *wider.slots);
    wider.fingerprints = malloc(wider.fingerprints_room * sizeof *wider.fingerprints);
    wider.links = calloc(wider.links_room, sizeof *wider.links);
    if (wider.slots == NULL || wider.fingerprints == NULL || wider.links == NULL) {
        free(wider.slots);
        free(wider.fingerprints);
        free(wider.links);
        return 0;
    }
    for (uint64_t n = p->first; n < p->end; n++)
        *fingerprint_of(&wider, n) = *fingerprint_of(p, n);
    for (uint64_t n = p->slots_first; n < p->slots_end; n++)
        wider.slots[n & (wider.slots_room - 1)] = p->slots[n & (p->slots_room - 1)];
    for (size_t n = 0; n < p->links_room; n++)
        if (p->links[n].from != 0)
            put_link(&wider, p->links[n]);
    free(p->fingerprints);
    free(p->slots);
    free(p->links);
    *p = wider;
    return 1;
}

static int grow(struct brick_fingerprints *p)
{
    const size_t room = p->slots_room > 0 ? 2 * p->slots_room : SLOTS_MIN;
    return (room <= SLOTS_MIN || room <= p->bytes_max / BYTES_OF_A_SLOT) && resize(p, room);
}

static void retire(struct brick_fingerprints *p, uint64_t number);

static void evict_oldest(struct brick_fingerprints *p)
{
    retire(p, p->first);
    p->first++;
    p->slots_first = p->first < p->end ? fingerprint_of(p, p->first)->at : p->slots_end;
}

int brick_fingerprints_limit(struct brick_fingerprints *p, size_t bytes_max)
{
    size_t room = SLOTS_MIN;
    while (2 * room <= bytes_max / BYTES_OF_A_SLOT)
        room *= 2;
    p->bytes_max = bytes_max;
    if (p->slots_room <= room)
        return 1;
    while (p->slots_end - p->slots_first > room || p->end - p->first > room / SLOTS_EACH)
        evict_oldest(p);
    return resize(p, room);
}

static int is_full(const struct brick_fingerprints *p, uint64_t slots)
{
    return p->slots_end - p->slots_first + slots > p->slots_room || p->end - p->first == p->fingerprints_room;
}

static int make_room(struct brick_fingerprints *p, uint64_t slots)
{
    while (is_full(p, slots)) {
        if (grow(p))
            continue;
        if (p->first == p->end)
            return 0;
        evict_oldest(p);
    }
    return 1;
}

/* ---- groups ------------------------------------------------------------- */

/* Digests of groups are odd, digests of workers in a group are even, so they never collide. */
static uint64_t group_of(const struct brick_fingerprints *p, const struct brick_kept_fingerprint *fingerprint)
{
    const uint64_t site = brick_digest(p->key ^ fingerprint->service, fingerprint->site);
    return brick_digest(brick_digest(site, fingerprint->context), fingerprint->inputs) | 1;
}

static uint64_t worker_in(uint64_t group, uint32_t worker) { return brick_digest(group, worker) << 1 | 2; }

uint64_t brick_fingerprints_current(const struct brick_fingerprints *p, const struct brick_kept_fingerprint *fingerprint)
{
    const struct brick_link *group = fingerprint->group != 0 ? &p->links[link_of(p, fingerprint->group)] : NULL;
    return group != NULL && group->from != 0 ? number_of(p, group->to) : p->end;
}

uint64_t brick_fingerprints_next(const struct brick_fingerprints *p, uint64_t current)
{
    return number_of(p, fingerprint_of(p, current)->next);
}

static uint32_t differ(const struct brick_fingerprints *p, uint64_t one, uint64_t other)
{
    return fingerprint_of(p, one)->output != fingerprint_of(p, other)->output;
}

static void enter(struct brick_fingerprints *p, uint64_t number)
{
    struct brick_kept_fingerprint *fingerprint = fingerprint_of(p, number);
    struct brick_link *group = &p->links[link_of(p, fingerprint->group)];
    fingerprint->next = fingerprint->previous = (uint32_t)number;
    if (group->from == 0) {
        *group = (struct brick_link){.from = fingerprint->group};
    } else {
        fingerprint->previous = group->to;
        fingerprint->next = fingerprint_of(p, group->to)->next;
        group->borders += differ(p, fingerprint->previous, number) + differ(p, number, fingerprint->next);
        group->borders -= differ(p, fingerprint->previous, fingerprint->next);
        fingerprint_of(p, fingerprint->previous)->next = fingerprint_of(p, fingerprint->next)->previous = (uint32_t)number;
    }
    group->to = (uint32_t)number;
}

/* Removes a fingerprint from the ring of its group; it is then no longer current. */
static void leave(struct brick_fingerprints *p, uint64_t number)
{
    struct brick_kept_fingerprint *fingerprint = fingerprint_of(p, number);
    const size_t place = link_of(p, fingerprint->group);
    struct brick_link *group = &p->links[place];
    fingerprint->count = 0;
    if (fingerprint->next == (uint32_t)number) {
        remove_link(p, place);
        return;
    }
    group->borders -= differ(p, fingerprint->previous, number) + differ(p, number, fingerprint->next);
    group->borders += differ(p, fingerprint->previous, fingerprint->next);
    group->to = fingerprint->previous;
    fingerprint_of(p, fingerprint->previous)->next = fingerprint->next;
    fingerprint_of(p, fingerprint->next)->previous = fingerprint->previous;
}

static void retire(struct brick_fingerprints *p, uint64_t number)
{
    const struct brick_kept_fingerprint *fingerprint = fingerprint_of(p, number);
    if (fingerprint->count == 0)
        return;
    const int own = fingerprint->own_count;
    struct brick_site_count *count = brick_count_known(p, own ? fingerprint->service : 0,
                                                       own ? brick_fingerprint_site(fingerprint) : 0);
    if (count != NULL && fingerprint->alone > 0) { /* NULL: the counts of the service were dropped */
        count->gone += fingerprint->alone;
        brick_count_changes(p, count);
    }
    const uint64_t from = worker_in(fingerprint->group, fingerprint->worker);
    size_t place = link_of(p, from);
    while (p->links[place].to != (uint32_t)number)
        place = link_at(p, from, place + 1);
    remove_link(p, place);
    leave(p, number);
}

static int by_number(const void *one, const void *other)
{
    const uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    return (a > b) - (a < b);
}

void brick_fingerprints_mute(struct brick_fingerprints *p, uint32_t *workers, size_t count)
{
    qsort(workers, count, sizeof *workers, by_number);
    for (uint64_t n = p->first; n < p->end; n++)
        if (bsearch(&fingerprint_of(p, n)->worker, workers, count, sizeof *workers, by_number) != NULL)
            retire(p, n);
    brick_births_forget(p, workers, count);
}

static uint32_t outputs_max(const struct brick_kept_fingerprint *fingerprint)
{
    return brick_fingerprint_tier(fingerprint) != BRICK_TIER_TENSORS ? BRICK_ROW_OUTPUTS_MAX : BRICK_OUTPUTS_MAX;
}

/* Returns whether another worker has a current fingerprint in the group. The fingerprints of other workers that it
 * visits now have a counterpart, so it counts them as met. */
static int meet(struct brick_fingerprints *p, const struct brick_link *group, uint32_t worker, struct brick_site_count *count)
{
    int met = 0;
    uint32_t number = group->to;
    /* One worker has at most this many current fingerprints, so one more visit would find another worker. */
    for (uint32_t n = 0; n <= outputs_max(fingerprint_of(p, number)); n++) {
        struct brick_kept_fingerprint *other = fingerprint_of(p, number);
        if (other->worker != worker) {
            met = 1;
            count->met += other->alone;
            other->alone = 0;
        }
        if ((number = other->previous) == group->to)
            break;
    }
    return met;
}

/* Returns the worker's link to its fingerprint with this output. If the worker has no such link, returns NULL. But if
 * the worker already has `most` links, returns the last of them, for reuse. */
static struct brick_link *own_link(const struct brick_fingerprints *p, uint64_t from, uint64_t output, uint32_t most)
{
    struct brick_link *own = NULL;
    uint32_t outputs = 0;
    for (size_t place = link_of(p, from); p->links[place].from == from; place = link_at(p, from, place + 1), outputs++) {
        own = &p->links[place];
        if (fingerprint_of(p, own->to)->output == output)
            return own;
    }
    return outputs == most ? own : NULL;
}

/* Puts a fingerprint into its group, as the current one of its worker and output. Returns whether the group also has
 * another output. */
static int join(struct brick_fingerprints *p, uint64_t number, struct brick_site_count *count)
{
    struct brick_kept_fingerprint *fingerprint = fingerprint_of(p, number);
    fingerprint->group = group_of(p, fingerprint);
    const struct brick_link *group = &p->links[link_of(p, fingerprint->group)];
    const int some = group->from != 0;
    const int unlike = some && (group->borders > 0 || fingerprint_of(p, group->to)->output != fingerprint->output);
    const int met = some && meet(p, group, fingerprint->worker, count);
    const uint64_t from = worker_in(fingerprint->group, fingerprint->worker);
    struct brick_link *own = some ? own_link(p, from, fingerprint->output, outputs_max(fingerprint)) : NULL;
    count->met += (uint64_t)met;
    fingerprint->count = 1;
    fingerprint->alone = !met;
    if (own == NULL) {
        put_link(p, (struct brick_link){.from = from, .to = (uint32_t)number});
        enter(p, number);
    } else {
        const uint32_t last = own->to;
        const struct brick_kept_fingerprint *before = fingerprint_of(p, last);
        fingerprint->count = before->count + (before->count < COUNT_MAX);
        fingerprint->steps = before->steps || brick_fingerprint_step(before) != brick_fingerprint_step(fingerprint);
        fingerprint->alone = before->alone + (!met && before->alone < ALONE_MAX);
        own->to = (uint32_t)number;
        enter(p, number);
        leave(p, last);
    }
    return unlike;
}

/* ---- adding ------------------------------------------------------------- */

/* Returns the digest of the text with this number; 0 if unknown. */
static uint64_t text_of(const uint64_t *texts, size_t count, uint32_t number, int named)
{
    const uint64_t text = number < count ? texts[number] : 0;
    return text != 0 || named ? text : brick_mixed(BRICK_ODD + number) | BRICK_SITE_STATEFUL;
}

static const struct brick_tensor_sums *sums_of(const struct brick_record *slots, uint32_t tensor)
{
    return (const struct brick_tensor_sums *)(const void *)&slots[2 + 2 * tensor];
}

/* Returns whether the values belong to one shard of the model, so that only workers with the same shard must agree. */
static int is_of_a_shard(const struct brick_checked *c)
{
    return c->relation == BRICK_LOCAL || c->relation == BRICK_PARTIAL;
}

/* Returns the size class (bit length) of a row's call, because calls of another size may use another kernel. */
static uint64_t row_width(const struct brick_checked *c) { return 64u - (uint64_t)__builtin_clzll(c->position | 1); }

static enum brick_added make(const struct brick_origin *by, const struct brick_record *slots, size_t left,
                             struct brick_kept_fingerprint *fingerprint)
{
    const struct brick_checked *c = (const struct brick_checked *)(const void *)slots;
    const int row = (c->flags & BRICK_CHECKED_ROWS) != 0, history = (c->flags & BRICK_CHECKED_HISTORY) != 0;
    if (c->kind != BRICK_KIND_CHECKED || !brick_checked_possible(c) || c->slots > left || (row && c->inputs != 1))
        return BRICK_ADDED_NOT;
    if (history && (row || c->inputs > 1))
        return BRICK_ADDED_NOT;
    *fingerprint = (struct brick_kept_fingerprint){
        .step = c->step,
        .position = c->position,
        .ticks = c->ticks,
        .params = c->params,
        .valid = c->valid,
        .shard = is_of_a_shard(c) ? by->shard : 0,
        .worker = by->worker,
        .service = by->service,
        .slots = c->slots,
        .relation = c->relation,
        .inputs_count = c->inputs,
        .flags = c->flags,
    };
    fingerprint->site = text_of(by->sites, by->sites_count, c->site, by->named);
    fingerprint->backend = c->backend != 0 ? text_of(by->names, by->names_count, c->backend, by->named) : 1;
    fingerprint->of = c->of != 0 ? text_of(by->names, by->names_count, c->of, by->named) : 1;
    if (fingerprint->site == 0 || fingerprint->backend == 0 || fingerprint->of == 0)
        return BRICK_ADDED_UNKNOWN;
    fingerprint->site_stateful = !row && !history && (fingerprint->site & BRICK_SITE_STATEFUL) != 0;
    fingerprint->site &= ~(BRICK_SITE_STATEFUL | BRICK_SITE_ROWS | BRICK_SITE_HISTORY);
    fingerprint->site |= row ? BRICK_SITE_ROWS : history ? BRICK_SITE_HISTORY : 0;
    const struct brick_tensor_sums *output = sums_of(slots, 0);
    if (output->dtype == 0) /* refuse an output that was not read, because all such outputs would look equal */
        return BRICK_ADDED_NOT;
    fingerprint->stateful = !row && !history && ((c->flags & BRICK_CHECKED_STATEFUL) != 0
                    || (fingerprint->site_stateful && (c->flags & BRICK_CHECKED_STATELESS) == 0));
    fingerprint->output = output->checksum;
    fingerprint->shape = output->shape;
    fingerprint->dtype = output->dtype;
    uint64_t form = c->inputs, inputs = c->inputs;
    int readable = c->inputs > 0;
    for (uint32_t n = 1; n <= c->inputs; n++) {
        const struct brick_tensor_sums *input = sums_of(slots, n);
        form = brick_digest(form, (uint64_t)input->dtype << 32 | input->shape);
        inputs = brick_digest(inputs, input->checksum);
        readable &= input->dtype != 0;
    }
    fingerprint->form = (uint32_t)(form >> 32);
    if (c->flags & BRICK_CHECKED_POSITION) /* the result of a rotary embedding depends on the position */
        inputs = brick_digest(inputs, c->position);
    if (row)
        inputs = brick_digest(inputs, row_width(c));
    if (history)
        inputs = brick_digest(brick_digest(c->position, c->valid), ((const struct brick_output *)(const void *)&slots[1])->token);
    fingerprint->inputs = readable || history ? inputs | 1 : 0;
    uint64_t context = brick_digest(fingerprint->backend, fingerprint->of);
    context = brick_digest(brick_digest(context, fingerprint->params), history ? 0 : fingerprint->valid);
    context = brick_digest(brick_digest(context, fingerprint->shard), (uint64_t)fingerprint->shape << 32 | fingerprint->form);
    const uint64_t kind = (uint64_t)fingerprint->stateful << 16 | (uint64_t)fingerprint->dtype << 8 | fingerprint->relation;
    fingerprint->context = brick_digest(context, kind);
    return BRICK_ADDED;
}

static void put(struct brick_fingerprints *p, struct brick_kept_fingerprint *fingerprint, const struct brick_record *slots)
{
    fingerprint->at = p->slots_end;
    for (uint64_t n = 0; n < fingerprint->slots; n++)
        p->slots[(fingerprint->at + n) & (p->slots_room - 1)] = slots[n];
    p->slots_end += fingerprint->slots;
    *fingerprint_of(p, p->end++) = *fingerprint;
}

/* Returns whether rounding may explain the differences between this output and the nearest other outputs in the group.
 * Even for equal inputs, workers may add numbers in different orders. */
static enum brick_rounded rounded(const struct brick_fingerprints *p, uint64_t number)
{
    struct brick_record own[BRICK_CHECKED_SLOTS_MAX], others[BRICK_CHECKED_SLOTS_MAX];
    const struct brick_kept_fingerprint *fingerprint = fingerprint_of(p, number);
    uint64_t current = number_of(p, fingerprint->previous);
    enum brick_rounded least = BRICK_ROUNDED_SPREAD;
    uint32_t outputs = 0;
    brick_fingerprints_slots(p, fingerprint, own);
    for (uint32_t n = 0; n < NEAREST && outputs < OUTPUTS_NEAREST && current != number; n++) {
        const struct brick_kept_fingerprint *other = fingerprint_of(p, current);
        if (other->output != fingerprint->output
            && (outputs == 0 || other->output != fingerprint_of(p, number_of(p, other->next))->output)) {
            brick_fingerprints_slots(p, other, others);
            const enum brick_rounded each = brick_rounded(own, others);
            least = each < least ? each : least;
            outputs++;
        }
        current = number_of(p, other->previous);
    }
    return outputs > 0 ? least : BRICK_ROUNDED_NOT;
}

static enum brick_added add_one(struct brick_fingerprints *p, const struct brick_origin *by,
                                const struct brick_record *slots, size_t left)
{
    struct brick_kept_fingerprint fingerprint;
    enum brick_added made = make(by, slots, left, &fingerprint);
    if (made != BRICK_ADDED) {
        p->refused += made == BRICK_ADDED_NOT;
        return made;
    }
    if (p->bytes_max == 0)
        return BRICK_ADDED;
    const int single = brick_fingerprint_tier(&fingerprint) != BRICK_TIER_TENSORS;
    struct brick_site_count *count = brick_count_of(p, fingerprint.service, brick_fingerprint_site(&fingerprint));
    if (count == NULL || !make_room(p, fingerprint.slots))
        return BRICK_ADDED_NO_MEMORY;
    brick_count_changes(p, count);
    count->fingerprints++;
    fingerprint.own_count = count->site != 0;
    put(p, &fingerprint, slots);
    if (!single) /* rows are omitted: a NaN in a row would be counted at two sites */
        brick_births_count(p, &fingerprint, slots);
    count->bare += fingerprint.inputs == 0;
    count->stateful += fingerprint.inputs != 0 && fingerprint.stateful;
    if (!brick_fingerprint_is_grouped(&fingerprint))
        return BRICK_ADDED;
    if (join(p, p->end - 1, count)) /* rows are not compared here: all rows of a site are judged together */
        brick_count_unlike(p, p->end - 1, count, single ? BRICK_ROUNDED_SPREAD : rounded(p, p->end - 1));
    return BRICK_ADDED;
}

#define ROW_SLOTS BRICK_CHECKED_SLOTS(1)

/* Makes a record that has only one pair (output row and input row) of a record of rows. */
static void row_of(const struct brick_record *slots, uint32_t pair, struct brick_record *row)
{
    memcpy(row, slots, 2 * sizeof *row);
    memcpy(row + 2, slots + 2 + 4 * pair, 4 * sizeof *row);
    struct brick_checked *c = (struct brick_checked *)(void *)row;
    c->slots = ROW_SLOTS;
    c->inputs = 1;
}

enum brick_added brick_fingerprints_add(struct brick_fingerprints *p, const struct brick_origin *by,
                                        const struct brick_record *slots, size_t left)
{
    const struct brick_checked *c = (const struct brick_checked *)(const void *)slots;
    const int rows = c->kind == BRICK_KIND_CHECKED && (c->flags & BRICK_CHECKED_ROWS) != 0;
    if (!rows || !brick_checked_possible(c) || c->slots > left || c->inputs % 2 == 0)
        return add_one(p, by, slots, left);
    enum brick_added added = BRICK_ADDED;
    for (uint32_t pair = 0; added == BRICK_ADDED && pair < (c->inputs + 1u) / 2; pair++) {
        struct brick_record row[ROW_SLOTS];
        row_of(slots, pair, row);
        added = add_one(p, by, row, ROW_SLOTS);
        if (pair > 0 && added == BRICK_ADDED_NOT) /* only this row counts as invalid, so continue with the others */
            added = BRICK_ADDED;
    }
    return added;
}

uint32_t *brick_places(const uint32_t *workers, size_t count, size_t *room)
{
    *room = 0;
    for (size_t i = 0; i < count; i++)
        *room = workers[i] >= *room ? workers[i] + (size_t)1 : *room;
    uint32_t *places = malloc((*room + 1) * sizeof *places);
    if (places == NULL)
        return NULL;
    memset(places, 0xFF, *room * sizeof *places);
    for (uint32_t i = 0; i < count; i++)
        places[workers[i]] = i;
    return places;
}

int brick_fingerprints_copy(struct brick_fingerprints *p, const struct brick_fingerprints *from,
                            const struct brick_renumbered *r)
{
    size_t room;
    uint32_t *places = brick_places(r->workers, r->count, &room);
    if (places == NULL)
        return 0;
    int whole = 1;
    for (uint64_t n = from->first; whole && n < from->end; n++) {
        struct brick_record slots[BRICK_CHECKED_SLOTS_MAX];
        struct brick_kept_fingerprint fingerprint = *fingerprint_of(from, n);
        const uint32_t place = fingerprint.worker < room ? places[fingerprint.worker] : UINT32_MAX;
        if (place == UINT32_MAX)
            continue;
        if (is_full(p, fingerprint.slots) && !(whole = grow(p)))
            break;
        brick_fingerprints_slots(from, &fingerprint, slots);
        fingerprint.worker = r->as[place];
        fingerprint.service = r->services[place];
        fingerprint.group = fingerprint.count = 0;
        put(p, &fingerprint, slots);
        r->ends[place] = p->end;
    }
    free(places);
    return whole;
}
