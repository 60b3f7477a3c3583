#include "prints.h"

#include "mix.h"
#include "walk.h"

#include <stdlib.h>
#include <string.h>

#define ODD UINT64_C(0x9E3779B97F4A7C15)

#define COUNT_MAX ((1u << 12) - 1)
#define ALONE_MAX ((1u << 20) - 1)

/* Four slots are the least that a record has, and so many cells its table takes at most. */
#define SLOTS_OF_A_PRINT 4u
#define CELLS_OF_A_PRINT 4u
#define SLOTS_MIN ((size_t)1024)
#define BYTES_OF_A_SLOT \
    (sizeof(struct brick_record) \
     + (sizeof(struct brick_print) + CELLS_OF_A_PRINT * sizeof(struct brick_cell)) / SLOTS_OF_A_PRINT)

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
    free(p->cells);
    free(p->counts);
    free(p->counts_index);
    free(p->changed);
    free(p->waiting);
}

static uint64_t digest(uint64_t of, uint64_t and) { return brick_mixed(of ^ brick_mixed(and + ODD)); }

/* ---- room --------------------------------------------------------------- */

static struct brick_print *print_of(const struct brick_prints *p, uint64_t number)
{
    return &p->prints[number & (p->prints_room - 1)];
}

const struct brick_print *brick_prints_at(const struct brick_prints *p, uint64_t number) { return print_of(p, number); }

void brick_prints_slots(const struct brick_prints *p, const struct brick_print *print, struct brick_record *slots)
{
    for (uint64_t n = 0; n < print->slots; n++)
        slots[n] = p->slots[(print->at + n) & (p->slots_room - 1)];
}

/* Rings of twice the room. 0: there is no memory, or the bound forbids it. */
static int grow(struct brick_prints *p)
{
    struct brick_prints wider = *p;
    wider.slots_room = p->slots_room > 0 ? 2 * p->slots_room : SLOTS_MIN;
    wider.prints_room = wider.slots_room / SLOTS_OF_A_PRINT;
    if (wider.slots_room > SLOTS_MIN && wider.slots_room > p->bytes_max / BYTES_OF_A_SLOT)
        return 0;
    wider.slots = malloc(wider.slots_room * sizeof *wider.slots);
    wider.prints = malloc(wider.prints_room * sizeof *wider.prints);
    if (wider.slots == NULL || wider.prints == NULL) {
        free(wider.slots);
        free(wider.prints);
        return 0;
    }
    for (uint64_t n = p->first; n < p->end; n++)
        *print_of(&wider, n) = *print_of(p, n);
    for (uint64_t n = p->slots_first; n < p->slots_end; n++)
        wider.slots[n & (wider.slots_room - 1)] = p->slots[n & (p->slots_room - 1)];
    free(p->prints);
    free(p->slots);
    *p = wider;
    return 1;
}

static void count_gone(struct brick_prints *p);

static int make_room(struct brick_prints *p, uint64_t slots)
{
    while (p->slots_end - p->slots_first + slots > p->slots_room || p->end - p->first == p->prints_room) {
        if (grow(p))
            continue;
        if (p->first == p->end)
            return 0;
        count_gone(p);
        p->first++;
        p->slots_first = p->first < p->end ? print_of(p, p->first)->at : p->slots_end;
    }
    return 1;
}

/* ---- what is counted ---------------------------------------------------- */

#define COUNTS_MIN ((size_t)128)
#define NOWHERE UINT32_MAX

static uint32_t *count_place(const struct brick_prints *p, uint32_t service, uint64_t site)
{
    uint64_t i = digest(p->key ^ service, site);
    for (;; i++) {
        uint32_t *place = &p->counts_index[i & (2 * p->counts_room - 1)];
        if (*place == 0 || (p->counts[*place - 1].site == site && p->counts[*place - 1].service == service))
            return place;
    }
}

