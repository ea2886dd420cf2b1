/* Makes the small files of a checkpoint from a GGUF file's metadata, as they were before the conversion, so that
 * their readers need not know GGUF. Each function appends a text to *out. Errors name the file and the key. Pure;
 * any thread.
 */
#ifndef QUIRE_FILES_GGUF_MADE_H
#define QUIRE_FILES_GGUF_MADE_H

#include "base/buffer.h"
#include "files/gguf.h"

#include <jansson.h>
#include <stdbool.h>

int gguf_make_config(const struct gguf *g, struct buffer *out, struct quire_error *err);
int gguf_make_generation(const struct gguf *g, struct buffer *out, struct quire_error *err);
int gguf_make_tokenizer(const struct gguf *g, struct buffer *out, struct quire_error *err);
int gguf_make_tokenizer_config(const struct gguf *g, struct buffer *out, struct quire_error *err);

/* Reads a token of tokenizer.ggml.tokens. Returns QUIRE_INVALID if the id does not exist or the token is not UTF-8. */
int gguf_token(const struct gguf *g, uint64_t id, struct gguf_text *out, struct quire_error *err);

/* The reverse: the tokenizer.ggml.pre of a tokenizer.json with this pre_tokenizer, with or without NFC as its normalizer, and
 * with this ignore_merges. NULL: no supported one cuts text like this. Static. */
const char *gguf_pre_name(const json_t *pre_tokenizer, bool nfc, bool ignore_merges);

#endif
