/* Reads the sentence-transformers files about a model's vectors, for engine/model/describe.c only: modules.json (the
 * sequence of modules), config.json of its pooling module and of its Dense module, and sentence_bert_config.json
 * (the longest text that is read). Pure except for reading files; any thread. */
#ifndef QUIRE_ENGINE_MODEL_POOLING_H
#define QUIRE_ENGINE_MODEL_POOLING_H

#include "engine/model/config.h"

#include <jansson.h>

/* The folders of modules that have files, unchecked strings of modules.json, or NULL. */
struct pooling_folders {
    const char *pooling, *dense;
};

/* modules may be NULL: a mean for an encoder, the last token for a decoder. A module that Quire does not compute is
 * QUIRE_UNSUPPORTED, by its name. */
int pooling_modules(const json_t *modules, struct model_config *model, struct pooling_folders *folders,
                    struct quire_error *err);

/* pooling, of the file so called in errors, and limits may be NULL. */
int pooling_config(const json_t *pooling, const char *file, const json_t *limits, struct model_config *model,
                   struct quire_error *err);

/* The Dense module's config.json, once the pooling is known: vectors have its outputs. dense may be NULL. */
int pooling_dense(const json_t *dense, const char *file, struct model_config *model, struct quire_error *err);

#endif
