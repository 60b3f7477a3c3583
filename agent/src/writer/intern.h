/* intern.h - ids of names, paths and sites. */
#ifndef BRICK_INTERN_H
#define BRICK_INTERN_H

#include "segment_file.h"

/* Maps the key of a path or site to its id, in private memory. A thread claims an entry when it stores the value, and
 * publishes the entry when it stores the key. No thread waits, because a thread skips an entry that another thread has
 * claimed. In the worst case, a key gets two ids, and readers add the summaries of both. */
struct brick_entry {
    uint64_t key;   /* 0 until published (O3) */
    uint64_t value; /* id | flags; 0 = free */
};
#define BRICK_ENTRY_CLAIMED (UINT64_C(1) << 32)
#define BRICK_ENTRY_AGAIN (UINT64_C(1) << 16) /* a recursion: the id is that of an ancestor's path */
#define BRICK_ENTRY_OFF (UINT64_C(1) << 17)   /* a site whose tensors are not read */

struct brick_tables {
    struct brick_entry *entries;
    uint64_t entry_mask;
    uint32_t entry_shift;
    uint32_t *numbers; /* hash table of names: id + 1; 0 = free */
    uint64_t number_mask;
    uint64_t recursions; /* number of entries for recursions; it is limited, so that the table stays sparse */
    uint64_t next_name;  /* in private memory, so that ids continue after a segment is lost */
    uint64_t next_path, next_site;
};

static inline uint64_t brick_entry_place(const struct brick_tables *t, uint64_t key)
{
    return key * UINT64_C(0x9E3779B97F4A7C15) >> t->entry_shift;
}

/* Returns the key of a site in the private table. This table also has the keys of paths, and the unit 0x7F, which no
 * path has, distinguishes them. */
static inline uint64_t brick_site_entry(uint32_t name, uint32_t layer) { return brick_site_key(name, layer, 0x7F); }
/* Returns the key of a parameter's site in the private table. Such a site is never off, because a parameter reveals
 * nothing about customers. */
static inline uint64_t brick_weight_entry(uint32_t name, uint32_t layer) { return brick_site_key(name, layer, 0x7E); }

/* Returns the value of the key's published entry; 0 if there is no such entry (path 0 never has one). */
static inline uint64_t brick_entry_find(const struct brick_tables *t, uint64_t key)
{
    for (uint64_t i = brick_entry_place(t, key);; i = (i + 1) & t->entry_mask) {
        const struct brick_entry *e = &t->entries[i];
        uint64_t found = brick_load_acquire(&e->key);
        if (BRICK_LIKELY(found == key))
            return brick_load_relaxed(&e->value);
        if (found == 0)
            return 0;
    }
}

BRICK_HIDDEN int brick_tables_make(struct brick_tables *t, const struct brick_header *h);
/* Adds name 0 and path 0 to an empty segment. */
BRICK_HIDDEN void brick_tables_begin(struct brick_tables *t, struct brick_segment *s);
/* Copies the entries that `to` lacks, with the same ids. Returns 0 if out of memory. */
BRICK_HIDDEN int brick_tables_copy(struct brick_tables *t, struct brick_segment *to, const struct brick_segment *from);
/* In a forked child: frees the entries that other threads of the parent had claimed and not published. */
BRICK_HIDDEN void brick_tables_forked(struct brick_tables *t);
/* Returns the id of the name, and interns the name if an id below `room` is free. Otherwise returns BRICK_OTHER, and
 * counts a refused name if `room` is the limit of all names. */
BRICK_HIDDEN uint32_t brick_name_intern(struct brick_tables *t, struct brick_segment *s, const char *text, size_t length,
                                        uint64_t room);
/* Like brick_name, for marks, which may use half of the names. */
BRICK_HIDDEN uint32_t brick_name_for_mark(const char *text, size_t length, const char *category);
/* Returns whether marks may take one more name. */
BRICK_HIDDEN int brick_room_for_marks(void);
/* Returns whether the id belongs to a name other than "other". A host may pass any number as an id. */
BRICK_HIDDEN int brick_name_is_given(const struct brick_segment *s, uint32_t number);
BRICK_HIDDEN uint64_t brick_path_intern(struct brick_tables *t, struct brick_segment *s, uint64_t key);
/* Returns the value of the site's entry; 0 if the kernel has no name or there is no room. */
BRICK_HIDDEN uint64_t brick_site_intern(struct brick_tables *t, struct brick_segment *s, uint64_t entry);
/* Like brick_site_intern, but a new site gets this unit (brick_shm.h: units of a site) unless it is off. */
BRICK_HIDDEN uint64_t brick_site_intern_as(struct brick_tables *t, struct brick_segment *s, uint64_t entry, uint32_t unit);

#endif
