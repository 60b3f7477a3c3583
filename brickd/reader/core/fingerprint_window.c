#include "site_counts.h"

#include "record_walk.h"

#include <stdlib.h>
#include <string.h>

/* So many opinions are looked at, and so many outputs, for what is unlike. */
#define NEAREST 16u
#define OUTPUTS_NEAREST 4u

#define COUNT_MAX ((1u << 12) - 1)
#define ALONE_MAX ((1u << 20) - 1)

/* Four slots are the least that a record has; to an opinion there are two ways at most, and as much room again. */
#define SLOTS_OF_A_PRINT 4u
#define WAYS_OF_A_PRINT 4u
#define SLOTS_MIN ((size_t)1024)
#define BYTES_OF_A_SLOT \
    (sizeof(struct brick_record) \
     + (sizeof(struct brick_print) + WAYS_OF_A_PRINT * sizeof(struct brick_way)) / SLOTS_OF_A_PRINT)

void brick_prints_init(struct brick_prints *p, size_t bytes_max, uint64_t key)
{
    memset(p, 0, sizeof *p);
    p->bytes_max = bytes_max;
    p->key = key;
}

void brick_prints_free(struct brick_prints *p)
{
    free(p->prints);
    free(p->slots);
    free(p->ways);
    free(p->counts);
    free(p->counts_index);
    free(p->changed);
    free(p->waiting);
}

/* ---- room --------------------------------------------------------------- */

static struct brick_print *print_of(const struct brick_prints *p, uint64_t number)
{
    return &p->prints[number & (p->prints_room - 1)];
}

/* The number of a print that is here, of its lower half. */
static uint64_t whole(const struct brick_prints *p, uint32_t half) { return p->first + (uint32_t)(half - (uint32_t)p->first); }

const struct brick_print *brick_prints_at(const struct brick_prints *p, uint64_t number) { return print_of(p, number); }

void brick_prints_slots(const struct brick_prints *p, const struct brick_print *print, struct brick_record *slots)
{
    for (uint64_t n = 0; n < print->slots; n++)
        slots[n] = p->slots[(print->at + n) & (p->slots_room - 1)];
}

static size_t way_home(const struct brick_prints *p, uint64_t from) { return from >> 1 & (p->ways_room - 1); }

/* The first way from there at this place or behind it; or where one would stand. */
static size_t way_at(const struct brick_prints *p, uint64_t from, size_t place)
{
    for (;; place++) {
        place &= p->ways_room - 1;
        if (p->ways[place].from == from || p->ways[place].from == 0)
            return place;
    }
}

static size_t way(const struct brick_prints *p, uint64_t from) { return way_at(p, from, way_home(p, from)); }

static void put_way(struct brick_prints *p, struct brick_way w)
{
    size_t place = way_home(p, w.from);
    while (p->ways[place].from != 0)
        place = (place + 1) & (p->ways_room - 1);
    p->ways[place] = w;
}

/* Those behind it that would not be found any more move up. */
static void remove_way(struct brick_prints *p, size_t place)
{
    const size_t mask = p->ways_room - 1;
    for (size_t n = (place + 1) & mask; p->ways[n].from != 0; n = (n + 1) & mask)
        if (((n - way_home(p, p->ways[n].from)) & mask) >= ((n - place) & mask)) {
            p->ways[place] = p->ways[n];
            place = n;
        }
    p->ways[place].from = 0;
}

/* Twice the room. 0: there is no memory, or the bound forbids it. */
static int grow(struct brick_prints *p)
{
    struct brick_prints wider = *p;
    wider.slots_room = p->slots_room > 0 ? 2 * p->slots_room : SLOTS_MIN;
    wider.prints_room = wider.slots_room / SLOTS_OF_A_PRINT;
    wider.ways_room = wider.prints_room * WAYS_OF_A_PRINT;
    if (wider.slots_room > SLOTS_MIN && wider.slots_room > p->bytes_max / BYTES_OF_A_SLOT)
        return 0;
    wider.slots = malloc(wider.slots_room * sizeof *wider.slots);
    wider.prints = malloc(wider.prints_room * sizeof *wider.prints);
    wider.ways = calloc(wider.ways_room, sizeof *wider.ways);
    if (wider.slots == NULL || wider.prints == NULL || wider.ways == NULL) {
        free(wider.slots);
        free(wider.prints);
        free(wider.ways);
        return 0;
    }
    for (uint64_t n = p->first; n < p->end; n++)
        *print_of(&wider, n) = *print_of(p, n);
    for (uint64_t n = p->slots_first; n < p->slots_end; n++)
        wider.slots[n & (wider.slots_room - 1)] = p->slots[n & (p->slots_room - 1)];
    for (size_t n = 0; n < p->ways_room; n++)
        if (p->ways[n].from != 0)
            put_way(&wider, p->ways[n]);
    free(p->prints);
    free(p->slots);
    free(p->ways);
    *p = wider;
    return 1;
}

