/* A request's sampling parameters, checked once and laid out for the sampler.
 *
 * What a step needs is prepared at submit: stop ids sorted, biases sorted, a second list of
 * biases with the stop ids forbidden for the first min_tokens tokens, and the allowed tokens as a
 * mask. Only bad words of several tokens are looked at in every step, and of those the ones that the
 * newest token may stand in. Pure; a struct belongs to one thread at a time.
 */
#ifndef QUIRE_ENGINE_SAMPLING_H
#define QUIRE_ENGINE_SAMPLING_H

#include "base/status.h"
#include "engine/engine.h"
#include "engine/model/model.h"
#include "kernels/kernels.h"

#include <stdbool.h>
#include <stdint.h>

struct bad_word {
    uint32_t before, last; /* its last id but one, its last */
    uint32_t at;           /* in bad_words */
};

struct sampling {
    float temperature, top_p, min_p;
    uint32_t top_k;
    float repetition_penalty, presence_penalty, frequency_penalty;
    uint64_t seed;
    int32_t n_logprobs, n_prompt_logprobs;
    uint32_t min_tokens;
    bool counts_output;  /* a penalty is on: generated tokens are counted */
    bool counts_prompt;  /* the repetition penalty is: the prompt's count too */
    uint32_t *stops;     /* eos ids unless ignored, and stop_token_ids; ascending, each once */
    uint32_t n_stops;
    struct k_logit_bias *biases; /* ascending; bad words of one token are at -inf */
    uint32_t n_biases;
    struct k_logit_bias *early;  /* while fewer than min_tokens are generated; NULL when that is 0 */
    uint32_t n_early;
    uint32_t *allowed;   /* ascending, each once; NULL: all tokens are */
    uint32_t n_allowed;
    uint32_t *mask;      /* the same as a bit a token */
    uint32_t *bad_words; /* of two tokens and more, as in struct engine_sampling */
    uint32_t n_bad_words;
    struct bad_word *words; /* each of them; ascending in `before`, then in `last` */
    uint32_t n_words;
};

/* QUIRE_INVALID names the parameter. */
int sampling_check(const struct engine_sampling *s, uint32_t max_tokens, uint32_t n_vocab, struct quire_error *err);
/* Copies a checked set. QUIRE_NO_MEMORY leaves nothing to free; QUIRE_INVALID for an id biased
 * twice, and when no token could ever be drawn first, or after min_tokens. */
int sampling_init(struct sampling *out, const struct engine_sampling *s, const struct model_desc *desc, uint64_t seed,
                  struct quire_error *err);
void sampling_free(struct sampling *s);

/* What sampling_init() would make the same of, eos ids among the stops. Borrows from s. */
struct engine_sampling sampling_resolved(const struct sampling *s);

bool sampling_stops(const struct sampling *s, uint32_t token);

/* Whether a row depends on the tokens generated so far. */
bool sampling_needs_tokens(const struct sampling *s);
/* Biases that one row may need room for; 0: none. */
size_t sampling_row_room(const struct sampling *s);

/* How often tokens stand in one sequence; ascending ids, kept so from token to token. */
struct token_counts {
    struct k_token_count *items;
    uint32_t n, capacity;
};
/* Distinct tokens of a prompt, with n_output = 0. items has room for n_prompt. Returns how many. */
uint32_t token_counts_of_prompt(const uint32_t *prompt, uint32_t n_prompt, struct k_token_count *items);
/* One more generated token; there must be room where it is new. */
void token_counts_add(struct token_counts *counts, uint32_t token);

/* Where a choice stands: what a row is made of besides the parameters. */
struct sampling_state {
    const struct token_counts *counts;
    const uint32_t *generated;   /* [n_generated]; read only where sampling_needs_tokens() */
    uint32_t n_generated;
    uint32_t position, choice;   /* of the token to be drawn */
    struct k_logit_bias *room;   /* of sampling_row_room(); the row may point to it */
};
/* The row that draws the next token. */
void sampling_row(const struct sampling *s, const struct sampling_state *state, struct k_sample_row *out);
/* Whether mask and biases of a row leave no token that may be drawn. */
bool sampling_row_forbids_all(const struct k_sample_row *row, uint32_t n_vocab);
/* The row that reports a prompt token. */
void sampling_prompt_row(const struct sampling *s, uint32_t token, uint32_t position, struct k_sample_row *out);

#endif
