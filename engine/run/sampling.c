#include "engine/run/sampling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

static int by_ends(const void *a, const void *b)
{
    const struct bad_word *x = a, *y = b;
    int before = (x->before > y->before) - (x->before < y->before);
    return before ? before : (x->last > y->last) - (x->last < y->last);
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
static uint32_t collect_stops(const struct request_spec *s, const struct model_desc *desc, bool with_eos, uint32_t *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_stop_token_ids; i++)
        out[n++] = s->stop_token_ids[i];
    for (uint32_t i = 0; with_eos && i < desc->config->tokens.n_eos; i++)
        if (desc->config->tokens.eos[i] < desc->config->vocab_size)
            out[n++] = desc->config->tokens.eos[i];
    return sort_distinct(out, n);
}

/* biases (ascending) with every forbidden id (ascending) at -inf. */
static uint32_t merge_forbidden(const struct k_logit_bias *biases, uint32_t n_biases, const uint32_t *forbidden,
                                uint32_t n_forbidden, struct k_logit_bias *out)
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

static void list_words(struct sampling *out, const struct request_spec *s, uint32_t *single, uint32_t *n_single)
{
    *n_single = 0;
    for (uint32_t i = 0; i < s->n_bad_words; i += 1 + s->bad_words[i]) {
        uint32_t n_ids = s->bad_words[i];
        const uint32_t *end = s->bad_words + i + 1 + n_ids;
        if (n_ids == 1)
            single[(*n_single)++] = s->bad_words[i + 1];
        else
            out->words[out->n_words++] = (struct bad_word){.before = end[-2], .last = end[-1], .at = i};
    }
    qsort(out->words, out->n_words, sizeof *out->words, by_ends);
    *n_single = sort_distinct(single, *n_single);
}

/* Biases as given, ascending, with the bad words of one token at -inf; the longer ones are listed. */
static int make_biases(struct sampling *out, const struct request_spec *s, struct quire_error *err)
{
    struct k_logit_bias *given = malloc((s->n_biases + 1) * sizeof *given);
    uint32_t *single = malloc((s->n_bad_words + 1) * sizeof *single), n_single = 0;
    out->biases = malloc((s->n_biases + s->n_bad_words / 2 + 1) * sizeof *out->biases);
    out->words = malloc((s->n_bad_words / 3 + 1) * sizeof *out->words);
    int status = QUIRE_OK;
    if (!given || !single || !out->biases || !out->words) {
        status = quire_fail(err, QUIRE_NO_MEMORY, "request: out of memory");
        goto out;
    }
    for (uint32_t i = 0; i < s->n_biases; i++)
        given[i] = (struct k_logit_bias){.id = s->biases[i].id, .bias = s->biases[i].bias};
    qsort(given, s->n_biases, sizeof *given, by_bias_id);
    for (uint32_t i = 1; i < s->n_biases; i++)
        if (given[i].id == given[i - 1].id) {
            status = quire_fail_for(err, QUIRE_INVALID, "logit_bias", "%u occurs twice", given[i].id);
            goto out;
        }
    list_words(out, s, single, &n_single);
    out->n_biases = merge_forbidden(given, s->n_biases, single, n_single, out->biases);
out:
    free(given);
    free(single);
    return status;
}

/* min_tokens holds eos back also where it would not end the request. */
static int make_early(struct sampling *out, const struct request_spec *s, const struct model_desc *desc,
                      struct quire_error *err)
{
    uint32_t most = s->n_stop_token_ids + MODEL_MAX_EOS;
    if (s->min_tokens == 0)
        return QUIRE_OK;
    uint32_t *forbidden = malloc(most * sizeof *forbidden);
    out->early = malloc(((size_t)out->n_biases + most) * sizeof *out->early);
    if (!forbidden || !out->early) {
        free(forbidden);
        return quire_fail(err, QUIRE_NO_MEMORY, "request: out of memory");
    }
    uint32_t n = collect_stops(s, desc, true, forbidden);
    out->n_early = merge_forbidden(out->biases, out->n_biases, forbidden, n, out->early);
    free(forbidden);
    return QUIRE_OK;
}