static void fall(struct brick_prints *p, uint64_t number);

static int make_room(struct brick_prints *p, uint64_t slots)
{
    while (p->slots_end - p->slots_first + slots > p->slots_room || p->end - p->first == p->prints_room) {
        if (grow(p))
            continue;
        if (p->first == p->end)
            return 0;
        fall(p, p->first);
        p->first++;
        p->slots_first = p->first < p->end ? print_of(p, p->first)->at : p->slots_end;
    }
    return 1;
}

/* ---- groups ------------------------------------------------------------- */

/* Of a group the digest is odd, of a worker in one even: these are never the same. */
static uint64_t group_of(const struct brick_prints *p, const struct brick_print *print)
{
    return brick_prints_digest(brick_prints_digest(brick_prints_digest(p->key ^ print->service, print->site), print->context), print->inputs) | 1;
}

static uint64_t worker_in(uint64_t group, uint32_t worker) { return brick_prints_digest(group, worker) << 1 | 2; }

uint64_t brick_prints_opinion(const struct brick_prints *p, const struct brick_print *print)
{
    const struct brick_way *group = print->group != 0 ? &p->ways[way(p, print->group)] : NULL;
    return group != NULL && group->from != 0 ? whole(p, group->to) : p->end;
}

uint64_t brick_prints_next(const struct brick_prints *p, uint64_t opinion) { return whole(p, print_of(p, opinion)->next); }

static uint32_t differ(const struct brick_prints *p, uint64_t one, uint64_t other)
{
    return print_of(p, one)->output != print_of(p, other)->output;
}

/* Into the ring of its group. */
static void enter(struct brick_prints *p, uint64_t number)
{
    struct brick_print *print = print_of(p, number);
    struct brick_way *group = &p->ways[way(p, print->group)];
    print->next = print->previous = (uint32_t)number;
    if (group->from == 0) {
        *group = (struct brick_way){.from = print->group};
    } else {
        print->previous = group->to;
        print->next = print_of(p, group->to)->next;
        group->borders += differ(p, print->previous, number) + differ(p, number, print->next);
        group->borders -= differ(p, print->previous, print->next);
        print_of(p, print->previous)->next = print_of(p, print->next)->previous = (uint32_t)number;
    }
    group->to = (uint32_t)number;
}

/* Out of it; it is no opinion any more. */
static void leave(struct brick_prints *p, uint64_t number)
{
    struct brick_print *print = print_of(p, number);
    const size_t place = way(p, print->group);
    struct brick_way *group = &p->ways[place];
    print->count = 0;
    if (print->next == (uint32_t)number) {
        remove_way(p, place);
        return;
    }
    group->borders -= differ(p, print->previous, number) + differ(p, number, print->next);
    group->borders += differ(p, print->previous, print->next);
    group->to = print->previous;
    print_of(p, print->previous)->next = print->next;
    print_of(p, print->next)->previous = print->previous;
}

/* It is no opinion any more, if it was one: what was alone meets nobody. */
static void fall(struct brick_prints *p, uint64_t number)
{
    const struct brick_print *print = print_of(p, number);
    if (print->count == 0)
        return;
    struct brick_site_count *count = print->apart ? brick_count_known(p, print->service, brick_print_site(print))
                                                  : brick_count_known(p, 0, 0);
    if (count != NULL && print->alone > 0) { /* where there is none its service is known no more */
        count->gone += print->alone;
        brick_count_changes(p, count);
    }
    const uint64_t from = worker_in(print->group, print->worker);
    size_t place = way(p, from);
    while (p->ways[place].to != (uint32_t)number)
        place = way_at(p, from, place + 1);
    remove_way(p, place);
    leave(p, number);
}

static int in_order(const void *one, const void *other)
{
    const uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    return (a > b) - (a < b);
}

void brick_prints_mute(struct brick_prints *p, uint32_t *workers, size_t count)
{
    qsort(workers, count, sizeof *workers, in_order);
    for (uint64_t n = p->first; n < p->end; n++)
        if (bsearch(&print_of(p, n)->worker, workers, count, sizeof *workers, in_order) != NULL)
            fall(p, n);
}

