/* writer/intern.c - assigns ids to names, paths and sites. This code runs rarely: once per name, place in the call
 * tree and site. Several threads may run it at the same time, and none waits (struct brick_entry). */
#include "intern.h"
#include "sensitive.h"

#include "brick_hash.h"

#include <stdlib.h>
#include <string.h>

static uint64_t power_of_two_from(uint64_t n)
{
    uint64_t size = 64;
    while (size < n)
        size *= 2;
    return size;
}

int brick_tables_make(struct brick_tables *t, const struct brick_header *h)
{
    /* Paths and sites fill at most half of the entries; recursions may take the other half. */
    uint64_t entries = power_of_two_from((uint64_t)h->paths * 4 + (uint64_t)h->sites * 2), numbers = power_of_two_from((uint64_t)h->names * 2);
    memset(t, 0, sizeof *t);
    t->entries = (struct brick_entry *)brick_private_memory(entries * sizeof *t->entries);
    t->numbers = (uint32_t *)brick_private_memory(numbers * sizeof *t->numbers);
    if (t->entries == NULL || t->numbers == NULL)
        return 0;
    t->entry_mask = entries - 1;
    t->entry_shift = (uint32_t)__builtin_clzll(entries) + 1;
    t->number_mask = numbers - 1;
    return 1;
}

/* ---- names ------------------------------------------------------------- */