static int make_mask(struct sampling *out, const struct request_spec *s, uint32_t n_vocab, struct quire_error *err)
{
    if (s->n_allowed_token_ids == 0)
        return QUIRE_OK;
    out->mask = calloc((n_vocab + 31) / 32, sizeof *out->mask);
    if (!out->mask)
        return quire_fail(err, QUIRE_NO_MEMORY, "request: out of memory");
    for (uint32_t i = 0; i < s->n_allowed_token_ids; i++)
        out->mask[s->allowed_token_ids[i] / 32] |= 1u << s->allowed_token_ids[i] % 32;
    return QUIRE_OK;
}

/* Rejects a request that could never draw a token before it enters a queue. */
static int check_something_left(const struct sampling *s, uint32_t n_vocab, struct quire_error *err)
{
    const struct k_sample_row later = {.mask = s->mask, .biases = s->biases, .n_biases = s->n_biases};
    const struct k_sample_row early = {.mask = s->mask, .biases = s->early, .n_biases = s->n_early};
    if (sampling_row_forbids_all(&later, n_vocab))
        return quire_fail_for(err, QUIRE_INVALID, s->mask ? "allowed_token_ids" : "logit_bias",
                              "every token is forbidden");
    if (s->spec->min_tokens > 0 && sampling_row_forbids_all(&early, n_vocab))
        return quire_fail_for(err, QUIRE_INVALID, "min_tokens",
                              "no token may be drawn before min_tokens:"
                              " every one would end the choice or is forbidden");
    return QUIRE_OK;
}

int sampling_init(struct sampling *out, const struct request_spec *s, const struct model_desc *desc,
                  struct quire_error *err)
{
    *out = (struct sampling){.spec = s};
    int status = QUIRE_OK;
    out->stops = malloc((s->n_stop_token_ids + MODEL_MAX_EOS) * sizeof *out->stops);
    if (out->stops)
        out->n_stops = collect_stops(s, desc, !s->ignore_eos, out->stops);
    else
        status = quire_fail(err, QUIRE_NO_MEMORY, "request: out of memory");
    if (status == QUIRE_OK)
        status = make_biases(out, s, err);
    if (status == QUIRE_OK)
        status = make_early(out, s, desc, err);
    if (status == QUIRE_OK)
        status = make_mask(out, s, desc->config->vocab_size, err);
    if (status == QUIRE_OK)
        status = check_something_left(out, desc->config->vocab_size, err);
    if (status != QUIRE_OK)
        sampling_free(out);
    return status;
}

void sampling_free(struct sampling *s)
{
    free(s->stops);
    free(s->biases);
    free(s->early);
    free(s->mask);
    free(s->words);
    *s = (struct sampling){0};
}

struct request_spec sampling_resolved(const struct sampling *s)
{
    struct request_spec spec = *s->spec;
    spec.ignore_eos = true;
    spec.stop_token_ids = s->stops;
    spec.n_stop_token_ids = s->n_stops;
    return spec;
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

uint32_t token_counts_of_prompt(const uint32_t *prompt, uint32_t n_prompt, struct k_token_count *items)
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
        memmove(&counts->items[low + 1], &counts->items[low], (counts->n - low) * sizeof *counts->items);
        counts->items[low] = (struct k_token_count){.id = token};
        counts->n++;
    }
    counts->items[low].n_output++;
}

/* ---- rows ------------------------------------------------------------------------------------ */

bool sampling_needs_tokens(const struct sampling *s)
{
    return sampling_counts_output(s) || s->n_words > 0;
}

size_t sampling_row_scratch(const struct sampling *s)
{
    return s->n_words ? (size_t)(s->n_early > s->n_biases ? s->n_early : s->n_biases) + s->n_words : 0;
}

