/* The rotary part of config.json, for engine/model/describe.c only: rope_theta, and rope_scaling (today's
 * hub) or rope_parameters (transformers 5). */
#ifndef QUIRE_ENGINE_MODEL_ROPE_CONFIG_H
#define QUIRE_ENGINE_MODEL_ROPE_CONFIG_H

#include "base/status.h"
#include "engine/model/config.h"

#include <jansson.h>

/* The largest angle that sincos is defined for (numerics.md §3): frequencies are at most 1. */
#define MODEL_MAX_POSITIONS (1u << 26)

/* How an architecture's layers rotate. */
struct model_rope_rule {
    double theta; /* rope_theta's default; 0 = 10000 */
    bool by_window; /* layers with a window have a RoPE of their own, which is not scaled */
    double local_theta; /* by_window: rope_local_base_freq's default; 0 = theirs is rope_theta, too */
    bool partial; /* partial_rotary_factor, and longrope */
    double default_share; /* partial: the factor's default; 0 = 1 */
    bool is_scaled; /* rope_scaling or rope_parameters must be there, since without them transformers scales, too */
    uint32_t no_rope_interval; /* no_rope_layers, else each so-many-th layer has no RoPE; 0 = all layers have it */
};

/* `config` is an object. The layers have their windows, and model->ropes[0] its dim; writes the model's ropes and each
 * layer's. model->max_position holds max_position_embeddings and becomes what the scaling makes of it; of an
 * architecture by_window it stays. */
int model_ropes_config(const json_t *config, const struct model_rope_rule *rule, struct model_config *model,
                       struct quire_error *err);

/* Copies text with every character outside printable ASCII replaced by '?', cut at n - 1 bytes, so that text from a
 * file can appear in an error line. Returns buffer. */
const char *model_shown(const char *text, char *buffer, size_t n);

#endif