static struct brick_site_count *new_count(struct brick_prints *p, uint32_t service, uint64_t site)
{
    struct brick_site_count *c = &p->counts[p->counts_used++];
    *c = (struct brick_site_count){.site = site, .service = service};
    *count_place(p, service, site) = (uint32_t)p->counts_used;
    return c;
}

static uint32_t *waiting_place(const struct brick_prints *p, uint32_t number)
{
    return &p->waiting[number & (p->counts_room - 1)];
}

/* Puts into `other`, which has room for all, what p counted, but for one service. `moved`: where each stands now. */
static void copy_counts(struct brick_prints *other, const struct brick_prints *p, uint64_t without, uint32_t *moved)
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

/* The counts in so much room, but for those of one service. 0: there is no memory. */
static int move_counts(struct brick_prints *p, size_t room, uint64_t without)
{
    struct brick_prints other = *p;
    uint32_t *moved = malloc(room * sizeof *moved);
    other.counts_room = room;
    other.counts_used = other.changed_count = other.waiting_first = other.waiting_end = 0;
    other.counts = malloc(room * sizeof *other.counts);
    other.counts_index = calloc(2 * room, sizeof *other.counts_index);
    other.changed = malloc(room * sizeof *other.changed);
    other.waiting = malloc(room * sizeof *other.waiting);
    struct brick_prints *gone = &other;
    const int whole = moved != NULL && other.counts != NULL && other.counts_index != NULL && other.changed != NULL
                   && other.waiting != NULL;
    if (whole) {
        const struct brick_prints before = *p;
        copy_counts(&other, &before, without, moved);
        *p = other;
        other = before;
    }
    free(moved);
    free(gone->counts);
    free(gone->counts_index);
    free(gone->changed);
    free(gone->waiting);
    return whole;
}

int brick_prints_forget(struct brick_prints *p, uint32_t service)
{
    return p->counts_room == 0 || move_counts(p, p->counts_room, service);
}

static struct brick_site_count *count_known(const struct brick_prints *p, uint32_t service, uint64_t site)
{
    const uint32_t place = p->counts_room > 0 ? *count_place(p, service, site) : 0;
    return place != 0 ? &p->counts[place - 1] : NULL;
}

/* NULL: there is no memory. */
static struct brick_site_count *count_of(struct brick_prints *p, uint32_t service, uint64_t site)
{
    struct brick_site_count *c = count_known(p, service, site);
    if (c != NULL)
        return c;
    if (p->counts_used >= BRICK_SITE_COUNTS_MAX) {
        if ((c = count_known(p, 0, 0)) != NULL)
            return c;
        service = 0;
        site = 0;
    }
    if (p->counts_used == p->counts_room
        && !move_counts(p, p->counts_room > 0 ? 2 * p->counts_room : COUNTS_MIN, UINT64_MAX))
        return NULL;
    return new_count(p, service, site);
}

static uint32_t place_of(const struct brick_prints *p, const struct brick_site_count *c)
{
    return (uint32_t)(c - p->counts);
}

static void changes(struct brick_prints *p, struct brick_site_count *c)
{
    if (!c->changed)
        p->changed[p->changed_count++] = place_of(p, c);
    c->changed = 1;
}

void brick_prints_tell_counts(struct brick_prints *p, struct brick_site_count *counts)
{
    for (size_t n = 0; n < p->changed_count; n++) {
        struct brick_site_count *c = &p->counts[p->changed[n]];
        counts[n] = *c;
        c->prints = c->bare = c->stateful = c->met = c->unlike = c->gone = 0;
        c->changed = 0;
    }
    p->changed_count = 0;
}

/* ---- groups ------------------------------------------------------------- */

uint64_t brick_prints_group(const struct brick_prints *p, const struct brick_print *print)
{
    uint64_t group = digest(digest(digest(p->key ^ print->service, print->site), print->context), print->inputs);
    return group != 0 ? group : 1;
}

static int stands(const struct brick_prints *p, const struct brick_cell *cell)
{
    return cell->group != 0 && cell->count > 0 && cell->newest >= p->first;
}

