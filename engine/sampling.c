#include "engine/sampling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void engine_sampling_default(struct engine_sampling *sampling)
{
    *sampling = (struct engine_sampling){
        .temperature = 1,
        .top_p = 1,
        .repetition_penalty = 1,
        .n_logprobs = -1,
        .n_prompt_logprobs = -1,
    };
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* NaN fails every comparison, so it is outside every range. */
static int check_range(const char *name, float value, float min, float max,
                       struct quire_error *err)
{
    if (value >= min && value <= max)
        return QUIRE_OK;
    return quire_fail(err, QUIRE_INVALID, "%s: must be between %g and %g, got %g", name,
                      (double)min, (double)max, (double)value);
}

static int check_logprobs(const char *name, int32_t value, struct quire_error *err)
{
    if (value >= -1 && value <= K_MAX_LOGPROBS)
        return QUIRE_OK;
    return quire_fail(err, QUIRE_INVALID, "%s: must be at most %d, got %d", name, K_MAX_LOGPROBS,
                      value);
}

static int check_lists(const struct engine_sampling *s, uint32_t n_vocab, struct quire_error *err)
{
    if (s->n_stop_token_ids > n_vocab)
        return quire_fail(err, QUIRE_INVALID,
                          "stop_token_ids: more than the vocabulary's %u tokens", n_vocab);
    for (uint32_t i = 0; i < s->n_stop_token_ids; i++)
        if (s->stop_token_ids[i] >= n_vocab)
            return quire_fail(err, QUIRE_INVALID,
                              "stop_token_ids: %u is not below the vocabulary's %u",
                              s->stop_token_ids[i], n_vocab);
    if (s->n_biases > n_vocab)
        return quire_fail(err, QUIRE_INVALID, "logit_bias: more than the vocabulary's %u tokens",
                          n_vocab);
    for (uint32_t i = 0; i < s->n_biases; i++) {
        const struct k_logit_bias *b = &s->biases[i];
        if (b->id >= n_vocab)
            return quire_fail(err, QUIRE_INVALID, "logit_bias: %u is not below the vocabulary's %u",
                              b->id, n_vocab);
        if (isnan(b->bias) || b->bias == INFINITY)
            return quire_fail(err, QUIRE_INVALID,
                              "logit_bias: the bias of %u must be a finite number", b->id);
    }
    return QUIRE_OK;
}

int sampling_check(const struct engine_sampling *s, uint32_t max_tokens, uint32_t n_vocab,
                   struct quire_error *err)
{
    const struct {
        const char *name;
        float value, min, max;
    } ranges[] = {
        {"temperature", s->temperature, 0, 1000},
        {"min_p", s->min_p, 0, 1},
        {"presence_penalty", s->presence_penalty, -2, 2},
        {"frequency_penalty", s->frequency_penalty, -2, 2},
    };
    int status = QUIRE_OK;
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0] && status == QUIRE_OK; i++)
        status = check_range(ranges[i].name, ranges[i].value, ranges[i].min, ranges[i].max, err);
    if (status != QUIRE_OK)
        return status;
    if (!(s->top_p > 0 && s->top_p <= 1))
        return quire_fail(err, QUIRE_INVALID, "top_p: must be above 0 and at most 1, got %g",
                          (double)s->top_p);
    if (!(s->repetition_penalty > 0 && s->repetition_penalty <= 1000))
        return quire_fail(err, QUIRE_INVALID,
                          "repetition_penalty: must be above 0 and at most 1000, got %g",
                          (double)s->repetition_penalty);
    if (s->min_tokens > max_tokens)
        return quire_fail(err, QUIRE_INVALID, "min_tokens: %u is more than max_tokens, %u",
                          s->min_tokens, max_tokens);
    status = check_logprobs("logprobs", s->n_logprobs, err);
    if (status == QUIRE_OK)
        status = check_logprobs("prompt_logprobs", s->n_prompt_logprobs, err);
    return status == QUIRE_OK ? check_lists(s, n_vocab, err) : status;
}

