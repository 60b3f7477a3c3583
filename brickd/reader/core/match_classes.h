/* core/match_classes.h - two fingerprints by input: what may explain their difference. */
#ifndef BRICKD_MATCH_CLASSES_H
#define BRICKD_MATCH_CLASSES_H

#include "fingerprint_window.h"
#include "tolerance.h"

#define BRICK_CONTENTS_MIN 3u /* that it takes to know that two workers are of two numeric classes */

/* Whether rounding may explain the difference of two fingerprints that p holds. */
enum brick_rounded brick_fingerprints_rounded(const struct brick_fingerprints *p, uint64_t one, uint64_t other);

/* By input: at how many contents of that site and context the workers of the two differ as two classes do; below
 * BRICK_CONTENTS_MIN it is undecided, 0: they do not. Below 0: no memory. */
int64_t brick_match_contents(const struct brick_fingerprints *p, uint64_t one, uint64_t other);

#endif
