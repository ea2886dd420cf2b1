/* Makes a model's description from the files of its directory. Pure, except that files are read; any thread. The caller
 * owns the description. Errors name the file and the field. */
#ifndef QUIRE_ENGINE_MODEL_DESCRIBE_H
#define QUIRE_ENGINE_MODEL_DESCRIBE_H

#include "base/status.h"
#include "engine/model/config.h"
#include "request/spec.h"

#include <stddef.h>
#include <stdint.h>

/* Reads config.json and, where present, generation_config.json of a directory. Both config layouts
 * (torch_dtype and rope_scaling; dtype and rope_parameters) are understood. QUIRE_INVALID or
 * QUIRE_UNSUPPORTED with "config.json: field: why". The caller frees *out (model_config_free); NULL on failure. */
int model_describe(const char *model_dir, struct model_config **out, struct sampling_defaults *sampling,
                   struct quire_error *err);

/* Turns a description that generates into one that returns vectors, according to modules.json and the files that it
 * names. Without modules.json the last token's vector is used. For an encoder model_describe() has already done
 * this. */
int model_describe_vector(const char *model_dir, struct model_config *model, struct quire_error *err);

/* The same from texts in memory, those that are not there being NULL: what the fuzzer calls. */
int model_describe_vector_json(const char *modules, const char *pooling, const char *dense, const char *limits,
                               struct model_config *model, struct quire_error *err);

/* The same from texts in memory (generation may be NULL): what the fuzzer calls. */
int model_describe_json(const char *config, size_t n_config, const char *generation, size_t n_generation,
                        struct model_config **out, struct sampling_defaults *sampling, struct quire_error *err);

#endif
