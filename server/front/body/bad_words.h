/* Words that must not be generated: turns strings into the token sequences that SUBMIT carries.
 *
 * A word is encoded as at the start of a text, and also as after a space if that gives other tokens. vLLM uses the
 * second form only if it has as many tokens, and so misses a word that is one token after a space and two without. A
 * text that spells the word in other tokens is not prevented. Any thread.
 */
#ifndef QUIRE_FRONT_BAD_WORDS_H
#define QUIRE_FRONT_BAD_WORDS_H

#include "server/front/api/api_error.h"
#include "text/quire_json.h"
#include "text/quire_text.h"

#include <stdbool.h>
#include <stdint.h>

/* Checks for an array of non-empty strings. params_read() calls it before a tokenizer is available. */
bool bad_words_check(struct quire_value words, struct api_error *e);

/* words: checked. *out is malloc'd. For each word it holds the number of ids, then the ids; *n numbers in all. */
bool bad_words_encode(struct quire_value words, const struct quire_text *text, uint32_t vocab_size, uint32_t **out,
                      uint32_t *n, struct api_error *e);

#endif
