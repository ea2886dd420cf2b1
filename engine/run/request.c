#include "engine/run/request.h"

#include "memory/prefix.h"
#include "scheduler/policy.h"

#include <stdlib.h>
#include <string.h>

static int check_pin(const struct request_spec *s, const struct request_limits *limits, struct quire_error *err)
{
    if (s->pin_us == 0 || (limits->prefix_caching && s->n_prompt >= limits->block_tokens))
        return QUIRE_OK;
    return quire_fail_for(err, QUIRE_INVALID, "prompt",
                          "a pin needs prefix caching and at least a block of %u tokens, got %u", limits->block_tokens,
                          s->n_prompt);
}

/* Whether this model gives what is asked for. */
static int check_task(const struct request_spec *s, const struct model_desc *desc, struct quire_error *err)
{
    if (s->wants_vector && desc->config->outputs.kind == OUTPUT_TOKENS)
        return quire_fail_for(err, QUIRE_UNSUPPORTED, "wants_vector",
                              "this model generates text and returns no vectors");
    if (!s->wants_vector && desc->config->outputs.kind != OUTPUT_TOKENS)
        return quire_fail_for(err, QUIRE_INVALID, "wants_vector", "this model returns vectors and generates no text");
    if (s->segment_from > 0 && model_encoder_of(desc->config).n_segments < 2)
        return quire_fail_for(err, QUIRE_UNSUPPORTED, "segment_from", "this model does not read pairs of texts");
    if (s->wants_vector && (s->max_tokens > 0 || s->n != 1 || s->n_prompt_logprobs >= 0))
        return quire_fail_for(err, QUIRE_INVALID, "wants_vector",
                              "a vector request must have n 1, max_tokens 0 and no prompt logprobs");
    return QUIRE_OK;
}

/* The checks that depend on this engine. */
static int check(const struct request_spec *s, const struct request_limits *limits, struct quire_error *err)
{
    int status = request_spec_check(s, limits->desc->config->vocab_size, err);
    if (status == QUIRE_OK)
        status = check_pin(s, limits, err);
    if (status == QUIRE_OK)
        status = check_task(s, limits->desc, err);
    if (status != QUIRE_OK)
        return status;
    if ((uint64_t)s->n_prompt + s->max_tokens > limits->max_model_len)
        return quire_fail_for(err, QUIRE_INVALID, "max_tokens",
                              "a prompt of %u tokens and %u more exceed the context of %u", s->n_prompt, s->max_tokens,
                              limits->max_model_len);
    if (s->tenant >= limits->n_tenants)
        return quire_fail(err, QUIRE_INVALID, "tenant: must be below %u, got %u", limits->n_tenants, s->tenant);
    if (s->class_index >= SCHED_MAX_CLASSES)
        return quire_fail(err, QUIRE_INVALID, "class: must be below %u, got %u", SCHED_MAX_CLASSES, s->class_index);
    return QUIRE_OK;
}

static int make_hashes(struct request *out, const struct request_limits *limits)
{
    const struct request_spec *s = out->spec;
    const uint32_t bt = limits->block_tokens, n_blocks = s->n_prompt / bt;
    if (!limits->prefix_caching)
        return QUIRE_OK;
    out->hashes = malloc(sizeof *out->hashes + n_blocks * sizeof out->hashes->blocks[0]);
    if (!out->hashes)
        return QUIRE_NO_MEMORY;
    const struct kv_chain_root root = {.secret = *limits->chain_secret, .tenant = s->cache_domain, .block_tokens = bt};
    struct key256 parent = out->hashes->chain_first = kv_chain_first(&root);
    for (uint32_t i = 0; i < n_blocks; i++) {
        parent = kv_chain_next(&root.secret, &parent, s->prompt + (size_t)i * bt, bt);
        out->hashes->blocks[i] = parent;
    }
    return QUIRE_OK;
}

/* Room for every count that can occur, so that no step allocates: pages that are never touched cost
 * nothing. */
static int make_counts(struct request *out, uint32_t n_vocab)
{
    if (!sampling_counts_output(&out->sampling))
        return QUIRE_OK;
    uint32_t n_prompt = sampling_counts_prompt(&out->sampling) ? out->spec->n_prompt : 0;
    uint64_t most = (uint64_t)n_prompt + out->spec->max_tokens;
    if (most > n_vocab)
        most = n_vocab;
    size_t total = n_prompt + (size_t)out->spec->n * most;
    out->counts_memory = malloc((total + 1) * sizeof *out->counts_memory);
    if (!out->counts_memory)
        return QUIRE_NO_MEMORY;
    if (n_prompt)
        out->n_prompt_counts = token_counts_of_prompt(out->spec->prompt, n_prompt, out->counts_memory);
    for (uint32_t i = 0; i < out->spec->n; i++)
        out->choices[i].counts = (struct token_counts){.items = out->counts_memory + n_prompt + i * most,
                                                       .capacity = (uint32_t)most};
    return QUIRE_OK;
}

