/* config.h - the settings of a segment, decided before it is opened. */
#ifndef BRICK_CONFIG_H
#define BRICK_CONFIG_H

#include "segment_file.h"

/* Returns whether BRICKD=0 turns recording off for this process. */
BRICK_HIDDEN int brick_config_is_off(void);
/* Sets the configuration's worker name, if there is one, in the plan that a forked child got from its parent. */
BRICK_HIDDEN void brick_plan_name_child(struct brick_plan *plan, const struct brick_config *config);
/* Returns whether a segment of this plan has this service and this worker. NULL or an empty text matches any service or
 * worker. */
BRICK_HIDDEN int brick_plan_is_of(const struct brick_plan *plan, const char *service, const char *worker);
/* Rounds the given sizes of tables as brick_plan_make does. */
BRICK_HIDDEN void brick_config_round(struct brick_config *config);
/* Returns NULL, or a constant error text about the configuration. */
BRICK_HIDDEN const char *brick_plan_make(struct brick_plan *plan, const struct brick_config *config);

#endif