/* Raises a counter in the segment, which readers see, to `value`; never lowers it. */
static void raise_to(uint64_t *counter, uint64_t value)
{
    uint64_t now = brick_load_relaxed(counter);
    while (now < value && !__atomic_compare_exchange_n(counter, &now, value, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
}

/* Returns the next id, or `room` if no id is free. Compares before it takes an id, so that refused requests do not
 * raise *next again and again.
 * */
static uint64_t take_number(uint64_t *next, uint64_t room, uint64_t *seen)
{
    uint64_t number = brick_load_relaxed(next) < room ? brick_fetch_add(next, 1) : room; /* O4 */
    if (number >= room)
        return room;
    raise_to(seen, number + 1);
    return number;
}

/* Returns whether the name has memory. A name without memory is a hole in the file and must not be touched. */
static int name_is_there(const struct brick_segment *s, uint64_t number)
{
    const uint64_t block = number / BRICK_BLOCK;
    return (brick_load_acquire(&s->name_blocks[block / 64]) >> block % 64 & 1) != 0;
}

static int name_has_memory(struct brick_segment *s, uint64_t number)
{
    if (name_is_there(s, number))
        return 1;
    uint64_t block = number / BRICK_BLOCK;
    uint64_t bytes = BRICK_BLOCK * sizeof(struct brick_name);
    if (!brick_segment_commit(s, s->layout.names + block * bytes, bytes)) {
        brick_fetch_add(&brick_process_of(s)->blocks_refused, 1);
        return 0;
    }
    __atomic_fetch_or(&s->name_blocks[block / 64], UINT64_C(1) << block % 64, __ATOMIC_RELEASE);
    return 1;
}

static void name_write(struct brick_name *slot, const uint8_t *text, size_t length)
{
    memcpy(slot->text, text, length);
    BRICK_POINT("name_text");
    brick_store_release32(&slot->word, BRICK_NAME_READY | (uint32_t)length); /* O3 */
}

static int name_is(const struct brick_name *slot, const uint8_t *text, size_t length)
{
    uint32_t word = brick_load_acquire32(&slot->word);
    return (word & BRICK_NAME_LENGTH) == length && memcmp(slot->text, text, length) == 0;
}

/* Truncates at a character border and appends eight digits of the hash. Keeps the word that makes a name sensitive
 * (sensitive.h). */
static size_t name_cut(uint8_t *cut, const char *text, size_t length)
{
    static const char hex[] = "0123456789abcdef";
    size_t end = brick_whole_characters(text, BRICK_NAME_MAX - 9);
    const char *word = brick_sensitive_word(text, length);
    if (word == NULL || brick_sensitive_word(text, end) != NULL) {
        memcpy(cut, text, end);
    } else {
        const size_t more = strlen(word);
        end = brick_whole_characters(text, end - more - 1);
        memcpy(cut, text, end);
        cut[end++] = '~';
        memcpy(cut + end, word, more);
        end += more;
    }
    cut[end++] = '~';
    const uint64_t h = brick_fnv1a(text, length);
    for (int digit = 0; digit < 8; digit++)
        cut[end++] = (uint8_t)hex[h >> (60 - 4 * digit) & 15];
    return end;
}

uint32_t brick_name_intern(struct brick_tables *t, struct brick_segment *s, const char *name, size_t length, uint64_t room)
{
    struct brick_process *process = brick_process_of(s);
    struct brick_name *names = brick_names_of(s);
    uint8_t cut[BRICK_NAME_MAX];
    const uint8_t *text = (const uint8_t *)name;
    int too_long = length > BRICK_NAME_MAX;
    if (too_long) {
        length = name_cut(cut, name, length);
        text = cut;
    }
    uint64_t place = brick_fnv1a(text, length) & t->number_mask, mine = room;
    for (;; place = (place + 1) & t->number_mask) {
        uint32_t number = brick_load_acquire32(&t->numbers[place]);
        if (number != 0) {
            if (!name_is(&names[number - 1], text, length))
                continue;
            if (mine < room) /* another thread interned the name first */
                brick_store_release32(&names[mine].word, BRICK_NAME_READY | BRICK_NAME_VOID);
            return number - 1;
        }
        if (mine == room) {
            mine = take_number(&t->next_name, room, &process->names);
            if (mine == room || !name_has_memory(s, mine)) {
                brick_fetch_add(&process->names_refused, room == s->header->names);
                return BRICK_OTHER;
            }
            brick_fetch_add(&process->names_cut, (uint64_t)too_long);
            name_write(&names[mine], text, length);
        }
        if (brick_claim32(&t->numbers[place], 0, (uint32_t)mine + 1))
            return (uint32_t)mine;
        place = (place - 1) & t->number_mask; /* look again: another thread has changed this entry */
    }
}

/* ---- paths ------------------------------------------------------------- */

/* Recursion: returns the path of the nearest ancestor with the same brick and layer. */
static uint32_t ancestor_like(const uint64_t *paths, uint64_t key)
{
    uint64_t same = key >> 16;
    for (uint32_t path = brick_key_parent(key); path != BRICK_ROOT;) {
        uint64_t above = brick_load_acquire(&paths[path]);
        if (above >> 16 == same)
            return path;
        path = brick_key_parent(above);
    }
    return BRICK_OTHER;
}

static void entry_put(struct brick_tables *t, uint64_t key, uint64_t value)
{
    if ((value & BRICK_ENTRY_AGAIN) != 0 && brick_fetch_add(&t->recursions, 1) > t->entry_mask / 2)
        return; /* without an entry, each span of the recursion searches its ancestors again */
    for (uint64_t i = brick_entry_place(t, key);; i = (i + 1) & t->entry_mask) {
        struct brick_entry *e = &t->entries[i];
        uint64_t free_value = 0;
        if (__atomic_compare_exchange_n(&e->value, &free_value, value | BRICK_ENTRY_CLAIMED, 0, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE)) {
            brick_store_release(&e->key, key); /* O3 */
            return;
        }
    }
}

/* Like brick_entry_find, but does not stop at an entry that is claimed and not yet published. */
static uint64_t entry_find_all(const struct brick_tables *t, uint64_t key)
{
    for (uint64_t i = brick_entry_place(t, key);; i = (i + 1) & t->entry_mask) {
        const struct brick_entry *e = &t->entries[i];
        uint64_t value = brick_load_relaxed(&e->value);
        if (brick_load_acquire(&e->key) == key)
            return brick_load_relaxed(&e->value);
        if (value == 0)
            return 0;
    }
}

uint64_t brick_path_intern(struct brick_tables *t, struct brick_segment *s, uint64_t key)
{
    /* Spans of the path "other" may be inside each other, so they are marked like a recursion. */
    const uint64_t other = BRICK_OTHER | BRICK_ENTRY_AGAIN;
    if (brick_key_parent(key) == BRICK_OTHER)
        return other; /* all paths below "other" are "other" */
    if (brick_key_name(key) >= s->header->names)
        return other; /* no name has this id: a path with such an id would make readers refuse the whole segment */
    uint64_t value = entry_find_all(t, key);
    if (value != 0)
        return value;
    uint64_t *paths = brick_paths_of(s);
    uint64_t number = ancestor_like(paths, key);
    if (number != BRICK_OTHER) {
        value = number | BRICK_ENTRY_AGAIN;
    } else if (brick_is_mark(brick_key_unit(key)) && brick_load_relaxed(&t->next_path) >= s->header->paths / 2) {
        return other; /* marks get only half of the paths; the other half is for spans */
    } else {
        number = take_number(&t->next_path, s->header->paths, &brick_process_of(s)->paths);
        if (number == s->header->paths)
            return other;
        BRICK_POINT("path_claimed");
        brick_store_release(&paths[number], key); /* O3 */
        value = number;
    }
    entry_put(t, key, value);
    return value;
}

/* ---- sites ------------------------------------------------------------- */

int brick_name_is_given(const struct brick_segment *s, uint32_t number)
{
    /* Name 0 is not one name: it stands for all names without room. */
    if (number == BRICK_OTHER || number >= s->header->names || !name_is_there(s, number))
        return 0;
    return (brick_load_acquire32(&brick_names_of(s)[number].word) & (BRICK_NAME_READY | BRICK_NAME_VOID)) == BRICK_NAME_READY;
}

static int is_off(const struct brick_name *name)
{
    const char *wanted = getenv("BRICKD_SENSITIVE");
    return brick_is_sensitive((const char *)name->text, brick_load_acquire32(&name->word) & BRICK_NAME_LENGTH)
           && (wanted == NULL || strcmp(wanted, "1") != 0);
}

uint64_t brick_site_intern(struct brick_tables *t, struct brick_segment *s, uint64_t key)
{
    return brick_site_intern_as(t, s, key, BRICK_SITE_RECORDED);
}

uint64_t brick_site_intern_as(struct brick_tables *t, struct brick_segment *s, uint64_t key, uint32_t unit)
{
    const uint32_t name = brick_key_name(key), layer = brick_key_layer(key);
    if (!brick_name_is_given(s, name))
        return 0;
    uint64_t value = entry_find_all(t, key);
    if (value != 0)
        return value;
    const uint64_t number = take_number(&t->next_site, s->header->sites, &brick_process_of(s)->sites);
    if (number == s->header->sites)
        return 0;
    const int off = key != brick_weight_entry(name, layer) && is_off(&brick_names_of(s)[name]);
    BRICK_POINT("site_claimed");
    brick_store_release(&brick_sites_of(s)[number],
                        brick_site_key(name, layer, off ? BRICK_SITE_OFF : unit)); /* O3 */
    value = number | BRICK_ENTRY_CLAIMED | (off ? BRICK_ENTRY_OFF : 0);
    entry_put(t, key, value);
    return value;
}

/* ---- a new segment ----------------------------------------------------- */

void brick_tables_begin(struct brick_tables *t, struct brick_segment *s)
{
    const uint64_t number = take_number(&t->next_name, s->header->names, &brick_process_of(s)->names);
    if (name_has_memory(s, number)) /* not in the hash table, so that a name "other" of the host gets another id */
        name_write(&brick_names_of(s)[number], (const uint8_t *)"other", 5);
    take_number(&t->next_path, s->header->paths, &brick_process_of(s)->paths);
    brick_store_release(&brick_paths_of(s)[BRICK_OTHER], brick_path_key(BRICK_ROOT, BRICK_OTHER, BRICK_NO_LAYER, 0));
}

static int name_copy(struct brick_segment *to, const struct brick_segment *from, uint64_t number)
{
    if (!name_is_there(from, number))
        return 1;
    const struct brick_name *source = &brick_names_of(from)[number];
    uint32_t word = brick_load_acquire32(&source->word);
    if ((word & BRICK_NAME_READY) == 0)
        return 1; /* another thread is writing this name, or was writing it at the fork; nothing uses its id yet */
    if (!name_has_memory(to, number))
        return 0;
    struct brick_name *slot = &brick_names_of(to)[number];
    /* Copy the category even if the name was copied before: it may have been declared since then. */
    brick_claim32(&slot->category, 0, brick_load_relaxed32(&source->category));
    if (brick_load_acquire32(&slot->word) != 0)
        return 1;
    memcpy(slot->text, source->text, word & BRICK_NAME_LENGTH);
    brick_store_release32(&slot->word, word); /* O3 */
    return 1;
}

static void keys_copy(uint64_t *to, const uint64_t *from, uint64_t count)
{
    for (uint64_t n = 0; n < count; n++) {
        uint64_t key = brick_load_acquire(&from[n]);
        if (key != 0)
            brick_store_release(&to[n], key);
    }
}

int brick_tables_copy(struct brick_tables *t, struct brick_segment *to, const struct brick_segment *from)
{
    const uint64_t names = brick_least(brick_load_relaxed(&t->next_name), to->header->names);
    const uint64_t paths = brick_least(brick_load_relaxed(&t->next_path), to->header->paths);
    const uint64_t sites = brick_least(brick_load_relaxed(&t->next_site), to->header->sites);
    for (uint64_t n = 0; n < names; n++)
        if (!name_copy(to, from, n))
            return 0;
    keys_copy(brick_paths_of(to), brick_paths_of(from), paths);
    keys_copy(brick_sites_of(to), brick_sites_of(from), sites);
    raise_to(&brick_process_of(to)->names, names);
    raise_to(&brick_process_of(to)->paths, paths);
    raise_to(&brick_process_of(to)->sites, sites);
    return 1;
}

void brick_tables_forked(struct brick_tables *t)
{
    for (uint64_t i = 0; i <= t->entry_mask; i++) /* free entries of threads that the child lacks */
        if (t->entries[i].key == 0 && t->entries[i].value != 0) /* without a store, the page stays shared */
            t->entries[i].value = 0;
}