/* ---- the prepared copy ----------------------------------------------------------------------- */

static int by_id(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static int by_bias_id(const void *a, const void *b)
{
    const struct k_logit_bias *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static uint32_t sort_distinct(uint32_t *ids, uint32_t n)
{
    uint32_t kept = 0;
    if (n > 1)
        qsort(ids, n, sizeof *ids, by_id);
    for (uint32_t i = 0; i < n; i++)
        if (kept == 0 || ids[kept - 1] != ids[i])
            ids[kept++] = ids[i];
    return kept;
}

/* stop_token_ids and the model's eos ids below the vocabulary; room for all. */
static uint32_t collect_stops(const struct engine_sampling *s, const struct model_desc *desc,
                              bool with_eos, uint32_t *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_stop_token_ids; i++)
        out[n++] = s->stop_token_ids[i];
    for (uint32_t i = 0; with_eos && i < desc->n_eos; i++)
        if (desc->eos[i] < desc->vocab_size)
            out[n++] = desc->eos[i];
    return sort_distinct(out, n);
}

/* biases (ascending) with every forbidden id (ascending) at -inf. */
static uint32_t merge_forbidden(const struct k_logit_bias *biases, uint32_t n_biases,
                                const uint32_t *forbidden, uint32_t n_forbidden,
                                struct k_logit_bias *out)
{
    uint32_t n = 0, i = 0, j = 0;
    while (i < n_biases || j < n_forbidden) {
        if (j == n_forbidden || (i < n_biases && biases[i].id < forbidden[j])) {
            out[n++] = biases[i++];
        } else {
            if (i < n_biases && biases[i].id == forbidden[j])
                i++;
            out[n++] = (struct k_logit_bias){.id = forbidden[j++], .bias = -INFINITY};
        }
    }
    return n;
}

int sampling_init(struct sampling *out, const struct engine_sampling *s,
                  const struct model_desc *desc, uint64_t seed, struct quire_error *err)
{
    *out = (struct sampling){
        .temperature = s->temperature,
        .top_p = s->top_p,
        .min_p = s->min_p,
        .top_k = s->top_k,
        .repetition_penalty = s->repetition_penalty,
        .presence_penalty = s->presence_penalty,
        .frequency_penalty = s->frequency_penalty,
        .seed = seed,
        .n_logprobs = s->n_logprobs,
        .n_prompt_logprobs = s->n_prompt_logprobs,
        .min_tokens = s->min_tokens,
        .counts_prompt = s->repetition_penalty != 1,
        .counts_output = s->repetition_penalty != 1 || s->presence_penalty != 0 ||
                         s->frequency_penalty != 0,
    };
    uint32_t most = s->n_stop_token_ids + MODEL_MAX_EOS;
    out->stops = malloc(most * sizeof *out->stops);
    out->biases = malloc((s->n_biases + 1) * sizeof *out->biases);
    /* min_tokens holds eos back also where it would not end the request. */
    uint32_t *forbidden = malloc(most * sizeof *forbidden);
    if (s->min_tokens)
        out->early = malloc(((size_t)s->n_biases + most) * sizeof *out->early);
    if (!out->stops || !out->biases || !forbidden || (s->min_tokens && !out->early)) {
        free(forbidden);
        sampling_free(out);
        return quire_fail(err, QUIRE_NO_MEMORY, "request: out of memory");
    }
    out->n_stops = collect_stops(s, desc, !s->ignore_eos, out->stops);
    out->n_biases = s->n_biases;
    if (s->n_biases) {
        memcpy(out->biases, s->biases, s->n_biases * sizeof *out->biases);
        qsort(out->biases, s->n_biases, sizeof *out->biases, by_bias_id);
    }
    if (s->min_tokens) {
        uint32_t n = collect_stops(s, desc, true, forbidden);
        out->n_early = merge_forbidden(out->biases, out->n_biases, forbidden, n, out->early);
    }
    free(forbidden);
    for (uint32_t i = 1; i < out->n_biases; i++)
        if (out->biases[i].id == out->biases[i - 1].id) {
            int status = quire_fail(err, QUIRE_INVALID, "logit_bias: %u is given twice",
                                    out->biases[i].id);
            sampling_free(out);
            return status;
        }
    return QUIRE_OK;
}

void sampling_free(struct sampling *s)
{
    free(s->stops);
    free(s->biases);
    free(s->early);
    s->stops = NULL;
    s->biases = s->early = NULL;
}

struct engine_sampling sampling_resolved(const struct sampling *s)
{
    return (struct engine_sampling){
        .temperature = s->temperature,
        .top_p = s->top_p,
        .min_p = s->min_p,
        .top_k = s->top_k,
        .repetition_penalty = s->repetition_penalty,
        .presence_penalty = s->presence_penalty,
        .frequency_penalty = s->frequency_penalty,
        .has_seed = true,
        .seed = s->seed,
        .n_logprobs = s->n_logprobs,
        .n_prompt_logprobs = s->n_prompt_logprobs,
        .ignore_eos = true,
        .min_tokens = s->min_tokens,
        .stop_token_ids = s->stops,
        .n_stop_token_ids = s->n_stops,
        .biases = s->biases,
        .n_biases = s->n_biases,
    };
}

bool sampling_stops(const struct sampling *s, uint32_t token)
{
    uint32_t low = 0, high = s->n_stops;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (s->stops[middle] < token)
            low = middle + 1;
        else
            high = middle;
    }
    return low < s->n_stops && s->stops[low] == token;
}

