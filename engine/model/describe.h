/* Makes a model's description from the files of its directory. Pure, except that files are read; any thread. The caller
 * owns the description. Errors name the file and the field. */
#ifndef QUIRE_ENGINE_MODEL_DESCRIBE_H
#define QUIRE_ENGINE_MODEL_DESCRIBE_H

#include "base/status.h"
#include "engine/model/model.h"
#include "request/spec.h"

#include <stddef.h>
#include <stdint.h>

/* Reads config.json and, where present, generation_config.json of a directory. Both config layouts
 * (torch_dtype and rope_scaling; dtype and rope_parameters) are understood. QUIRE_INVALID or
 * QUIRE_UNSUPPORTED with "config.json: field: why". */
int model_describe(const char *model_dir, struct model_desc *out, struct sampling_defaults *sampling,
                   struct quire_error *err);

/* Turns a description that generates into one that returns vectors, according to modules.json and the files that it
 * names. Without modules.json the last token's vector is used. For an encoder model_describe() has already done
 * this. */
int model_describe_vector(const char *model_dir, struct model_desc *desc, struct quire_error *err);

/* The same from texts in memory, those that are not there being NULL: what the fuzzer calls. */
int model_describe_vector_json(const char *modules, const char *pooling, const char *dense, const char *limits,
                               struct model_desc *desc, struct quire_error *err);

/* The same from texts in memory (generation may be NULL): what the fuzzer calls. */
int model_describe_json(const char *config, size_t n_config, const char *generation, size_t n_generation,
                        struct model_desc *out, struct sampling_defaults *sampling, struct quire_error *err);

/* Gives each of n_layers attention over all positions, then an MLP: what the architectures here have in common. */
void model_make_layers(struct model_desc *desc, enum model_norm_position place, enum model_head_norm head_norm);

/* Likewise an encoder's: LayerNorm of what a block adds to its input, attention over the whole text, GELU. */
void model_make_encoder_layers(struct model_desc *desc);

#endif
