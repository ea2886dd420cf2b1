/* Ollama's bodies, translated to bodies of this server's own routes, which then check and read them.
 *
 * So every rule of /v1/chat/completions holds for /api/chat, too. An error names the field by its path in Ollama's
 * body. All functions append JSON text to buffers that the caller frees, and return false with an error in e. Any
 * thread on its own body. Private to this folder.
 */
#ifndef QUIRE_FRONT_OLLAMA_READ_H
#define QUIRE_FRONT_OLLAMA_READ_H

#include "base/buffer.h"
#include "server/front/body/json_field.h"

#include <stdbool.h>

/* ---- ollama_options.c ---- */

/* Appends ,"NAME": and the value as written, unless it is absent or null. */
void ollama_put_field(struct buffer *o, const char *name, struct quire_value value);
/* Appends the fields that follow from "options": each begins with a comma. */
bool ollama_put_options(struct buffer *o, struct quire_value options, struct api_error *e);
/* The same for "format" and for "think". */
bool ollama_put_format(struct buffer *o, struct quire_value format, struct api_error *e);
bool ollama_put_think(struct buffer *o, struct quire_value think, struct api_error *e);

/* Names the field of Ollama's body in an error about the translated one. */
void ollama_name_error(struct api_error *e);

/* ---- ollama_turns.c ---- */

/* Rejects images that are not an empty list: path is their owner's, "" or "messages[2]". */
bool ollama_no_images(struct quire_value images, const char *path, struct api_error *e);
/* Appends the messages as an array of a chat. Ollama's calls have no ids: they get some here, and a result belongs to
 * the first call without one that has its tool's name. */
bool ollama_put_messages(struct buffer *o, struct quire_value messages, struct api_error *e);

#endif
