/* text/: tokenizer and incremental detokenizer of one model directory; quire_chat.h has its chat templates.
 *
 * Rust inside (crates `tokenizers`, `minijinja`), C outside. A struct quire_text is immutable once
 * opened: any number of threads may call it at once. A struct quire_detok or quire_encoder belongs to one
 * thread at a time. No call prints, aborts or lets a panic out.
 *
 * Strings are UTF-8 with a length; strings that come out are also NUL-terminated (the NUL is not counted). The
 * caller owns every result of a `**out` parameter; it is malloc'd, and free() releases it.
 */
#ifndef QUIRE_TEXT_H
#define QUIRE_TEXT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct quire_text;  /* tokenizer + templates */
struct quire_detok; /* the state of one detokenized stream */
struct quire_encoder; /* a text on its way to ids */

/* Reads tokenizer.json or, without it, tokenizer.model (SentencePiece) and added_tokens.json. Where present, also
 * tokenizer_config.json, chat_template.jinja, additional_chat_templates/NAME.jinja and special_tokens_map.json of
 * model_dir. Slow for a large vocabulary (a quarter of a second for 150,000 tokens): any thread may do it beside other
 * work. QUIRE_NOT_FOUND without either, QUIRE_INVALID with the file and the field named, QUIRE_IO. A chat template
 * that does not compile is no failure here but in quire_text_chat(). `truncation`, `padding` and `dropout` of
 * tokenizer.json are not obeyed: they are for training. */
int quire_text_open(const char *model_dir, struct quire_text **out, struct quire_error *err);
void quire_text_close(struct quire_text *text);

/* One more than the largest token id, added tokens included. */
uint32_t quire_text_n_ids(const struct quire_text *text);

/* The id of a token by its exact content ("<|im_end|>"), or -1. */
int64_t quire_text_token_id(const struct quire_text *text, const char *content);

/* text → ids. Special tokens written in the text are recognised. add_special: also what the
 * tokenizer's post-processor adds (BOS). "" gives 0 ids when add_special is false.
 * QUIRE_INVALID when the text is not UTF-8, or has a piece of more than 256 KiB that cannot be cut (see below). */
int quire_text_encode(const struct quire_text *text, const char *utf8, size_t n_bytes, bool add_special, uint32_t **ids,
                      size_t *n_ids, struct quire_error *err);

/* The special tokens that the tokenizer puts around and between the two texts of a pair, one after the other: what it
 * makes of two texts without tokens. second_type: the second text's tokens have another type than the first's. */
int quire_text_pair_specials(const struct quire_text *text, uint32_t **ids, size_t *n_ids, bool *second_type,
                             struct quire_error *err);

/* Computes a text's ids one piece at a time, so that a long text does not delay other requests. Pieces have about 16
 * KiB: 5 to 10 ms of work, 4 MB of memory. The text is cut only where the tokenizer provably has a boundary
 * (text/src/cut.rs), so all pieces together are the ids of the whole. If 256 KiB contain no boundary (one "word" of
 * that length; any text of that length with a tokenizer that is not fully understood), the next piece returns
 * QUIRE_INVALID. The text is borrowed until quire_encoder_close(). next: *ids is NULL after the last piece, else
 * valid until the next call; a piece may have 0 ids. */
int quire_encoder_open(const struct quire_text *text, const char *utf8, size_t n_bytes, bool add_special,
                       struct quire_encoder **out, struct quire_error *err);
/* Before the first next: the text is a chat's, with this mark in it (quire_text_chat()). */
void quire_encoder_mark(struct quire_encoder *encoder, uint32_t mark);
/* Before the first next: the places of ids are wanted, too. That costs about half as much again. */
void quire_encoder_place(struct quire_encoder *encoder);
/* After a call of next: the number of characters of the text before each of its ids. NULL if unknown (a text with a
 * mark). An id that the post-processor adds has the position of the following id. Valid as long as the ids. */
