/* Checkpoints with a text model and parts for images or audio: the config.json of the text part, for
 * engine/model/describe.c only. A new one is a row of multimodal.c's table. Constant data; any thread. */
#ifndef QUIRE_ENGINE_MODEL_MULTIMODAL_H
#define QUIRE_ENGINE_MODEL_MULTIMODAL_H

#include "base/status.h"

#include <jansson.h>

/* *text: what the text part's own config.json would say, a new reference; *name: the architecture of the whole, static.
 * Both are NULL where config.json has a text model alone. QUIRE_UNSUPPORTED, naming the field, if Quire has the
 * architecture without this text model. */
int multimodal_text(const json_t *config, json_t **text, const char **name, struct quire_error *err);

#endif
