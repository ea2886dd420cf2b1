/* What differs between the arms of an experiment, and its identity. Pure.
 *
 * A variable is a setting that can change what a request gets: the model, engine or URL of a target, each option of an engine,
 * the number of targets, their weights and limits, max_tokens, batch, fallback, or a route. Prices, names and tokenizers are
 * not: they follow from the model.
 */
#ifndef QUIRE_GATEWAY_VARIABLES_H
#define QUIRE_GATEWAY_VARIABLES_H

#include "base/buffer.h"
#include "server/gateway/file/models_file.h"

/* Returns the number of variables in which an arm of the experiment `model` differs from its first arm. Appends their names:
 * "model, options.max-model-len"; at most 8, then "and 3 more". names may be NULL. */
uint32_t variables_differ(const struct gateway_config *config, uint32_t model, uint32_t arm, struct buffer *names);

#define VARIABLES_WARNING_BYTES 800
/* Writes a warning if an arm differs in more than one variable: "model chat: arm new: 2 variables differ from arm control ...".
 * Returns false if there is nothing to warn of. */
bool variables_warn(const struct gateway_config *config, uint32_t model, uint32_t arm,
                    char out[VARIABLES_WARNING_BYTES]);

#define VARIABLES_RUN_BYTES 17
/* The run of an experiment: 16 hexadecimal digits that change with its arms, their weights, `by`, and the variables of
 * all models that an arm can lead to. Statistics of different runs must not be added. */
void variables_run(const struct gateway_config *config, uint32_t model, char out[VARIABLES_RUN_BYTES]);

#endif