const struct brick_cell *brick_prints_cell(const struct brick_prints *p, uint64_t group, size_t *from)
{
    for (; *from < p->cells_room; ++*from) {
        const struct brick_cell *cell = &p->cells[(group + *from) & (p->cells_room - 1)];
        if (cell->group == 0)
            return NULL;
        if (cell->group == group && stands(p, cell)) {
            ++*from;
            return cell;
        }
    }
    return NULL;
}

static void put_cell(struct brick_prints *p, const struct brick_cell *cell)
{
    size_t i = cell->group & (p->cells_room - 1);
    while (p->cells[i].group != 0)
        i = (i + 1) & (p->cells_room - 1);
    p->cells[i] = *cell;
    p->cells_used++;
}

/* Room for one more. Cells that do not stand are in the way until the table is made anew. 0: there is no memory. */
static int room_for_a_cell(struct brick_prints *p)
{
    if (2 * (p->cells_used + 1) <= p->cells_room)
        return 1;
    struct brick_cell *before = p->cells;
    size_t room = p->cells_room, standing = 0;
    for (size_t n = 0; n < room; n++)
        standing += (size_t)stands(p, &before[n]);
    const size_t wanted = 3 * (standing + 1) <= room ? room : room > 0 ? 2 * room : SLOTS_MIN;
    struct brick_cell *after = calloc(wanted, sizeof *after);
    if (after == NULL)
        return 0;
    p->cells = after;
    p->cells_room = wanted;
    p->cells_used = 0;
    for (size_t n = 0; n < room; n++)
        if (stands(p, &before[n]))
            put_cell(p, &before[n]);
    free(before);
    return 1;
}

/* What was alone meets nobody any more. */
static void count_alone(struct brick_prints *p, const struct brick_print *print, const struct brick_cell *cell)
{
    struct brick_site_count *count = print->apart ? count_known(p, print->service, brick_print_site(print))
                                                  : count_known(p, 0, 0);
    if (count == NULL || cell->alone == 0) /* where there is none its service is known no more */
        return;
    count->gone += cell->alone;
    changes(p, count);
}

/* The oldest print goes. */
static void count_gone(struct brick_prints *p)
{
    const struct brick_print *print = print_of(p, p->first);
    const struct brick_cell *cell;
    if (!brick_print_is_grouped(print) || p->cells_room == 0)
        return;
    const uint64_t group = brick_prints_group(p, print);
    for (size_t from = 0; (cell = brick_prints_cell(p, group, &from)) != NULL;) {
        if (cell->newest != p->first)
            continue;
        count_alone(p, print, cell);
        return;
    }
}

static int in_order(const void *one, const void *other)
{
    const uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    return (a > b) - (a < b);
}

void brick_prints_mute(struct brick_prints *p, uint32_t *workers, size_t count)
{
    qsort(workers, count, sizeof *workers, in_order);
    for (size_t n = 0; n < p->cells_room; n++) {
        struct brick_cell *cell = &p->cells[n];
        if (!stands(p, cell) || bsearch(&cell->worker, workers, count, sizeof *workers, in_order) == NULL)
            continue;
        count_alone(p, print_of(p, cell->newest), cell);
        cell->count = 0;
    }
}

/* The print with this number says it too. Whether its group has another output. */
static int join(struct brick_prints *p, uint64_t number, struct brick_site_count *count)
{
    const struct brick_print *print = print_of(p, number);
    const uint64_t group = brick_prints_group(p, print);
    struct brick_cell *own = NULL, *last = NULL, *cell;
    uint32_t outputs = 0;
    int met = 0, unlike = 0;
    for (size_t from = 0; (cell = (struct brick_cell *)brick_prints_cell(p, group, &from)) != NULL;) {
        unlike |= cell->output != print->output;
        if (cell->worker == print->worker) {
            outputs++;
            own = cell->output == print->output ? cell : own;
            last = cell;
        } else {
            met = 1;
            count->met += cell->alone;
            cell->alone = 0;
        }
    }
    count->met += (uint64_t)met;
    if (own == NULL && outputs == BRICK_OUTPUTS_MAX) {
        own = last;
        own->output = print->output;
    }
    if (own == NULL) {
        const struct brick_cell fresh = {
            .group = group, .output = print->output, .newest = number, .worker = print->worker, .count = 1, .alone = !met};
        put_cell(p, &fresh);
    } else {
        own->newest = number;
        own->count += own->count < COUNT_MAX;
        own->alone += !met && own->alone < ALONE_MAX;
    }
    return unlike;
}

