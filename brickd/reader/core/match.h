/* core/match.h - fingerprints of some workers compared. */
#ifndef BRICKD_MATCH_H
#define BRICKD_MATCH_H

#include "fingerprint_window.h"
#include "match_result.h"

/* 0: no memory. In any case brick_match_free must follow. */
int brick_match(const struct brick_fingerprints *p, struct brick_match *m);
void brick_match_free(struct brick_match *m);

#endif
