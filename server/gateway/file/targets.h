/* The targets of a model in a models file. Any thread on its own values. */
#ifndef QUIRE_GATEWAY_TARGETS_H
#define QUIRE_GATEWAY_TARGETS_H

#include "server/gateway/file/fields.h"
#include "server/gateway/file/models_file.h"

/* Reads the `targets` of a model's mapping, if it has some, into *model. f->where is the model's. */
int targets_read(const struct fields *f, const struct yaml_node *map, struct gateway_model *model);

#endif
