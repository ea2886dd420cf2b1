/* Perplexity of a text: the negative logarithms of its tokens' probabilities, by window. */
#ifndef QUIRE_TOOLS_EVAL_PPL_H
#define QUIRE_TOOLS_EVAL_PPL_H

#include "app/command/progress.h"
#include "tools/eval/session.h"
#include "tools/eval/windows.h"

#include <jansson.h>
#include <stdbool.h>

/* Sums over windows, for a mean and its standard error. Zero it to begin. */
struct eval_nll {
    double nll, nll_squares, cross, token_squares; /* of windows: sum of nll, nll^2, nll tokens, tokens^2 */
    uint64_t n_windows, n_tokens, n_bytes; /* scored; bytes: of their text, special tokens have none */
};
struct eval_perplexity {
    double nll; /* nats a token */
    double token, low, high; /* perplexity, and its 95 % interval over windows */
    bool has_interval; /* false: of one window */
    double byte, bits_per_byte; /* perplexity a byte of text, and its logarithm; NaN: no byte was scored */
};

/* Adds a window: nll of its scored tokens, which are the last w->scored of it. */
void eval_nll_add(struct eval_nll *sums, double nll, const struct eval_window *w, const uint32_t *token_bytes);
struct eval_perplexity eval_perplexity_of(const struct eval_nll *sums);

/* A number for JSON; null where it is infinite, such as a perplexity above 1e308, or NaN. */
json_t *eval_json_number(double value);
/* A bound of the interval for JSON: `bound`, or null if one window has none. */
json_t *eval_json_bound(const struct eval_perplexity *p, double bound);
/* The interval as text, "16.5000 to 17.2500", or of an increase in percent, "-0.50 to +1.25"; "one window" without one. */
struct eval_interval {
    char text[64];
} eval_interval_of(const struct eval_perplexity *p, bool is_increase);

/* Bytes of text of each id of the vocabulary: [quire_text_n_ids()]. The caller frees it; NULL: out of memory. */
uint32_t *eval_token_bytes(const struct quire_text *text);

int eval_ppl(struct eval_session *s, const struct eval_windows *w, struct bench_progress *progress,
             struct eval_nll *out, struct quire_error *err);

#endif
