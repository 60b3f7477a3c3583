/* tables.c - the tables that give indexes to names and paths, in plain memory; the test acts as the other threads. */
#include "writer/intern.h"

#include <stdlib.h>
#include <string.h>

static struct brick_tables tables;
static struct brick_segment segment;
void (*brick_test_point)(const char *name);

int brick_segment_commit(const struct brick_segment *s, uint64_t offset, uint64_t length)
{
    return offset + length <= s->layout.size;
}

int tables_begin(uint32_t names, uint32_t paths, void (*at)(const char *name));
int tables_begin(uint32_t names, uint32_t paths, void (*at)(const char *name))
{
    static struct brick_header header;
    header = (struct brick_header){.lanes = 1, .paths = paths, .names = names, .sites = 64, .span_slots = 1,
                                   .event_slots = 1, .buckets = BRICK_BUCKETS};
    brick_test_point = NULL;
    free(segment.base);
    segment = (struct brick_segment){.header = &header};
    if (!brick_layout_compute(&header, &segment.layout) || !brick_tables_make(&tables, &header)
        || (segment.base = (uint8_t *)calloc(1, segment.layout.size)) == NULL)
        return 0;
    brick_tables_begin(&tables, &segment);
    brick_test_point = at;
    return 1;
}

uint32_t tables_name(const char *text);
uint32_t tables_name(const char *text)
{
    return brick_name_intern(&tables, &segment, text, strlen(text), segment.header->names);
}

/* Returns the flags BRICK_NAME_READY and BRICK_NAME_VOID of a name. */
uint32_t tables_word(uint32_t number);
uint32_t tables_word(uint32_t number) { return brick_names_of(&segment)[number].word; }

uint64_t tables_path(uint64_t key);
uint64_t tables_path(uint64_t key)
{
    const uint64_t found = brick_entry_find(&tables, key);
    return (found != 0 ? found : brick_path_intern(&tables, &segment, key)) & 0xFFFF;
}

/* Acts as another thread that claims the first free entry for a key and does not publish it yet; returns the entry. */
uint64_t tables_claim(uint64_t key);
uint64_t tables_claim(uint64_t key)
{
    uint64_t at = brick_entry_place(&tables, key);
    while (tables.entries[at].value != 0)
        at = (at + 1) & tables.entry_mask;
    tables.entries[at].value = BRICK_ENTRY_CLAIMED | BRICK_OTHER;
    return at;
}

/* Acts as the other thread: publishes the entry with the index of the key. */
void tables_publish(uint64_t at, uint64_t key, uint64_t number);
void tables_publish(uint64_t at, uint64_t key, uint64_t number)
{
    tables.entries[at] = (struct brick_entry){.key = key, .value = BRICK_ENTRY_CLAIMED | number};
}