/* The first word that goes on after this token, or would stand there. */
static uint32_t first_word_after(const struct sampling *s, uint32_t token)
{
    uint32_t low = 0, high = s->n_words;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (s->words[middle].before < token)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Do the generated tokens end in all of the word but its last id? */
static bool awaits_last(const struct sampling *s, const struct sampling_state *state, const struct bad_word *word)
{
    const uint32_t *given = s->spec->bad_words + word->at; /* how many ids, then the ids */
    uint32_t n_before = given[0] - 1;
    return n_before <= state->n_generated &&
           memcmp(state->generated + state->n_generated - n_before, given + 1, n_before * sizeof *given) == 0;
}

/* Merges the words that the next token would complete with the row's biases in one pass. All of them may match at
 * once, in every row of a step. Most rows match no word and keep the shared list. */
static void forbid_words(const struct sampling *s, const struct sampling_state *state, struct k_sample_row *row)
{
    if (s->n_words == 0 || state->n_generated == 0)
        return;
    uint32_t newest = state->generated[state->n_generated - 1], n = 0, taken = 0;
    for (uint32_t i = first_word_after(s, newest); i < s->n_words && s->words[i].before == newest; i++) {
        uint32_t last = s->words[i].last;
        if ((n > 0 && state->scratch[n - 1].id == last) || !awaits_last(s, state, &s->words[i]))
            continue;
        while (taken < row->n_biases && row->biases[taken].id < last)
            state->scratch[n++] = row->biases[taken++];
        if (taken < row->n_biases && row->biases[taken].id == last)
            taken++;
        state->scratch[n++] = (struct k_logit_bias){.id = last, .bias = -INFINITY};
    }
    if (n == 0)
        return;
    while (taken < row->n_biases)
        state->scratch[n++] = row->biases[taken++];
    row->biases = state->scratch;
    row->n_biases = n;
}

void sampling_row(const struct sampling *s, const struct sampling_state *state, struct k_sample_row *out)
{
    const struct request_spec *spec = s->spec;
    bool early = state->n_generated < spec->min_tokens;
    *out = (struct k_sample_row){
        .temperature = spec->temperature,
        .top_p = spec->top_p,
        .min_p = spec->min_p,
        .top_k = spec->top_k,
        .repetition_penalty = spec->repetition_penalty,
        .presence_penalty = spec->presence_penalty,
        .frequency_penalty = spec->frequency_penalty,
        .counts = state->counts->items,
        .n_counts = state->counts->n,
        .biases = early ? s->early : s->biases,
        .n_biases = early ? s->n_early : s->n_biases,
        .mask = s->mask,
        .seed = spec->seed,
        .position = state->position,
        .choice = state->choice,
        .n_logprobs = spec->n_logprobs,
        .forced = -1,
    };
    forbid_words(s, state, out);
}

bool sampling_row_forbids_all(const struct k_sample_row *row, uint32_t n_vocab)
{
    uint32_t n_left = n_vocab;
    if (row->mask) {
        n_left = 0;
        for (uint32_t i = 0; i < (n_vocab + 31) / 32; i++)
            n_left += (uint32_t)__builtin_popcount(row->mask[i]);
    }
    for (uint32_t i = 0; i < row->n_biases; i++) {
        uint32_t id = row->biases[i].id;
        bool allowed = !row->mask || (row->mask[id / 32] >> id % 32 & 1u);
        n_left -= allowed && row->biases[i].bias == -INFINITY;
    }
    return n_left == 0;
}

void sampling_prompt_row(const struct sampling *s, uint32_t token, uint32_t position, struct k_sample_row *out)
{
    *out = (struct k_sample_row){
        .top_p = 1,
        .repetition_penalty = 1,
        .position = position,
        .n_logprobs = s->spec->n_prompt_logprobs,
        .forced = token,
    };
}