const uint32_t *quire_encoder_places(const struct quire_encoder *encoder);
int quire_encoder_next(struct quire_encoder *encoder, const uint32_t **ids, size_t *n_ids, struct quire_error *err);
void quire_encoder_close(struct quire_encoder *encoder);

/* A lower bound of the number of tokens of these bytes, from their length and the vocabulary's longest token
 * (text/src/fit.rs). Returns 0 if the tokenizer may drop text or make one token of any length of it. */
size_t quire_text_least_tokens(const struct quire_text *text, const char *utf8, size_t n_bytes);

/* ids → text, whole. Ids past the tokenizer, and those in a hole of it, give "". Bytes that are
 * not UTF-8 come as U+FFFD, as many as the tokenizer's own decoder gives: byte-level one for each
 * sequence that cannot become a character, byte fallback one for each byte of a run of byte tokens
 * of which any part is not UTF-8. */
int quire_text_decode(const struct quire_text *text, const uint32_t *ids, size_t n_ids, bool skip_special, char **out,
                      size_t *n_bytes, struct quire_error *err);

/* The raw bytes one token stands for (may be part of a UTF-8 character; byte-level tokens are
 * undone): what `logprobs[].bytes` shows. Special tokens give their content. */
int quire_text_token_bytes(const struct quire_text *text, uint32_t id, uint8_t **out, size_t *n_bytes,
                           struct quire_error *err);

/* Incremental: the concatenation of all pushes and the finish equals quire_text_decode() of the
 * same ids, and no piece ends inside a UTF-8 character. A token costs the same wherever it stands.
 * A piece is given out as soon as no later id can change it; that holds back the bytes of an
 * unfinished character, and with byte fallback a run of byte tokens to its end.
 *
 * prompt ids (may be NULL, 0) are context only, and are not kept: the pieces are what decoding
 * prompt and ids together gives after the text of the prompt alone, where that text is its start
 * (Llama 2's decoder strips a leading space at the start of a text, so without the prompt the
 * first word of the answer would lose its own). Where the prompt ends inside a character, its
 * own text ends in U+FFFD instead: then the pieces have the character whole if the ids finish it,
 * and do not have the U+FFFD again if they do not.
 *
 * A stream may be closed after its text. After the finish a push is QUIRE_INVALID.
 * The strings stay valid until the next call on the same detok. */
int quire_detok_open(const struct quire_text *text, const uint32_t *prompt, size_t n_prompt, bool skip_special,
                     struct quire_detok **out, struct quire_error *err);
int quire_detok_push(struct quire_detok *detok, uint32_t id, const char **piece, size_t *n_bytes,
                     struct quire_error *err);
int quire_detok_finish(struct quire_detok *detok, const char **piece, size_t *n_bytes, struct quire_error *err);
/* The number of characters that no push has returned yet and that come before the text of the id that is pushed
 * next. next −1: before the end of the text. Bytes that may still form one character with that id's bytes do not
 * count. */
size_t quire_detok_held(const struct quire_detok *detok, int64_t next);
void quire_detok_close(struct quire_detok *detok);

/* A digest of the files as they were read at opening. A cache whose key is a text, not its tokens, must include this
 * digest. */
void quire_text_digest(const struct quire_text *text, uint8_t sha256[32]);

/* SHA-256 over the files that decide what quire_text_open(model_dir) gives, in the order tokenizer.json (without it
 * tokenizer.model, added_tokens.json), tokenizer_config.json, chat_template.jinja, special_tokens_map.json, then the
 * name and the text of each additional chat template, sorted by name. The function skips absent files, and hashes the
 * length of each present one, as 8 little-endian bytes, before its content. A front end and an engine compare the
 * digest in HELLO. The function parses nothing, so that an engine without text work need not open the tokenizer.
 * Errors as quire_text_open()'s of reading. */
int quire_text_identity(const char *model_dir, uint8_t sha256[32], struct quire_error *err);

#endif