/* As for counts: no step allocates. */
static int make_row_scratch(struct request *out)
{
    size_t scratch = sampling_row_scratch(&out->sampling);
    if (scratch == 0)
        return QUIRE_OK;
    struct k_logit_bias *all = malloc(out->spec->n * scratch * sizeof *all);
    if (!all)
        return QUIRE_NO_MEMORY;
    for (uint32_t i = 0; i < out->spec->n; i++)
        out->choices[i].row_scratch = all + i * scratch;
    return QUIRE_OK;
}

static int make(struct request *made, const struct request_limits *limits, struct quire_error *err)
{
    const struct request_spec *s = made->spec;
    made->n_open = s->n;
    made->next_prompt_logprob = s->n_prompt_logprobs >= 0 ? 1 : s->n_prompt;
    int status = sampling_init(&made->sampling, s, limits->desc, err);
    if (status == QUIRE_OK &&
        (make_hashes(made, limits) != QUIRE_OK || make_counts(made, limits->desc->config->vocab_size) != QUIRE_OK ||
         make_row_scratch(made) != QUIRE_OK))
        status = quire_fail(err, QUIRE_NO_MEMORY, "request: out of memory");
    return status;
}

/* A request with its spec and choices, in one piece of memory. */
static struct request *alloc(uint32_t n_choices)
{
    struct memory {
        struct request request;
        struct request_spec spec;
        struct request_choice choices[];
    } *m = calloc(1, sizeof *m + n_choices * sizeof m->choices[0]);
    if (!m)
        return NULL;
    m->request.spec = &m->spec;
    m->request.choices = m->choices;
    return &m->request;
}

int request_create(uint64_t id, struct request_spec *spec, const struct request_limits *limits, uint64_t now_us,
                   struct request **out, struct quire_error *err)
{
    int status = check(spec, limits, err);
    struct request *made = NULL;
    if (status == QUIRE_OK) {
        made = alloc(spec->n);
        if (!made)
            status = quire_fail(err, QUIRE_NO_MEMORY, "request: out of memory");
    }
    if (status != QUIRE_OK) {
        request_spec_free(spec);
        return status;
    }
    made->engine_id = id;
    made->arrival_us = now_us;
    *made->spec = request_spec_move(spec);
    status = make(made, limits, err);
    if (status != QUIRE_OK)
        request_free(made);
    else
        *out = made;
    return status;
}

struct sched_request request_schedule(const struct request_spec *s, uint64_t id, uint64_t arrival_us)
{
    return (struct sched_request){
        .id = id,
        .prompt = s->prompt,
        .n_prompt = s->n_prompt,
        .max_tokens = s->max_tokens,
        .n = s->n,
        .prompt_logprobs = s->n_prompt_logprobs >= 0,
        .vector = s->wants_vector,
        .background = s->background,
        .priority = s->priority,
        .arrival_us = arrival_us,
        .deadline_us = s->deadline_us ? arrival_us + s->deadline_us : 0,
        .pin_us = s->pin_us,
        .keep_us = s->keep_us,
        .keep_name = s->keep_name,
        .tenant = s->tenant,
        .class_index = s->class_index,
        .expected_tokens = s->expected_tokens,
    };
}

uint32_t *request_take_prompt(struct request *r)
{
    return request_spec_take_prompt(r->spec);
}

void request_drop_hashes(struct request *r)
{
    free(r->hashes);
    r->hashes = NULL;
}

void request_free(struct request *r)
{
    if (!r)
        return;
    for (uint32_t i = 0; r->grammar && i < r->spec->n; i++)
        constraint_free(&r->grammar->choices[i]);
    if (r->grammar)
        compiled_release(r->grammar->compiled);
    free(r->grammar);
    free(r->choices[0].row_scratch); /* where all choices' begin */
    sampling_free(&r->sampling);
    request_spec_free(r->spec);
    free(r->mail.late_prediction);
    free(r->hashes);
    free(r->counts_memory);
    free(r);
}

int request_take_grammar(struct request *r, struct compiled *compiled, struct quire_error *err)
{
    r->grammar = calloc(1, sizeof *r->grammar + r->spec->n * sizeof r->grammar->choices[0]);
    if (!r->grammar) {
        compiled_release(compiled);
        return quire_fail(err, QUIRE_NO_MEMORY, "request: out of memory");
    }
    r->grammar->compiled = compiled;
    return QUIRE_OK;
}

void request_constrain(struct request *r, const struct engine_grammars *grammars)
{
    for (uint32_t i = 0; i < r->spec->n; i++)
        r->grammar->choices[i] = (struct constraint){.grammars = grammars,
                                                     .grammar = compiled_grammar(r->grammar->compiled)};
}

void request_take_prediction(struct request *r)
{
    r->spec->prediction = r->mail.late_prediction;
    r->spec->n_prediction = r->mail.n_late_prediction;
    r->mail.late_prediction = NULL;
}

struct token_counts *request_counts(struct request *r, uint32_t choice)
{
    struct token_counts *counts = &r->choices[choice].counts;
    if (counts->n == 0 && r->n_prompt_counts) {
        memcpy(counts->items, r->counts_memory, r->n_prompt_counts * sizeof *counts->items);
        counts->n = r->n_prompt_counts;
    }
    return counts;
}
