/* brick_intern.c - names and paths get their numbers.
 *
 * Cold: once per name and once per place in the call tree. Several threads may
 * be here at once; nobody waits for anybody (see struct brick_entry).
 */
#include "brick_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static uint64_t hash_text(const uint8_t *text, size_t length)
{
    uint64_t h = UINT64_C(0xCBF29CE484222325);
    for (size_t i = 0; i < length; i++)
        h = (h ^ text[i]) * UINT64_C(0x100000001B3);
    return h;
}

static void *private_memory(uint64_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static uint64_t power_of_two_from(uint64_t n)
{
    uint64_t size = 64;
    while (size < n)
        size *= 2;
    return size;
}

int brick_tables_make(struct brick_tables *t, const struct brick_header *h)
{
    /* Four entries a path: a quarter full when every path is used, the rest for recursions. */
    uint64_t entries = power_of_two_from((uint64_t)h->paths * 4), numbers = power_of_two_from((uint64_t)h->names * 2);
    memset(t, 0, sizeof *t);
    t->entries = (struct brick_entry *)private_memory(entries * sizeof *t->entries);
    t->numbers = (uint32_t *)private_memory(numbers * sizeof *t->numbers);
    if (t->entries == NULL || t->numbers == NULL)
        return 0;
    t->entry_mask = entries - 1;
    t->entry_shift = (uint32_t)__builtin_clzll(entries) + 1;
    t->number_mask = numbers - 1;
    return 1;
}

/* ---- names ------------------------------------------------------------- */

static int name_has_memory(struct brick_tables *t, const struct brick_segment *s, uint64_t number)
{
    uint64_t block = number / BRICK_BLOCK, bit = UINT64_C(1) << block % 64, *word = &t->committed[block / 64];
    if ((brick_load_acquire(word) & bit) != 0)
        return 1;
    uint64_t bytes = BRICK_BLOCK * sizeof(struct brick_name);
    if (!brick_segment_commit(s, s->layout.names + block * bytes, bytes)) {
        brick_fetch_add(&brick_process_of(s)->blocks_refused, 1);
        return 0;
    }
    __atomic_fetch_or(word, bit, __ATOMIC_RELEASE);
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

/* Cut at a character's border, and told from its like by eight digits of its hash. */
static size_t name_cut(uint8_t *cut, const char *text, size_t length)
{
    static const char hex[] = "0123456789abcdef";
    size_t end = BRICK_NAME_MAX - 9;
    while (end > 0 && ((uint8_t)text[end] & 0xC0) == 0x80)
        end--;
    memcpy(cut, text, end);
    cut[end++] = '~';
    uint64_t h = hash_text((const uint8_t *)text, length);
    for (int digit = 0; digit < 8; digit++)
        cut[end++] = (uint8_t)hex[h >> (60 - 4 * digit) & 15];
    return end;
}

uint32_t brick_name_intern(struct brick_tables *t, const struct brick_segment *s, const char *name, size_t length)
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
    uint64_t place = hash_text(text, length) & t->number_mask, mine = 0;
    for (;; place = (place + 1) & t->number_mask) {
        uint32_t number = brick_load_acquire32(&t->numbers[place]);
        if (number != 0) {
            if (!name_is(&names[number - 1], text, length))
                continue;
            if (mine != 0) /* another thread had it first */
                brick_store_release32(&names[mine].word, BRICK_NAME_READY | BRICK_NAME_VOID);
            return number - 1;
        }
        if (mine == 0) {
            /* Refused before it is counted up, so that the counter cannot run away. */
            if (brick_load_relaxed(&process->names) >= s->header->names
                || (mine = brick_fetch_add(&process->names, 1)) >= s->header->names || !name_has_memory(t, s, mine)) {
                brick_fetch_add(&process->names_refused, 1);
                return BRICK_OTHER;
            }
            brick_fetch_add(&process->names_cut, (uint64_t)too_long);
            name_write(&names[mine], text, length);
        }
        if (brick_claim32(&t->numbers[place], 0, (uint32_t)mine + 1))
            return (uint32_t)mine;
        place = (place - 1) & t->number_mask; /* look at what was put there */
    }
}

/* ---- paths ------------------------------------------------------------- */

/* Recursion: the nearest ancestor that is the same brick in the same layer. */
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
    /* At three quarters the table stops growing: the rest is found the slow way. */
    if (brick_fetch_add(&t->used, 1) > t->entry_mask / 4 * 3)
        return;
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

/* Once more past the entries that are claimed but not published. */
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

uint64_t brick_path_intern(struct brick_tables *t, const struct brick_segment *s, uint64_t key)
{
    if (brick_key_parent(key) == BRICK_OTHER)
        return BRICK_OTHER; /* below "other" everything is other */
    uint64_t value = entry_find_all(t, key);
    if (value != 0)
        return value;
    uint64_t *paths = brick_paths_of(s);
    struct brick_process *process = brick_process_of(s);
    uint64_t number = ancestor_like(paths, key);
    if (number != BRICK_OTHER) {
        value = number | BRICK_ENTRY_AGAIN;
    } else {
        if (brick_load_relaxed(&process->paths) >= s->header->paths
            || (number = brick_fetch_add(&process->paths, 1)) >= s->header->paths)
            return BRICK_OTHER;
        BRICK_POINT("path_claimed");
        brick_store_release(&paths[number], key); /* O3 */
        value = number;
    }
    entry_put(t, key, value);
    return value;
}

/* ---- a new segment ----------------------------------------------------- */

int brick_tables_publish(struct brick_tables *t, const struct brick_segment *to, const struct brick_segment *from)
{
    struct brick_process *process = brick_process_of(to);
    uint64_t had[16]; /* a hole of the old segment must not be touched */
    memcpy(had, t->committed, sizeof had);
    memset(t->committed, 0, sizeof t->committed);
    t->committed[0] = 1; /* the first block came with the segment */
    if (from == NULL) {
        brick_store_relaxed(&process->names, 0);
        brick_store_relaxed(&process->paths, 1);
        brick_name_intern(t, to, "other", 5);
        brick_store_release(&brick_paths_of(to)[BRICK_OTHER], brick_path_key(BRICK_ROOT, BRICK_OTHER, BRICK_NO_LAYER, 0));
        return 1;
    }
    const struct brick_process *before = brick_process_of(from);
    uint64_t names = brick_load_relaxed(&before->names), paths = brick_load_relaxed(&before->paths);
    names = names < to->header->names ? names : to->header->names;
    paths = paths < to->header->paths ? paths : to->header->paths;
    for (uint64_t n = 0; n < names; n++) {
        if ((had[n / BRICK_BLOCK / 64] >> n / BRICK_BLOCK % 64 & 1) == 0)
            continue;
        const struct brick_name *source = &brick_names_of(from)[n];
        uint32_t word = brick_load_acquire32(&source->word);
        if ((word & BRICK_NAME_READY) == 0)
            continue; /* another thread was at it when we forked: nobody here knows its number */
        if (!name_has_memory(t, to, n))
            return 0;
        struct brick_name *slot = &brick_names_of(to)[n];
        slot->category = brick_load_relaxed32(&source->category);
        name_write(slot, source->text, word & BRICK_NAME_LENGTH);
        slot->word = word;
    }
    for (uint64_t n = 0; n < paths; n++)
        brick_store_release(&brick_paths_of(to)[n], brick_load_acquire(&brick_paths_of(from)[n]));
    brick_store_relaxed(&process->names, names);
    brick_store_relaxed(&process->paths, paths);
    for (uint64_t i = 0; i <= t->entry_mask; i++) /* claimed by a thread that the fork left behind */
        if (t->entries[i].key == 0)
            t->entries[i].value = 0;
    return 1;
}
