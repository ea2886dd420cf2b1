#include "engine/run/request.h"

#include "memory/prefix.h"

#include <stdlib.h>
#include <string.h>

/* About 35 years: no deadline or pin is longer, and sums of such times do not overflow. */
#define MAX_US ((uint64_t)1 << 50)

/* What only the scheduler reads. */
static int check_scheduling(const struct engine_request *r, const struct request_limits *limits,
                            struct quire_error *err)
{
    if (r->deadline_us > MAX_US)
        return quire_fail(err, QUIRE_INVALID, "deadline: must be at most %llu microseconds",
                          (unsigned long long)MAX_US);
    if (r->pin_us > MAX_US)
        return quire_fail(err, QUIRE_INVALID, "pin: must be at most %llu microseconds", (unsigned long long)MAX_US);
    if (r->pin_us > 0 && (!limits->prefix_caching || r->n_prompt < limits->block_tokens))
        return quire_fail(err, QUIRE_INVALID,
                          "prompt: a pin needs prefix caching and at least a block of %u tokens, got %u",
                          limits->block_tokens, r->n_prompt);
    if (r->tenant_index >= limits->n_tenants)
        return quire_fail(err, QUIRE_INVALID, "tenant: there are %u, got number %u", limits->n_tenants,
                          r->tenant_index);
    if (r->class_index >= SCHED_MAX_CLASSES)
        return quire_fail(err, QUIRE_INVALID, "class: must be below %u, got %u", SCHED_MAX_CLASSES, r->class_index);
    return QUIRE_OK;
}

static int check(const struct engine_request *r, const struct request_limits *limits, struct quire_error *err)
{
    uint32_t n_vocab = limits->desc->vocab_size;
    if (r->n_prompt == 0)
        return quire_fail(err, QUIRE_INVALID, "prompt: must have at least one token");
    if (r->n == 0 || r->n > REQUEST_MAX_CHOICES)
        return quire_fail(err, QUIRE_INVALID, "n: must be between 1 and %u, got %u", REQUEST_MAX_CHOICES, r->n);
    if ((uint64_t)r->n_prompt + r->max_tokens > limits->max_model_len)
        return quire_fail(err, QUIRE_INVALID, "max_tokens: a prompt of %u tokens and %u more pass the context of %u",
                          r->n_prompt, r->max_tokens, limits->max_model_len);
    for (uint32_t i = 0; i < r->n_prompt; i++)
        if (r->prompt[i] >= n_vocab)
            return quire_fail(err, QUIRE_INVALID, "prompt: token %u is %u, which is not below the vocabulary's %u", i,
                              r->prompt[i], n_vocab);
    int status = check_scheduling(r, limits, err);
    if (status != QUIRE_OK)
        return status;
    return sampling_check(&r->sampling, r->max_tokens, n_vocab, err);
}

static int copy_prompt(struct request *out, const struct engine_request *r)
{
    out->prompt = malloc(r->n_prompt * sizeof *out->prompt);
    if (!out->prompt)
        return QUIRE_NO_MEMORY;
    memcpy(out->prompt, r->prompt, r->n_prompt * sizeof *out->prompt);
    return QUIRE_OK;
}

static int make_hashes(struct request *out, const struct engine_request *r, const struct request_limits *limits)
{
    uint32_t bt = limits->block_tokens, n_hashes = r->n_prompt / bt;
    if (!limits->prefix_caching)
        return QUIRE_OK;
    out->hashes = malloc((n_hashes + 1) * sizeof *out->hashes);
    if (!out->hashes)
        return QUIRE_NO_MEMORY;
    const struct kv_chain_root root = {.secret = *limits->chain_secret, .tenant = r->tenant, .block_tokens = bt};
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
        out->n_prompt_counts = token_counts_of_prompt(out->prompt, n_prompt, out->prompt_counts);
    for (uint32_t i = 0; i < out->n; i++)
        out->choices[i].counts = (struct token_counts){.items = out->counts_memory + n_prompt + i * most,
                                                       .capacity = (uint32_t)most};
    return QUIRE_OK;
}

/* As for counts: no step allocates. */
static int make_rooms(struct request *out)
{
    size_t room = sampling_row_room(&out->sampling);
    if (room == 0)
        return QUIRE_OK;
    out->rooms = malloc(out->n * room * sizeof *out->rooms);
    if (!out->rooms)
        return QUIRE_NO_MEMORY;
    for (uint32_t i = 0; i < out->n; i++)
        out->choices[i].row_room = out->rooms + i * room;
    return QUIRE_OK;
}

int request_create(const struct engine_request *r, const struct request_limits *limits, uint64_t seed, uint64_t now_us,
                   struct request **out, struct quire_error *err)
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
    made->arrival_us = now_us;
    made->deadline_us = r->deadline_us ? now_us + r->deadline_us : 0;
    made->tenant_index = r->tenant_index;
    made->class_index = r->class_index;
    made->background = r->background;
    made->pin_us = r->pin_us;
    made->expected_tokens = r->expected_tokens;
    made->next_prompt_logprob = r->sampling.n_prompt_logprobs >= 0 ? 1 : r->n_prompt;
    status = sampling_init(&made->sampling, &r->sampling, limits->desc, r->sampling.has_seed ? r->sampling.seed : seed,
                           err);
    if (status == QUIRE_OK && (copy_prompt(made, r) != QUIRE_OK || make_hashes(made, r, limits) != QUIRE_OK ||
                               make_counts(made, limits->desc->vocab_size) != QUIRE_OK || make_rooms(made) != QUIRE_OK))
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
    free(r->rooms);
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
