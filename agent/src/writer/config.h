/* config.h - the settings of a segment, decided before it is opened. */
#ifndef BRICK_CONFIG_H
#define BRICK_CONFIG_H

#include "segment_file.h"

/* BRICKD=0: do not record this process. */
BRICK_HIDDEN int brick_config_is_off(void);
/* Gives the worker of the configuration, if there is one, to a forked child that had its parent's plan. */
BRICK_HIDDEN void brick_plan_name_child(struct brick_plan *plan, const struct brick_config *config);
/* Whether a segment of this plan has this service and this worker. NULL or empty: not given. */
BRICK_HIDDEN int brick_plan_is_of(const struct brick_plan *plan, const char *service, const char *worker);
/* Rounds the given sizes of tables as brick_plan_make does. */
BRICK_HIDDEN void brick_config_round(struct brick_config *config);
/* Returns NULL, or a constant text that says what is wrong with the configuration. */
BRICK_HIDDEN const char *brick_plan_make(struct brick_plan *plan, const struct brick_config *config);

#endif
