/* Words that must not be generated: strings become the token sequences that SUBMIT carries.
 *
 * A word counts as it stands at the start of a text, and as it stands after a space where that makes other tokens.
 * vLLM takes the second only where it has as many tokens, and so lets a word through that is one token after a
 * space and two without. A text that spells the word in other tokens is not prevented. Any thread.
 */
#ifndef QUIRE_FRONT_BAD_WORDS_H
#define QUIRE_FRONT_BAD_WORDS_H

#include "server/front/api/api_error.h"
#include "text/quire_json.h"
#include "text/quire_text.h"

#include <stdbool.h>
#include <stdint.h>

/* An array of non-empty strings; what params_read() checks before there is a tokenizer. */
bool bad_words_check(struct quire_value words, struct api_error *e);

/* words: checked. *out is malloc'd: word after word, how many ids it has, then the ids; *n numbers in all. */
bool bad_words_encode(struct quire_value words, const struct quire_text *text, uint32_t vocab_size, uint32_t **out,
                      uint32_t *n, struct api_error *e);

#endif
