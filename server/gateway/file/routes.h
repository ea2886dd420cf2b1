/* References of a model of a models file: routes, fallbacks, overrides. Names are those of config->models, which are
 * known before. Any thread on its own values.
 */
#ifndef QUIRE_GATEWAY_ROUTES_H
#define QUIRE_GATEWAY_ROUTES_H

#include "server/gateway/file/fields.h"
#include "server/gateway/file/models_file.h"

/* Reads route, simple, moderate, complex, among, arms, by, metric and fallback of a model's mapping into *model. */
int routes_read(const struct fields *f, const struct yaml_node *map, const struct gateway_config *config,
                struct gateway_model *model);
/* Refuses a model that stands for itself, by routes and fallbacks. maps: of the models, in order. */
int routes_check_circles(const struct fields *f, const struct yaml_node *maps, const struct gateway_config *config);
/* Reads the file's `overrides`. */
int routes_read_overrides(const struct fields *f, const struct yaml_node *root, struct gateway_config *config);

#endif