/* ---- adding ------------------------------------------------------------- */

/* What stands for a number; 0: it is not known. */
static uint64_t text_of(const uint64_t *texts, size_t count, uint32_t number, int named)
{
    const uint64_t text = number < count ? texts[number] : 0;
    return text != 0 || named ? text : brick_mixed(ODD + number) | BRICK_SITE_STATEFUL;
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
        form = digest(form, (uint64_t)input->dtype << 32 | input->shape);
        inputs = digest(inputs, input->checksum);
        readable &= input->dtype != 0;
    }
    print->form = (uint32_t)(form >> 32);
    if (c->flags & BRICK_CHECKED_POSITION) /* a rotary embedding, say, does another thing at each */
        inputs = digest(inputs, c->position);
    print->inputs = readable ? inputs | 1 : 0;
    uint64_t context = digest(print->backend, print->of);
    context = digest(digest(digest(context, print->params), print->valid), print->shard);
    context = digest(context, (uint64_t)print->shape << 32 | print->form);
    print->context = digest(context, (uint64_t)print->stateful << 16 | (uint64_t)print->dtype << 8 | print->relation);
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

/* ---- what is unlike ------------------------------------------------------ */

static void wait_unlike(struct brick_prints *p, uint64_t number, struct brick_site_count *count)
{
    count->unlike++;
    p->unlike_all++;
    if (count->waits == 0)
        *waiting_place(p, p->waiting_end++) = place_of(p, count);
    if (count->waits < BRICK_UNLIKE_OF_A_SITE) {
        count->unlike_waiting[count->waits++] = number;
        return;
    }
    for (uint32_t n = 0; n < BRICK_UNLIKE_OF_A_SITE; n++)
        if (count->unlike_waiting[n] < p->first) { /* nobody can look at that one any more */
            count->unlike_waiting[n] = number;
            return;
        }
}

size_t brick_prints_tell_unlike(struct brick_prints *p, uint64_t *numbers)
{
    const uint32_t sites = p->waiting_end - p->waiting_first;
    const uint32_t each = sites > BRICK_UNLIKE_MAX ? 1 : sites > 0 ? BRICK_UNLIKE_MAX / sites : 0;
    size_t count = 0;
    while (p->waiting_first != p->waiting_end && count < BRICK_UNLIKE_MAX) {
        struct brick_site_count *c = &p->counts[*waiting_place(p, p->waiting_first++)];
        uint32_t told = 0;
        for (uint32_t n = 0; n < c->waits && told < each; n++)
            if (c->unlike_waiting[n] >= p->first) {
                numbers[count++] = c->unlike_waiting[n];
                told++;
            }
        c->waits = 0;
    }
    return count;
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
    struct brick_site_count *count = count_of(p, print.service, brick_print_site(&print));
    if (count == NULL || !make_room(p, print.slots) || !room_for_a_cell(p))
        return BRICK_ADDED_NO_MEMORY;
    changes(p, count);
    count->prints++;
    print.apart = count->site != 0;
    put(p, &print, slots);
    count->bare += print.inputs == 0;
    count->stateful += print.inputs != 0 && print.stateful;
    if (!brick_print_is_grouped(&print))
        return BRICK_ADDED;
    if (join(p, p->end - 1, count))
        wait_unlike(p, p->end - 1, count);
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
        put(p, &print, of_it);
        r->ends[place] = p->end;
    }
    free(places);
    return whole;
}
