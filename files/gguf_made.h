/* The small files of a checkpoint, made from a GGUF file's metadata as whoever converted the model had them: so that what reads
 * them need not know of GGUF. Each appends a text to *out; errors name the file and the key. Pure; any thread.
 */
#ifndef QUIRE_FILES_GGUF_MADE_H
#define QUIRE_FILES_GGUF_MADE_H

#include "base/buffer.h"
#include "files/gguf.h"

int gguf_make_config(const struct gguf *g, struct buffer *out, struct quire_error *err);
int gguf_make_generation(const struct gguf *g, struct buffer *out, struct quire_error *err);
int gguf_make_tokenizer(const struct gguf *g, struct buffer *out, struct quire_error *err);
int gguf_make_tokenizer_config(const struct gguf *g, struct buffer *out, struct quire_error *err);

/* The names of a token of tokenizer.ggml.tokens: QUIRE_INVALID when there is none of that id, or it is not UTF-8. */
int gguf_token(const struct gguf *g, uint64_t id, struct gguf_text *out, struct quire_error *err);

#endif
