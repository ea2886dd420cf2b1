/* Prints a models file as a table or as JSON. Main thread. */
#ifndef QUIRE_APP_GATEWAY_MODELS_SUMMARY_H
#define QUIRE_APP_GATEWAY_MODELS_SUMMARY_H

#include "server/gateway/file/models_file.h"

#include <jansson.h>

void models_summary_print(const struct gateway_config *config);
/* NULL: no memory. */
json_t *models_summary_json(const struct gateway_config *config);

#endif
