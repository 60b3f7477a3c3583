/* config.h - the settings of a segment, decided before it is opened. */
#ifndef BRICK_CONFIG_H
#define BRICK_CONFIG_H

#include "segment_file.h"

/* Returns whether BRICKD=0 turns recording off for this process. */
BRICK_HIDDEN int brick_config_is_off(void);
/* In a forked child: if the configuration has a worker, replaces the worker in the plan that the parent made. */
BRICK_HIDDEN void brick_plan_name_child(struct brick_plan *plan, const struct brick_config *config);
/* Returns whether the plan has this service and this worker. NULL or an empty text matches any service or worker. */
BRICK_HIDDEN int brick_plan_is_of(const struct brick_plan *plan, const char *service, const char *worker);
/* Rounds the sizes of tables that a configuration gives, as brick_plan_make does. */
BRICK_HIDDEN void brick_config_round(struct brick_config *config);
/* Returns NULL, or an error text about the configuration, which the next call overwrites. */
BRICK_HIDDEN const char *brick_plan_make(struct brick_plan *plan, const struct brick_config *config);

#endif
