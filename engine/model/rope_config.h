/* The rotary part of config.json, for engine/model/describe.c only: rope_theta, and rope_scaling (today's
 * hub) or rope_parameters (transformers 5). */
#ifndef QUIRE_ENGINE_MODEL_ROPE_CONFIG_H
#define QUIRE_ENGINE_MODEL_ROPE_CONFIG_H

#include "base/status.h"
#include "engine/model/rope.h"

#include <jansson.h>

/* The largest angle that sincos is defined for (numerics.md §3): frequencies are at most 1. */
#define MODEL_MAX_POSITIONS (1u << 26)

/* `config` is an object; *max_position holds max_position_embeddings and becomes what the
 * scaling makes of it. rope->dim is set; the rest of *rope is written. */
int model_rope_config(const json_t *config, uint32_t *max_position, struct model_rope *rope, struct quire_error *err);

/* Copies text with every character outside printable ASCII replaced by '?', cut at n - 1 bytes, so that text from a
 * file can appear in an error line. Returns buffer. */
const char *model_shown(const char *text, char *buffer, size_t n);

#endif
