/* Cost models that the program has by name, for `quire sim --cost-model NAME`: measured by `quire bench steps` on a
 * machine that is named, or predicted from a machine's limits.
 *
 * No global state; any thread.
 */
#ifndef QUIRE_APP_FLAGS_COST_MODELS_H
#define QUIRE_APP_FLAGS_COST_MODELS_H

#include "app/flags/cost_file.h"

struct cost_model {
    const char *name;
    bool is_measured; /* false: predicted */
    const char *text; /* as cost_file.h describes it; `about` names the model, the machine and the date */
};

/* All of them; the first one is the default of simulations. */
const struct cost_model *cost_models(size_t *n);

/* Reads a model by its name, otherwise a file. *named: the model, NULL for a file. Errors as of cost_file_read(); a file
 * that does not exist is QUIRE_INVALID, with the names. */
int cost_model_read(const char *name_or_path, struct sched_cost *out, struct cost_shape *shape,
                    const struct cost_model **named, struct quire_error *err);

#endif