/* Whether anybody else has an opinion in the group; what these said alone has met somebody now. */
static int meet(struct brick_prints *p, const struct brick_way *group, uint32_t worker, struct brick_site_count *count)
{
    int met = 0;
    uint32_t number = group->to;
    for (uint32_t n = 0; n <= BRICK_OUTPUTS_MAX; n++) { /* of one that is alone there are no more */
        struct brick_print *other = print_of(p, number);
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

/* Of a worker's opinions the one of this output; or the last, where another one would be too many. NULL: neither. */
static struct brick_way *own_way(const struct brick_prints *p, uint64_t from, uint64_t output)
{
    struct brick_way *own = NULL;
    uint32_t outputs = 0;
    for (size_t place = way(p, from); p->ways[place].from == from; place = way_at(p, from, place + 1), outputs++) {
        own = &p->ways[place];
        if (print_of(p, own->to)->output == output)
            return own;
    }
    return outputs == BRICK_OUTPUTS_MAX ? own : NULL;
}

/* The print with this number says it too. Whether its group has another output. */
static int join(struct brick_prints *p, uint64_t number, struct brick_site_count *count)
{
    struct brick_print *print = print_of(p, number);
    print->group = group_of(p, print);
    const struct brick_way *group = &p->ways[way(p, print->group)];
    const int some = group->from != 0;
    const int unlike = some && (group->borders > 0 || print_of(p, group->to)->output != print->output);
    const int met = some && meet(p, group, print->worker, count);
    const uint64_t from = worker_in(print->group, print->worker);
    struct brick_way *own = some ? own_way(p, from, print->output) : NULL;
    count->met += (uint64_t)met;
    print->count = 1;
    print->alone = !met;
    if (own == NULL) {
        put_way(p, (struct brick_way){.from = from, .to = (uint32_t)number});
        enter(p, number);
    } else {
        const uint32_t last = own->to;
        const struct brick_print *before = print_of(p, last);
        print->count = before->count + (before->count < COUNT_MAX);
        print->alone = before->alone + (!met && before->alone < ALONE_MAX);
        own->to = (uint32_t)number;
        enter(p, number);
        leave(p, last);
    }
    return unlike;
}

/* ---- adding ------------------------------------------------------------- */

/* What stands for a number; 0: it is not known. */
static uint64_t text_of(const uint64_t *texts, size_t count, uint32_t number, int named)
{
    const uint64_t text = number < count ? texts[number] : 0;
    return text != 0 || named ? text : brick_mixed(BRICK_ODD + number) | BRICK_SITE_STATEFUL;
}

static const struct brick_tensor_sums *sums_of(const struct brick_record *slots, uint32_t tensor)
{
    return (const struct brick_tensor_sums *)(const void *)&slots[2 + 2 * tensor];
}

/* Of what each member of a group holds whole, and of what is moved, the relation says who must have the same. */
static int is_of_a_shard(const struct brick_checked *c)
{
    return c->relation == BRICK_LOCAL || c->relation == BRICK_PARTIAL;
}

static enum brick_added make(const struct brick_speaker *by, const struct brick_record *slots, size_t left,
                             struct brick_print *print)
{
    const struct brick_checked *c = (const struct brick_checked *)(const void *)slots;
    if (c->kind != BRICK_KIND_CHECKED || !brick_checked_possible(c) || c->slots > left)
        return BRICK_ADDED_NOT;
    *print = (struct brick_print){
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
    print->site = text_of(by->sites, by->sites_count, c->site, by->named);
    print->backend = c->backend != 0 ? text_of(by->names, by->names_count, c->backend, by->named) : 1;
    print->of = c->of != 0 ? text_of(by->names, by->names_count, c->of, by->named) : 1;
    if (print->site == 0 || print->backend == 0 || print->of == 0)
        return BRICK_ADDED_UNKNOWN;
    print->site_stateful = (print->site & BRICK_SITE_STATEFUL) != 0;
    print->site &= ~BRICK_SITE_STATEFUL;
    const struct brick_tensor_sums *output = sums_of(slots, 0);
    if (output->dtype == 0) /* nothing came out: two of those would be equal */
        return BRICK_ADDED_NOT;
    print->stateful = (c->flags & BRICK_CHECKED_STATEFUL) != 0
                    || (print->site_stateful && (c->flags & BRICK_CHECKED_STATELESS) == 0);
    print->output = output->checksum;
    print->shape = output->shape;
    print->dtype = output->dtype;
    uint64_t form = c->inputs, inputs = c->inputs;
    int readable = c->inputs > 0;
    for (uint32_t n = 1; n <= c->inputs; n++) {
        const struct brick_tensor_sums *input = sums_of(slots, n);
        form = brick_prints_digest(form, (uint64_t)input->dtype << 32 | input->shape);
        inputs = brick_prints_digest(inputs, input->checksum);
        readable &= input->dtype != 0;
    }
    print->form = (uint32_t)(form >> 32);
    if (c->flags & BRICK_CHECKED_POSITION) /* a rotary embedding, say, does another thing at each */
        inputs = brick_prints_digest(inputs, c->position);
    print->inputs = readable ? inputs | 1 : 0;
    uint64_t context = brick_prints_digest(print->backend, print->of);
    context = brick_prints_digest(brick_prints_digest(brick_prints_digest(context, print->params), print->valid), print->shard);
    context = brick_prints_digest(context, (uint64_t)print->shape << 32 | print->form);
    print->context = brick_prints_digest(context, (uint64_t)print->stateful << 16 | (uint64_t)print->dtype << 8 | print->relation);
    return BRICK_ADDED;
}

static void put(struct brick_prints *p, struct brick_print *print, const struct brick_record *slots)
{
    print->at = p->slots_end;
    for (uint64_t n = 0; n < print->slots; n++)
        p->slots[(print->at + n) & (p->slots_room - 1)] = slots[n];
    p->slots_end += print->slots;
    *print_of(p, p->end++) = *print;
}

/* Whether rounding may have made it of each of the last few in its group that are another output: so it is where some add
 * up in another order, whatever they are given. */
static enum brick_rounded rounded(const struct brick_prints *p, uint64_t number)
{
    struct brick_record own[BRICK_CHECKED_SLOTS_MAX], other[BRICK_CHECKED_SLOTS_MAX];
    const struct brick_print *print = print_of(p, number);
    uint64_t opinion = whole(p, print->previous);
    enum brick_rounded found = BRICK_ROUNDED_SPREAD;
    uint32_t beside = 0;
    for (uint32_t n = 0; n < NEAREST && beside < OUTPUTS_NEAREST && opinion != number; n++) {
        const struct brick_print *it = print_of(p, opinion);
        if (it->output != print->output && (beside == 0 || it->output != print_of(p, whole(p, it->next))->output)) {
            if (beside++ == 0)
                brick_prints_slots(p, print, own);
            brick_prints_slots(p, it, other);
            const enum brick_rounded here = brick_rounded(own, other);
            found = here < found ? here : found;
        }
        opinion = whole(p, it->previous);
    }
    return beside > 0 ? found : BRICK_ROUNDED_NOT;
}

enum brick_added brick_prints_add(struct brick_prints *p, const struct brick_speaker *by,
                                  const struct brick_record *slots, size_t left)
{
    struct brick_print print;
    enum brick_added made = make(by, slots, left, &print);
    if (made != BRICK_ADDED) {
        p->refused += made == BRICK_ADDED_NOT;
        return made;
    }
    if (p->bytes_max == 0)
        return BRICK_ADDED;
    struct brick_site_count *count = brick_count_of(p, print.service, brick_print_site(&print));
    if (count == NULL || !make_room(p, print.slots))
        return BRICK_ADDED_NO_MEMORY;
    brick_count_changes(p, count);
    count->prints++;
    print.apart = count->site != 0;
    put(p, &print, slots);
    count->bare += print.inputs == 0;
    count->stateful += print.inputs != 0 && print.stateful;
    if (!brick_print_is_grouped(&print))
        return BRICK_ADDED;
    if (join(p, p->end - 1, count))
        brick_count_unlike(p, p->end - 1, count, rounded(p, p->end - 1));
    return BRICK_ADDED;
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

int brick_prints_copy(struct brick_prints *p, const struct brick_prints *from, const struct brick_renumbered *r)
{
    size_t room;
    uint32_t *places = brick_places(r->workers, r->count, &room);
    if (places == NULL)
        return 0;
    uint64_t prints = p->end - p->first, slots = p->slots_end - p->slots_first;
    for (uint64_t n = from->first; n < from->end; n++) {
        const struct brick_print *print = print_of(from, n);
        const int here = print->worker < room && places[print->worker] != UINT32_MAX;
        prints += (uint64_t)here;
        slots += here ? print->slots : 0;
    }
    int whole = 1;
    while (whole && (prints > p->prints_room || slots > p->slots_room))
        whole = grow(p);
    for (uint64_t n = from->first; whole && n < from->end; n++) {
        struct brick_record of_it[BRICK_CHECKED_SLOTS_MAX];
        struct brick_print print = *print_of(from, n);
        const uint32_t place = print.worker < room ? places[print.worker] : UINT32_MAX;
        if (place == UINT32_MAX)
            continue;
        brick_prints_slots(from, &print, of_it);
        print.worker = r->as[place];
        print.service = r->services[place];
        print.group = print.count = 0;
        put(p, &print, of_it);
        r->ends[place] = p->end;
    }
    free(places);
    return whole;
}
