/* The name of a model, where another part of a models file refers to it. Any thread on its own values. */
#ifndef QUIRE_GATEWAY_REFERENCE_H
#define QUIRE_GATEWAY_REFERENCE_H

#include "server/gateway/file/fields.h"
#include "server/gateway/file/models_file.h"

/* *out is the index of the model. */
int reference_read(const struct fields *f, const struct yaml_node *node, const char *field,
                   const struct gateway_config *config, uint32_t *out);

#endif
