/* Addresses of models as people paste them: "https://huggingface.co/ORG/NAME", "hf.co/ORG/NAME:Q4_K_M",
 * ".../ORG/NAME/tree/REVISION", ".../ORG/NAME/blob/main/FILE-Q4_K_M.gguf". Reads HF_ENDPOINT; any thread while no thread
 * calls setenv(). */
#ifndef QUIRE_APP_MODELS_HUB_URL_H
#define QUIRE_APP_MODELS_HUB_URL_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* Returns whether the text is an address: it has a scheme, or begins with the name of the hub's host. */
bool hub_url_is(const char *given);

/* Writes ORG/NAME[:QUANT][@REVISION] to out[n]. The parts are unchecked. QUIRE_INVALID: another host, or the hub's page
 * of something that is not a model. */
int hub_url_read(const char *given, char *out, size_t n, struct quire_error *err);

#endif
