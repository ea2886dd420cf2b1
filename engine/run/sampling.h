/* A request's sampling parameters, checked once and laid out for the sampler.
 *
 * Submission prepares the data of a step: stop ids sorted, biases sorted, a second list of biases with the stop ids
 * forbidden for the first min_tokens tokens, and the allowed tokens as a mask. A step only examines bad words of
 * several tokens, and only those that can contain the newest token. Pure; a struct belongs to one thread at a time.
 */
#ifndef QUIRE_ENGINE_SAMPLING_H
#define QUIRE_ENGINE_SAMPLING_H

#include "base/status.h"
#include "engine/model/model.h"
#include "kernels/args/sample.h"
#include "request/spec.h"

#include <stdbool.h>
#include <stdint.h>

struct bad_word {
    uint32_t before, last; /* its last id but one, its last */
    uint32_t at;           /* in spec->bad_words */
};

struct sampling {
    const struct request_spec *spec; /* the request's parameters; borrowed */
    uint32_t *stops;     /* eos ids unless ignored, and stop_token_ids; ascending, each once */
    uint32_t n_stops;
    struct k_logit_bias *biases; /* ascending; bad words of one token are at -inf */
    uint32_t n_biases;
    struct k_logit_bias *early;  /* while fewer than min_tokens are generated; NULL when that is 0 */
    uint32_t n_early;
    uint32_t *mask;      /* a bit a token that may be drawn; NULL: all may */
    struct bad_word *words; /* those of two tokens and more; ascending in `before`, then in `last` */
    uint32_t n_words;
};

/* Takes a checked spec (request_spec_check()) with a seed. The spec must outlive *out. QUIRE_NO_MEMORY leaves
 * nothing to free. Returns QUIRE_INVALID if an id has two biases, or if no token could ever be drawn first or after
 * min_tokens. */
int sampling_init(struct sampling *out, const struct request_spec *spec, const struct model_desc *desc,
                  struct quire_error *err);
void sampling_free(struct sampling *s);

/* The spec as sampling_init() would make the same of, whatever the model's eos ids. Borrows from s. */
struct request_spec sampling_resolved(const struct sampling *s);

/* The repetition penalty is on: the prompt's tokens are counted. */
static inline bool sampling_counts_prompt(const struct sampling *s)
{
    return s->spec->repetition_penalty != 1;
}
/* A penalty is on: generated tokens are counted. */
static inline bool sampling_counts_output(const struct sampling *s)
{
    return sampling_counts_prompt(s) || s->spec->presence_penalty != 0 || s->spec->frequency_penalty != 0;
}

bool sampling_stops(const struct sampling *s, uint32_t token);

/* Whether a row depends on the tokens generated so far. */
bool sampling_needs_tokens(const struct sampling *s);
/* The largest number of biases that one row may need scratch for; 0 if it needs no scratch. */
size_t sampling_row_scratch(const struct sampling *s);

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
    uint32_t position, choice;   /* of the next token */
    struct k_logit_bias *scratch;   /* scratch of sampling_row_scratch() biases; the row may point into it */
};
/* The row that draws the next token. */
void sampling_row(const struct sampling *s, const struct sampling_state *state, struct k_sample_row *out);
/* Whether mask and biases of a row leave no token that may be drawn. */
bool sampling_row_forbids_all(const struct k_sample_row *row, uint32_t n_vocab);
/* The row that reports a prompt token. */
void sampling_prompt_row(const struct sampling *s, uint32_t token, uint32_t position, struct k_sample_row *out);

#endif
