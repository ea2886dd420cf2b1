/* Prompt lookup: the last tokens of a sequence are looked for in its own text, prompt and answer, and what followed them
 * there is proposed. vLLM's `ngram`. The longest run that was seen before counts, of prompt_lookup_max tokens down to
 * prompt_lookup_min, and of its places the latest. What follows may reach into the drafts themselves: text of period 3 is
 * continued for as long as is asked.
 *
 * Text that is being copied is held on to: the place that was proposed from last is taken again, wherever else the last
 * tokens stand, as long as prompt_lookup_min of them agree there, or two places before or after. Of pages copied with an
 * edit at 7 % of their tokens that makes 3.87 tokens a step of 8 drafts from 3.45; the earliest place instead of the
 * latest would make 3.94, but 1.234 from 1.247 of pages that are not copied.
 *
 * Each length has its latest place in one table that all slots share, so a row costs a look-up for each length and a put
 * for each length and new token, whatever the text is: nothing is walked.
 */
#ifndef QUIRE_SPECULATION_NGRAM_H
#define QUIRE_SPECULATION_NGRAM_H

#include "speculation/drafter.h"

#define NGRAM_MAX_LOOKUP 16u /* most of lookup_max */

struct ngram_config {
    uint32_t n_slots; /* at most 65,536 */
    uint32_t max_model_len;
    uint32_t lookup_min, lookup_max; /* 1 <= min <= max <= NGRAM_MAX_LOOKUP */
    uint64_t
        n_tokens; /* of all running sequences together that are remembered: what the KV cache holds, for example. Of
                          more, those that come last are not; more than n_slots x max_model_len is never needed */
};

/* 16 bytes for each token and length, and 20 for each slot. */
uint64_t ngram_bytes(const struct ngram_config *config);
int ngram_create(const struct ngram_config *config, struct drafter **out, struct quire_error *err);

#endif
