#include "tools/eval/ppl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define Z_95 1.959964

void eval_nll_add(struct eval_nll *sums, double nll, const struct eval_window *w, const uint32_t *token_bytes)
{
    const double tokens = w->scored;
    sums->nll += nll;
    sums->nll_squares += nll * nll;
    sums->cross += nll * tokens;
    sums->token_squares += tokens * tokens;
    sums->n_windows++;
    sums->n_tokens += w->scored;
    for (uint32_t i = w->n - w->scored; i < w->n; i++)
        sums->n_bytes += token_bytes[w->ids[i]];
}

/* The mean is a ratio of two sums; its error comes from the windows' deviations from it. */
struct eval_perplexity eval_perplexity_of(const struct eval_nll *s)
{
    struct eval_perplexity p = {.byte = NAN, .bits_per_byte = NAN};
    const double n = (double)s->n_windows, tokens = (double)s->n_tokens;
    if (s->n_tokens == 0)
        return p;
    p.nll = s->nll / tokens;
    p.token = exp(p.nll);
    if (s->n_bytes) {
        p.byte = exp(s->nll / (double)s->n_bytes);
        p.bits_per_byte = s->nll / (double)s->n_bytes / log(2);
    }
    const double squares = s->nll_squares - 2 * p.nll * s->cross + p.nll * p.nll * s->token_squares;
    p.has_interval = s->n_windows > 1;
    if (p.has_interval) {
        const double error = sqrt(n / (n - 1) * fmax(squares, 0)) / tokens;
        p.low = exp(p.nll - Z_95 * error);
        p.high = exp(p.nll + Z_95 * error);
    }
    return p;
}

json_t *eval_json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *eval_json_bound(const struct eval_perplexity *p, double bound)
{
    return p->has_interval ? eval_json_number(bound) : json_null();
}

struct eval_interval eval_interval_of(const struct eval_perplexity *p, bool is_increase)
{
    struct eval_interval out = {"one window"};
    if (p->has_interval && is_increase)
        snprintf(out.text, sizeof out.text, "%+.2f to %+.2f", 100 * (p->low - 1), 100 * (p->high - 1));
    else if (p->has_interval)
        snprintf(out.text, sizeof out.text, "%.4f to %.4f", p->low, p->high);
    return out;
}

uint32_t *eval_token_bytes(const struct quire_text *text)
{
    const uint32_t n = quire_text_n_ids(text);
    uint32_t *bytes = calloc(n ? n : 1, sizeof *bytes);
    for (uint32_t id = 0; bytes && id < n; id++) {
        uint8_t *of_token;
        size_t n_bytes;
        char *shown;
        if (quire_text_decode(text, &id, 1, true, &shown, &n_bytes, NULL) == QUIRE_OK) {
            const bool is_special = n_bytes == 0;
            free(shown);
            if (is_special)
                continue;
        }
        if (quire_text_token_bytes(text, id, &of_token, &n_bytes, NULL) == QUIRE_OK) {
            bytes[id] = (uint32_t)n_bytes;
            free(of_token);
        }
    }
    return bytes;
}

int eval_ppl(struct eval_session *s, const struct eval_windows *w, struct bench_progress *progress,
             struct eval_nll *out, struct quire_error *err)
{
    uint32_t *token_bytes = eval_token_bytes(eval_text(s));
    float *logprobs = malloc(w->window * sizeof *logprobs);
    int status = token_bytes && logprobs ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    *out = (struct eval_nll){0};
    for (uint32_t i = 0; status == QUIRE_OK && i < w->n; i++) {
        const struct eval_window at = eval_window_at(w, i);
        double nll = 0;
        if (at.scored == 0)
            continue;
        status = eval_score(s, at.ids, at.n, logprobs, err);
        for (uint32_t k = at.n - at.scored; status == QUIRE_OK && k < at.n; k++)
            nll -= logprobs[k];
        if (status == QUIRE_OK)
            eval_nll_add(out, nll, &at, token_bytes);
        bench_progress_set(progress, i + 1);
    }
    free(token_bytes);
    free(logprobs);
    return status;
}
