/* Sizes of a model with multi-head latent attention (DeepSeek's) by formula, from config.json: Quire does not serve it.
 * Main thread. */
#ifndef QUIRE_APP_PLAN_MLA_H
#define QUIRE_APP_PLAN_MLA_H

#include "app/plan/bare.h"

/* Returns false if config.json has no kv_lora_rank; nothing is printed then. Else prints the sizes, or an error, and sets
 * *code to the exit status. */
bool mla_command(const char *given, const char *config, size_t n_config, const char *weights,
                 const struct bare_flags *flags, bool json, int *code, struct quire_error *err);

#endif
