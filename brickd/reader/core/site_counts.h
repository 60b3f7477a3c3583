/* core/site_counts.h - what core/fingerprint_window.c and core/site_counts.c share.
 *
 * core/fingerprint_window.c holds fingerprints, and tells who said the same of the same; core/site_counts.c
 * counts them site by site, and has some of those wait that are unlike.
 */
#ifndef BRICKD_SITE_COUNTS_H
#define BRICKD_SITE_COUNTS_H

#include "brick_hash.h"
#include "fingerprint_window.h"
#include "tolerance.h"

#define BRICK_ODD UINT64_C(0x9E3779B97F4A7C15)

static inline uint64_t brick_fingerprints_digest(uint64_t of, uint64_t and) { return brick_mixed(of ^ brick_mixed(and + BRICK_ODD)); }

/* The counts of a site; where there is no room for it by itself those of site 0. NULL: there is no memory. */
struct brick_site_count *brick_count_of(struct brick_fingerprints *p, uint32_t service, uint64_t site);
/* NULL: nothing was counted of it. */
struct brick_site_count *brick_count_known(const struct brick_fingerprints *p, uint32_t service, uint64_t site);
/* It is to be told that it changed. */
void brick_count_changes(struct brick_fingerprints *p, struct brick_site_count *c);

/* A fingerprint is unlike others. Of all that were since these were told each is as likely to wait as the others: who speaks
 * first, or most, keeps nobody else from being looked at. */
void brick_count_unlike(struct brick_fingerprints *p, uint64_t number, struct brick_site_count *count, enum brick_rounded how);

#endif
