/* Tokens and their logprobs as OpenAI's JSON, in its two forms, and vLLM's prompt_logprobs.
 *
 * A token's string may contain U+FFFD if the token is part of a character; "bytes" has the bytes. as_ids: strings and
 * keys are "token_id:N" instead. Loop's thread.
 */
#ifndef QUIRE_FRONT_LOGPROBS_H
#define QUIRE_FRONT_LOGPROBS_H

#include "server/front/output/json_out.h"
#include "server/wire/records.h"
#include "text/quire_text.h"

#include <stdbool.h>
#include <stdint.h>

struct logprobs_style {
    const struct quire_text *text;
    bool as_ids;
    uint32_t n_top; /* requested alternatives */
};

/* Chat: {"token","logprob","bytes","top_logprobs":[...]} of one token. */
void logprobs_chat_entry(struct buffer *o, const struct logprobs_style *style, const struct wire_token *token);

/* Completions: four arrays that grow together. All zero at first. */
struct logprobs_arrays {
    struct buffer tokens, token_logprobs, top_logprobs, text_offset; /* items, without brackets */
    size_t n;
};
void logprobs_arrays_free(struct logprobs_arrays *a);
void logprobs_arrays_clear(struct logprobs_arrays *a);
uint64_t logprobs_arrays_bytes(const struct logprobs_arrays *a);
/* offset: characters before the token. A token without logprob (the prompt's first) gives null. */
void logprobs_arrays_add(struct logprobs_arrays *a, const struct logprobs_style *style, const struct wire_token *token,
                         uint64_t offset);
/* {"tokens":[..],...} of first (may be NULL) and then second. */
void logprobs_arrays_json(struct buffer *o, const struct logprobs_arrays *first, const struct logprobs_arrays *second);

/* prompt_logprobs: {"42":{"logprob","rank","decoded_token"},...} of one prompt token. */
void logprobs_prompt_entry(struct buffer *o, const struct logprobs_style *style, const struct wire_token *token);

#endif
