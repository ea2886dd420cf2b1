/* The experiments of a models file. Any thread on its own values. */
#ifndef QUIRE_GATEWAY_ARMS_H
#define QUIRE_GATEWAY_ARMS_H

#include "server/gateway/file/fields.h"
#include "server/gateway/file/models_file.h"

/* Reads arms, by and metric of a model's mapping that has `route: experiment`. */
int arms_read(const struct fields *f, const struct yaml_node *map, const struct gateway_config *config,
              struct gateway_route *route);
/* Refuses an experiment whose arm leads to another experiment: a request has one arm. maps: of the models, in order. */
int arms_check(const struct fields *f, const struct yaml_node *maps, const struct gateway_config *config);

#endif
