/* Models on the hub, for commands that need a part of one. tools/hub/ defines these functions: it has the network.
 * Main thread. */
#ifndef QUIRE_APP_MODELS_FETCH_H
#define QUIRE_APP_MODELS_FETCH_H

#include "app/models/cache.h"

/* Downloads config.json of ORG/NAME[@REVISION] into the Hugging Face cache and writes the snapshot's directory. Errors as
 * `quire pull` reports them. */
int hub_fetch_config(const char *given, char dir[HUB_PATH_BYTES], struct quire_error *err);

/* As hub_model_find(). If the model is not in the cache or incomplete, downloads it first. asks: asks on a terminal,
 * with the size, before it downloads. QUIRE_INVALID: the answer was no. */
int hub_model_fetch(const char *given, bool asks, bool without_weights, struct hub_model *out, struct quire_error *err);

#endif