/* ---- counts ---------------------------------------------------------------------------------- */

static int by_count_id(const void *a, const void *b)
{
    const struct k_token_count *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

uint32_t token_counts_of_prompt(const uint32_t *prompt, uint32_t n_prompt,
                                struct k_token_count *items)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_prompt; i++)
        items[i] = (struct k_token_count){.id = prompt[i]};
    qsort(items, n_prompt, sizeof *items, by_count_id);
    for (uint32_t i = 0; i < n_prompt; i++)
        if (n == 0 || items[n - 1].id != items[i].id)
            items[n++] = items[i];
    return n;
}

void token_counts_add(struct token_counts *counts, uint32_t token)
{
    uint32_t low = 0, high = counts->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (counts->items[middle].id < token)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == counts->n || counts->items[low].id != token) {
        memmove(&counts->items[low + 1], &counts->items[low],
                (counts->n - low) * sizeof *counts->items);
        counts->items[low] = (struct k_token_count){.id = token};
        counts->n++;
    }
    counts->items[low].n_output++;
}

/* ---- rows ------------------------------------------------------------------------------------ */

void sampling_row(const struct sampling *s, const struct token_counts *counts,
                  uint32_t n_generated, uint32_t position, uint32_t choice,
                  struct k_sample_row *out)
{
    bool early = n_generated < s->min_tokens;
    *out = (struct k_sample_row){
        .temperature = s->temperature,
        .top_p = s->top_p,
        .min_p = s->min_p,
        .top_k = s->top_k,
        .repetition_penalty = s->repetition_penalty,
        .presence_penalty = s->presence_penalty,
        .frequency_penalty = s->frequency_penalty,
        .counts = counts->items,
        .n_counts = counts->n,
        .biases = early ? s->early : s->biases,
        .n_biases = early ? s->n_early : s->n_biases,
        .seed = s->seed,
        .position = position,
        .choice = choice,
        .n_logprobs = s->n_logprobs,
        .forced = -1,
    };
}

void sampling_prompt_row(const struct sampling *s, uint32_t token, uint32_t position,
                         struct k_sample_row *out)
{
    *out = (struct k_sample_row){
        .top_p = 1,
        .repetition_penalty = 1,
        .position = position,
        .n_logprobs = s->n_prompt_logprobs,
        .forced = token,
    };
}
