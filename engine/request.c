#include "engine/request.h"

#include "memory/prefix.h"

#include <stdlib.h>
#include <string.h>

static int check(const struct engine_request *r, const struct request_limits *limits,
                 struct quire_error *err)
{
    uint32_t n_vocab = limits->desc->vocab_size;
    if (r->n_prompt == 0)
        return quire_fail(err, QUIRE_INVALID, "prompt: must have at least one token");
    if (r->n == 0 || r->n > REQUEST_MAX_CHOICES)
        return quire_fail(err, QUIRE_INVALID, "n: must be between 1 and %u, got %u",
                          REQUEST_MAX_CHOICES, r->n);
    if ((uint64_t)r->n_prompt + r->max_tokens > limits->max_model_len)
        return quire_fail(err, QUIRE_INVALID,
                          "max_tokens: a prompt of %u tokens and %u more pass the context of %u",
                          r->n_prompt, r->max_tokens, limits->max_model_len);
    for (uint32_t i = 0; i < r->n_prompt; i++)
        if (r->prompt[i] >= n_vocab)
            return quire_fail(err, QUIRE_INVALID,
                              "prompt: token %u is %u, which is not below the vocabulary's %u", i,
                              r->prompt[i], n_vocab);
    return sampling_check(&r->sampling, r->max_tokens, n_vocab, err);
}

static int copy_prompt(struct request *out, const struct engine_request *r,
                       const struct request_limits *limits)
{
    uint32_t bt = limits->block_tokens, n_hashes = r->n_prompt / bt;
    out->prompt = malloc(r->n_prompt * sizeof *out->prompt);
    out->hashes = malloc((n_hashes + 1) * sizeof *out->hashes);
    if (!out->prompt || !out->hashes)
        return QUIRE_NO_MEMORY;
    memcpy(out->prompt, r->prompt, r->n_prompt * sizeof *out->prompt);
    const struct kv_chain_root root = {
        .secret = *limits->chain_secret, .tenant = r->tenant, .block_tokens = bt};
    out->chain_first = kv_chain_first(&root);
    struct key256 parent = out->chain_first;
    for (uint32_t i = 0; i < n_hashes; i++) {
        parent = kv_chain_next(&root.secret, &parent, out->prompt + (size_t)i * bt, bt);
        out->hashes[i] = parent;
    }
    return QUIRE_OK;
}

/* Room for every count that can occur, so that no step allocates: pages that are never touched cost
 * nothing. */
static int make_counts(struct request *out, uint32_t n_vocab)
{
    if (!out->sampling.counts_output)
        return QUIRE_OK;
    uint32_t n_prompt = out->sampling.counts_prompt ? out->n_prompt : 0;
    uint64_t most = (uint64_t)n_prompt + out->max_tokens;
    if (most > n_vocab)
        most = n_vocab;
    size_t total = n_prompt + (size_t)out->n * most;
    out->counts_memory = malloc((total + 1) * sizeof *out->counts_memory);
    if (!out->counts_memory)
        return QUIRE_NO_MEMORY;
    out->prompt_counts = out->counts_memory;
    if (n_prompt)
        out->n_prompt_counts =
            token_counts_of_prompt(out->prompt, n_prompt, out->prompt_counts);
    for (uint32_t i = 0; i < out->n; i++)
        out->choices[i].counts = (struct token_counts){
            .items = out->counts_memory + n_prompt + i * most, .capacity = (uint32_t)most};
    return QUIRE_OK;
}

int request_create(const struct engine_request *r, const struct request_limits *limits,
                   uint64_t seed, struct request **out, struct quire_error *err)
{
    int status = check(r, limits, err);
    if (status != QUIRE_OK)
        return status;
    struct request *made = calloc(1, sizeof *made + r->n * sizeof made->choices[0]);
    if (!made)
        return quire_fail(err, QUIRE_NO_MEMORY, "request: out of memory");
    made->id = r->id;
    made->n_prompt = r->n_prompt;
    made->max_tokens = r->max_tokens;
    made->n = made->n_open = r->n;
    made->priority = r->priority;
    made->deadline_us = r->deadline_us;
    made->tenant_index = r->tenant_index;
    made->next_prompt_logprob = r->sampling.n_prompt_logprobs >= 0 ? 1 : r->n_prompt;
    status = sampling_init(&made->sampling, &r->sampling, limits->desc,
                           r->sampling.has_seed ? r->sampling.seed : seed, err);
    if (status == QUIRE_OK && (copy_prompt(made, r, limits) != QUIRE_OK ||
                               make_counts(made, limits->desc->vocab_size) != QUIRE_OK))
        status = quire_fail(err, QUIRE_NO_MEMORY, "request: out of memory");
    if (status != QUIRE_OK) {
        request_free(made);
        return status;
    }
    *out = made;
    return QUIRE_OK;
}

void request_drop_prompt(struct request *r)
{
    free(r->prompt);
    free(r->hashes);
    r->prompt = NULL;
    r->hashes = NULL;
}

void request_free(struct request *r)
{
    if (!r)
        return;
    request_drop_prompt(r);
    sampling_free(&r->sampling);
    free(r->counts_memory);
    free(r);
}

struct token_counts *request_counts(struct request *r, uint32_t choice)
{
    struct token_counts *counts = &r->choices[choice].counts;
    if (counts->n == 0 && r->n_prompt_counts) {
        memcpy(counts->items, r->prompt_counts, r->n_prompt_counts * sizeof *counts->items);
        counts->n = r->n_prompt_counts;
    }
    return counts;
}
