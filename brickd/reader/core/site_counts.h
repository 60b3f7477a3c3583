/* core/site_counts.h - counts fingerprints per site, and notes unlike fingerprints until the daemon asks for them.
 *
 * An unlike fingerprint has an output that differs from another output in its group. core/fingerprint_window.c keeps
 * the fingerprints and their groups, and calls these functions.
 */
#ifndef BRICKD_SITE_COUNTS_H
#define BRICKD_SITE_COUNTS_H

#include "brick_hash.h"
#include "fingerprint_window.h"
#include "tolerance.h"

#define BRICK_ODD UINT64_C(0x9E3779B97F4A7C15)

static inline uint64_t brick_digest(uint64_t of, uint64_t and) { return brick_mixed(of ^ brick_mixed(and + BRICK_ODD)); }

/* Returns the counts of a site. If there is no room for another site, returns the counts of site 0. Returns NULL if out
 * of memory. */
struct brick_site_count *brick_count_of(struct brick_fingerprints *p, uint32_t service, uint64_t site);
/* Returns the counts of a site; NULL if the site has none. */
struct brick_site_count *brick_count_known(const struct brick_fingerprints *p, uint32_t service, uint64_t site);
void brick_count_changes(struct brick_fingerprints *p, struct brick_site_count *c);

/* Counts an unlike fingerprint, and may note it as waiting. Only a few wait per site; each fingerprint has the same
 * chance to be among them, so a worker that is first or frequent does not hide other workers. */
void brick_count_unlike(struct brick_fingerprints *p, uint64_t number, struct brick_site_count *count, enum brick_rounded how);

#endif
