/* What sentence-transformers' files say of a model's vectors, for engine/model/describe.c only: modules.json (which
 * modules follow each other), its pooling module's config.json, and sentence_bert_config.json (how much of a text is
 * read). Pure; any thread. */
#ifndef QUIRE_ENGINE_MODEL_POOLING_H
#define QUIRE_ENGINE_MODEL_POOLING_H

#include "engine/model/model.h"

#include <jansson.h>

/* modules may be NULL: a mean for an encoder, the last token for a decoder. *path: the pooling module's folder, modules'
 * own and unchecked, or NULL. A module that Quire does not compute is QUIRE_UNSUPPORTED, by its name. */
int pooling_modules(const json_t *modules, struct model_desc *desc, const char **path, struct quire_error *err);

/* pooling, of the file so called in errors, and limits may be NULL. */
int pooling_config(const json_t *pooling, const char *file, const json_t *limits, struct model_desc *desc,
                   struct quire_error *err);

#endif
