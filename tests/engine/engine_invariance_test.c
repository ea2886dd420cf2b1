/* Strict invariance: a request's tokens and logprobs have the same bits whatever else is served and however it is
 * computed. For each model, 28 requests are answered one at a time in one way. Then every way in the table below
 * must give the same bits: alone or all at once, small chunks or one, prefix hit, miss or no cache, a pool so small
 * that sequences are preempted and swapped, other block sizes, other numbers of threads, batches of every kind,
 * every scheduling policy, and every kind, source and length of drafts. */
#include "tests/engine/fixtures/step_options.h"
#include "engine/engine.h"
#include "engine/model/describe.h"
#include "tests/engine/fixtures/guesser.h"
#include "tests/engine/fixtures/toy_grammar.h"

#include "memory/kv_cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/isolated_tests.h"

#include "tests/sample_tests.h"

#define MODELS QUIRE_SOURCE_DIR "/tests/goldens/models/"
#define N_PROBES 4u
/* An emulated step takes a second where a CPU's takes a millisecond. */
#ifdef TEST_EMULATED
#define TEST_EVERY 2 /* of the table's ways */
#define N_OTHERS 7u
#define ONE_MODEL_IN 3
#define ONE_IN 3
#define ONE_GUESS_IN 14
#else
#define TEST_EVERY 1
#define N_OTHERS (SAMPLE_IS_FOR_RACES ? 10u : 24u) /* a smaller number shares the same data */
#ifdef TEST_RANKS /* each way is computed by one process, too, to compare with */
#define ONE_MODEL_IN (SAMPLE_IS_SANITIZED ? 8 : 2)
#else
#define ONE_MODEL_IN (SAMPLE_IS_SANITIZED ? 8 : 1)
#endif
#define ONE_IN (SAMPLE_IS_FOR_RACES ? 12 : SAMPLE_IS_SANITIZED ? 6 : 3)
#define ONE_GUESS_IN (SAMPLE_IS_SANITIZED ? 24 : 12)
#endif
static struct sample models_sample; /* a model's answers to compare with cost more than a way, where steps are slow */
static struct sample sample; /* a sample of their ways; those for growing answers always run */
static struct sample guesses_sample; /* a sample of their ways with drafts */
#define N_REQUESTS (N_PROBES + N_OTHERS)
#define MAX_PROMPT 160u
#define N_TENANTS 3u

/* The source of drafts. */
struct drafting {
    const char *name;
    enum draft_method method;
    bool watch; /* tests/engine/fixtures/guesser.h does, so: */
    enum guesses guesses;
    bool predicts; /* the request itself, nine tokens of ten right */
    bool is_late; /* when it is submitted */
};

struct way {
    const char *name;
    const struct drafting *drafting; /* NULL: no drafts */
    uint32_t k; /* drafts of a row; 0: as many as they are worth, or any number */
    uint32_t budget, block_size, n_threads;
    uint32_t n_kv_blocks; /* starved: beyond what the longest request needs */
    bool prefix_caching;
    bool together; /* all requests at once; else one after the other */
    bool again; /* a second time: now with prefix hits */
    bool starved; /* room for little more than the longest request */
    uint64_t swap_space;
    const char *policy, *batching, *preemption, *eviction; /* NULL: the default */
};

#define SWAP 300000u /* a few dozen blocks of these models */

static const struct way reference = {
    .name = "reference", .budget = 512, .block_size = 16, .n_threads = 1, .n_kv_blocks = 400};
#define WAY(n, b, bs, t, kv, ...) \
    {.name = n, .budget = b, .block_size = bs, .n_threads = t, .n_kv_blocks = kv, __VA_ARGS__}
#define CACHE .prefix_caching = true
#define TOGETHER .together = true
#define AGAIN .again = true
#define STARVED .together = true, .starved = true
static const struct way ways[] = {
    WAY("chunks of 16, together", 16, 16, 1, 400, TOGETHER),
    WAY("all in one step", 512, 16, 2, 400, TOGETHER), /* which stages compute in micro-batches */
    WAY("chunks of 48, blocks of 8, 2 threads, miss and hit", 48, 8, 2, 800, CACHE, TOGETHER, AGAIN),
    WAY("blocks of 32, alone, miss and hit", 512, 32, 1, 200, CACHE, AGAIN),
    WAY("starved, chunks of 48", 48, 16, 1, 2, STARVED),
    WAY("starved, chunks of 16, blocks of 8, 3 threads, cache", 16, 8, 3, 4, CACHE, STARVED),
    WAY("starved, chunks of 64, blocks of 8, 2 threads, cache", 64, 8, 2, 0, CACHE, STARVED),
    WAY("chunks of 16, blocks of 32, alone", 16, 32, 1, 200, .together = false),
    WAY("starved, swap", 48, 8, 1, 4, CACHE, STARVED, AGAIN, .swap_space = SWAP, .preemption = "swap"),
    WAY("starved, a swap space of a few blocks, 2 threads", 16, 16, 2, 2, CACHE, STARVED, AGAIN, .swap_space = 50000),
    WAY("starved, swap for prefixes, cached blocks by reuse", 64, 8, 1, 3, CACHE, STARVED, AGAIN, .swap_space = SWAP,
        .preemption = "recompute", .eviction = "reuse"),
    WAY("starved, nobody preempted", 48, 16, 1, 8, STARVED, .preemption = "never"),
    WAY("dynamic batches", 64, 16, 1, 400, CACHE, TOGETHER, AGAIN, .batching = "dynamic"),
    WAY("static batches, starved, swap", 64, 8, 1, 4, CACHE, STARVED, AGAIN, .swap_space = SWAP, .batching = "static"),
};

/* For what grows. */
static const struct way growing_ways[] = {
    WAY("growing, recompute", 16, 8, 1, 1, STARVED, .preemption = "recompute"),
    WAY("growing, swap", 16, 8, 2, 1, CACHE, STARVED, .swap_space = SWAP, .preemption = "swap"),
};

static const struct drafting draftings[] = {
    {.name = "always right", .watch = true, .guesses = GUESSES_RIGHT},
    {.name = "lies", .watch = true, .guesses = GUESSES_AT_RANDOM},
    {.name = "right for a while", .watch = true, .guesses = GUESSES_MIXED},
    {.name = "prediction", .predicts = true},
    {.name = "late prediction", .predicts = true, .is_late = true},
    {.name = "n-gram", .method = DRAFT_NGRAM},
    {.name = "suffix", .method = DRAFT_SUFFIX},
    {.name = "draft model", .method = DRAFT_MODEL}, /* the model itself */
};
static const uint32_t draft_numbers[] = {1, 4, 8, 0};

struct model {
    const char *name, *form;
    uint32_t n_vocab;
    uint32_t window; /* window of all layers; 0: some layers have no window */
    uint32_t attention_window, sinks; /* options of the engine */
    const char *activations, *cache; /* NULL: the default */
    const char *quantization; /* NULL, or the format that the weights are quantized to when they are loaded */
    bool no_policies; /* another model of the same form was scheduled by all of them */
};

struct workload {
    uint32_t n, max_model_len;
    uint32_t prompts[N_REQUESTS][MAX_PROMPT];
    struct request_spec requests[N_REQUESTS];
};

static const struct request_bias biases[] = {{7, -100}, {11, 2.5f}, {90, 1}};
static const uint32_t stop_ids[] = {3, 5};

/* Few tokens, and a third of their pairs forbidden, so that a row depends on the token before. */
static void restrict_to_some(struct request_spec *s)
{
    static uint32_t few[9], pairs[27 * 3];
    uint32_t n = 0;
    for (uint32_t i = 0; i < 9; i++)
        few[i] = 20 + i;
    for (uint32_t a = 0; a < 9; a++)
        for (uint32_t b = a % 3; b < 9; b += 3)
            pairs[n] = 2, pairs[n + 1] = few[a], pairs[n + 2] = few[b], n += 3;
    s->allowed_token_ids = few;
    s->n_allowed_token_ids = 9;
    s->bad_words = pairs;
    s->n_bad_words = n;
}

/* Forced tokens, then choices between few and many, in a loop that may end after each round. */
static struct toy_grammars toys;
static struct engine_grammars grammars;
static void restrict_by_grammar(struct request_spec *s)
{
    static const char text[] = "!20-20>1;21-21>2;22-22>3;23-26>4,30-30>5;30-60>0;31-31>6;32-32>4,40-70>0";
    s->grammar = (const uint8_t *)text;
    s->n_grammar = sizeof text - 1;
}

/* Short prompts and long answers: a pool for little more than one of them forces preemption. */
static void make_growing(struct workload *w, uint32_t n_vocab)
{
    *w = (struct workload){.n = 4, .max_model_len = 48};
    for (uint32_t i = 0; i < w->n; i++) {
        client_random_prompt(w->prompts[i], 6, n_vocab, i);
        w->requests[i] = client_request(w->prompts[i], 6, 40);
        struct request_spec *s = &w->requests[i];
        s->n_logprobs = 1;
        s->has_seed = true;
        s->seed = i;
        s->temperature = i % 2 ? 0.9f : 0;
        s->ignore_eos = true;
    }
    restrict_by_grammar(&w->requests[2]);
}

/* Four requests with everything on, and a crowd of all sorts. */
static void make_workload(struct workload *w, uint32_t n_vocab)
{
    static const uint32_t probe_prompts[N_PROBES] = {150, 77, 90, 33};
    *w = (struct workload){.n = N_REQUESTS, .max_model_len = 192};
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        uint32_t n = i < N_PROBES ? probe_prompts[i] : 4 + i * 37 % (i % 4 ? 12 : 52);
        client_random_prompt(w->prompts[i], n, n_vocab, i);
        w->requests[i] = client_request(w->prompts[i], n, i < N_PROBES ? 12 : 8 + i * 11 % 29);
        struct request_spec *s = &w->requests[i];
        s->n_logprobs = (int32_t)(i % 4) - 1;
        s->has_seed = true;
        s->seed = 1000 + i;
        s->temperature = i % 3 ? 0.9f : 0;
        s->top_k = i % 5 ? 0 : 30;
        s->top_p = i % 2 ? 0.95f : 1;
    }
    for (uint32_t i = N_PROBES; i < N_REQUESTS; i += 2)
        w->requests[i].ignore_eos = true;
    memcpy(w->prompts[2], w->prompts[1], 70 * sizeof(uint32_t)); /* 1 and 2 share a prefix */
    memcpy(w->prompts[9], w->prompts[1], 20 * sizeof(uint32_t));

    struct request_spec *greedy = &w->requests[0];
    greedy->temperature = 0;
    greedy->n_logprobs = 5;
    greedy->n_prompt_logprobs = 3;
    w->requests[1].n = 3;
    struct request_spec *several = &w->requests[1];
    several->n_logprobs = 2;
    several->repetition_penalty = 1.2f;
    several->presence_penalty = 0.3f;
    several->frequency_penalty = 0.2f;
    w->requests[2].n_logprobs = 0;
    struct request_spec *biased = &w->requests[3];
    biased->temperature = 1.3f;
    biased->min_p = 0.02f;
    biased->n_logprobs = 20;
    biased->n_prompt_logprobs = 0;
    biased->min_tokens = 4;
    biased->biases = biases;
    biased->n_biases = 3;
    biased->stop_token_ids = stop_ids;
    biased->n_stop_token_ids = 2;
    w->requests[10].n = 2;
    restrict_to_some(&w->requests[5]);
    restrict_to_some(&w->requests[10]);
    restrict_by_grammar(&w->requests[6]);
    restrict_by_grammar(&w->requests[8]);
    w->requests[8].n = 2;
    w->requests[8].repetition_penalty = 1.1f;
    w->requests[9].temperature = 1.4f;
    restrict_by_grammar(&w->requests[9]);
    for (uint32_t i = 0; i < N_REQUESTS; i++) { /* fields that only the scheduler reads */
        struct request_spec *r = &w->requests[i];
        r->priority = (int32_t)(i % 5) - 2;
        r->tenant = i % N_TENANTS;
        r->class_index = i % 4;
        r->deadline_us = i % 2 ? 3600000000u : 0;
        r->expected_tokens = i % 3 * 10;
        r->background = i % 7 == 6;
    }
}

static struct client *open_way(const struct model *model, const struct way *way, uint32_t max_model_len,
                               const struct engine_watch *watch)
{
    char dir[512];
    snprintf(dir, sizeof dir, MODELS "%s", model->name);
    struct engine_options o;
    engine_options_default(&o);
    o.steps = client_steps();
    o.gemm_form = model->form;
    o.activation_dtype = model->activations;
    o.kv_cache_dtype = model->cache;
    o.quantization = model->quantization;
    o.max_num_batched_tokens = way->budget;
    o.block_size = way->block_size;
    o.n_threads = way->n_threads;
    o.num_kv_blocks = way->n_kv_blocks;
    o.prefix_caching = way->prefix_caching;
    o.swap_space = way->swap_space;
    o.steps->scheduling_policy = way->policy;
    o.steps->batching = way->batching;
    o.steps->preemption_mode = way->preemption;
    o.prefix_cache_eviction = way->eviction;
    o.steps->policy_options.n_tenants = N_TENANTS;
    o.max_model_len = max_model_len;
    o.attention_window = model->attention_window;
    o.attention_sinks = model->sinks;
    if (way->drafting)
        o.steps->speculative.method = way->drafting->method;
    o.steps->speculative.max_cached_bytes = 1u << 20;
    if (o.steps->speculative.method == DRAFT_MODEL)
        memcpy(o.steps->speculative.model, dir, sizeof dir);
    if (way->k) {
        o.steps->speculative.num_speculative_tokens = way->k;
        o.steps->speculative.adaptive = false;
    }
    if (way->starved) {
        struct kv_config kv = {.block_tokens = way->block_size, .n_groups = 1};
        kv.groups[0].window = o.steps->speculative.method == DRAFT_MODEL ? 0
                                                                         : model->window; /* its group has no window */
        kv.groups[0].sinks = kv.groups[0].window ? model->sinks : 0;
        o.num_kv_blocks += kv_blocks_needed(&kv, 0, o.max_model_len, way->budget * (TEST_OVERLAP_DEPTH + 1));
    }
#ifdef TEST_RANKS /* against the answers of one process */
    static uint32_t n_opened; /* by ranks of one stage, by stages of one rank, and by both */
    if (way != &reference) {
        struct model_config *config;
        struct sampling_defaults sampling;
        assert_int_equal(model_describe(dir, &config, &sampling, NULL), QUIRE_OK);
        const bool has_stages = n_opened % 3 != 0 && config->n_layers > 1;
        const bool has_experts = model_layer_block(&config->layers[0], BLOCK_EXPERTS) != NULL;
        model_config_free(config);
        o.tensor_parallel_size = n_opened % 3 != 1 || !has_stages ? TEST_RANKS : 1;
        o.pipeline_parallel_size = has_stages ? 2 : 1;
        o.enable_expert_parallel = has_experts && n_opened % 2; /* whole experts, or columns of each */
        n_opened++;
    }
#endif
    toys.n_vocab = model->n_vocab;
    grammars = toy_grammars(&toys);
    o.grammars = &grammars;
    static struct engine_observers observers;
    observers = (struct engine_observers){.watches = &watch, .n_watches = watch != NULL};
    o.observers = &observers;
    return client_open(dir, &o);
}

/* The prediction comes when the request may already run. */
static struct answer *submit_late(struct client *c, struct request_spec r)
{
    const uint32_t n = r.n_prediction;
    r.n_prediction = 0;
    struct answer *a = client_submit(c, &r);
    client_predict(c, a, r.prediction, n);
    return a;
}

static void run(struct client *c, const struct way *way, struct workload *w, struct answer **out)
{
    for (uint32_t i = 0; i < w->n; i++) {
        const bool is_late = way->drafting && way->drafting->is_late;
        out[i] = is_late ? submit_late(c, w->requests[i]) : client_submit(c, &w->requests[i]);
        if (!way->together)
            client_wait(c, out[i]);
    }
    engine_no_more(client_engine(c));
    for (uint32_t i = 0; i < w->n; i++)
        client_wait(c, out[i]);
}

static void compare(const struct model *model, const struct way *way, const struct workload *w, struct answer **got,
                    struct answer **want)
{
    for (uint32_t i = 0; i < w->n; i++)
        if (!answers_equal(got[i], want[i]))
            fail_msg("%s, %s: request %u has other bits than alone", model->name, way->name, i);
}

/* Counts of the rarer memory paths, and of the results of drafts. */
struct seen {
    uint64_t preemptions, swapped_out, swapped_in;
    uint64_t drafts, accepted;
};

/* Predictions of the requests: their first answer with every tenth token changed. */
static void expect_answers(struct workload *w, struct answer **want, const struct drafting *drafting)
{
    static uint32_t expected[N_REQUESTS][64];
    for (uint32_t i = 0; i < w->n; i++) {
        const struct choice_answer *o = &want[i]->choices[0];
        uint32_t n = drafting && drafting->predicts ? o->n_tokens : 0;
        for (uint32_t k = 0; k < n; k++)
            expected[i][k] = k % 10 == 7 ? 1 : o->tokens[k];
        w->requests[i].prediction = expected[i];
        w->requests[i].n_prediction = n;
    }
}

static void check_way(const struct model *model, const struct way *way, struct workload *w, struct answer **want,
                      struct seen *seen)
{
    struct answer *got[N_REQUESTS];
    const struct drafting *d = way->drafting;
    struct guesser *g = d && d->watch ? guesser_new(want, w->n, model->n_vocab, d->guesses, way->k, w->n) : NULL;
    expect_answers(w, want, d);
    struct client *c = open_way(model, way, w->max_model_len, g ? &g->watch : NULL);
    run(c, way, w, got);
    compare(model, way, w, got, want);
    if (way->again) {
        run(c, way, w, got);
        compare(model, way, w, got, want);
        /* Request 2's prompt was seen; prompt logprobs (request 0) take no hits. */
        assert_true(way->starved || got[2]->choices[0].n_cached > 0);
        assert_int_equal(got[0]->choices[0].n_cached, 0);
    }
    struct engine_stats stats = client_idle_stats(c);
    assert_int_equal(stats.n_blocks_leaked, 0);
    client_close(c);
    seen->preemptions += stats.n_preemptions;
    seen->swapped_out += stats.n_swapped_out;
    seen->swapped_in += stats.n_swapped_in;
    seen->drafts += stats.n_draft_tokens;
    seen->accepted += stats.n_accepted_tokens;
    free(g);
}

/* Every kind of guess and number of drafts, each with one of the ways above, another for each model. */
static void check_guesses(const struct model *model, struct workload *w, struct answer **want)
{
    static uint32_t shift;
    const uint32_t n_kinds = sizeof draftings / sizeof draftings[0], n_ways = sizeof ways / sizeof ways[0];
    shift++;
    for (uint32_t i = 0; i < 4 * n_kinds; i++) {
        struct seen seen = {0};
        char name[200];
        struct way way = ways[(i + shift * 5) % n_ways];
        way.drafting = &draftings[i / 4];
        way.k = draft_numbers[i % 4];
        snprintf(name, sizeof name, "%s, drafts: %s, %u of them", way.name, way.drafting->name, way.k);
        way.name = name;
        if (!sample_takes(&guesses_sample))
            continue;
#ifdef TEST_RANKS
        if (way.drafting->method == DRAFT_MODEL) /* computes on one rank, and is refused */
            continue;
#endif
        if (way.drafting->method == DRAFT_MODEL && model->attention_window) /* is refused */
            continue;
        check_way(model, &way, w, want, &seen);
        assert_true(seen.drafts > 0 || way.k == 0); /* one that weighs what drafts are worth may find: nothing */
        if (way.drafting->watch)
            assert_int_equal(seen.accepted > seen.drafts / 8, way.drafting->guesses != GUESSES_AT_RANDOM);
    }
    expect_answers(w, want, NULL);
}

#ifndef TEST_EMULATED
static void check_policies(const struct model *model, struct workload *w, struct answer **want, struct seen *seen)
{
    static const char *const batchings[] = {"continuous", "dynamic", "static"};
    const struct sched_policy *policy;
    for (uint32_t i = 0; (policy = sched_policy_at(i)); i++) {
        for (uint32_t b = 0; b < 3; b++) {
            if (!sample_takes(&sample))
                continue;
            const struct way way = {.name = policy->name,
                                    .budget = 32,
                                    .block_size = 8,
                                    .n_threads = 1,
                                    .n_kv_blocks = 6,
                                    .prefix_caching = true,
                                    .together = true,
                                    .again = true,
                                    .starved = true,
                                    .swap_space = SWAP,
                                    .policy = policy->name,
                                    .batching = batchings[b]};
            check_way(model, &way, w, want, seen);
        }
    }
}
#endif

/* The reference answers must be worth comparing. */
static void check_reference(const struct answer *const *want)
{
    assert_int_equal(want[0]->n_prompt_logprobs, 149);
    assert_int_equal(want[3]->n_prompt_logprobs, 32);
    assert_true(want[0]->choices[0].n_tokens > 1);
    const struct answer *several = want[1];
    assert_false(records_equal(&several->choices[0].record, &several->choices[1].record) &&
                 records_equal(&several->choices[0].record, &several->choices[2].record));
}

static void check_model(const struct model *model)
{
    if (!sample_takes(&models_sample))
        return;
    static struct workload w;
    struct answer *want[N_REQUESTS];
    struct seen seen = {0};
    make_growing(&w, model->n_vocab);
    struct client *c = open_way(model, &reference, w.max_model_len, NULL);
    run(c, &reference, &w, want);
    for (size_t i = 0; i < sizeof growing_ways / sizeof growing_ways[0]; i++)
        check_way(model, &growing_ways[i], &w, want, &seen);
    assert_true(seen.preemptions > 0);
    client_close(c);

    make_workload(&w, model->n_vocab);
    c = open_way(model, &reference, w.max_model_len, NULL);
    run(c, &reference, &w, want);
    check_reference((const struct answer *const *)want);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i += TEST_EVERY)
        if (sample_takes(&sample))
            check_way(model, &ways[i], &w, want, &seen);
    check_guesses(model, &w, want);
#ifndef TEST_EMULATED
    if (!model->no_policies)
        check_policies(model, &w, want, &seen);
#endif
    assert_true(seen.swapped_out > 0);
    assert_true(seen.swapped_in > 0);
    client_close(c);
}

#ifndef TEST_EMULATED
static void qwen2(void **state)
{
    (void)state;
    check_model(&(struct model){.name = "qwen2", .form = "lane", .n_vocab = 320});
}

static void mistral_window(void **state)
{
    (void)state;
    check_model(&(struct model){.name = "mistral", .form = "lane", .n_vocab = 320, .window = 24});
}

/* Attention sinks that end within a block, and a window that most prompts leave behind. */
static void qwen2_sinks(void **state)
{
    (void)state;
    check_model(&(struct model){.name = "qwen2",
                                .form = "lane",
                                .n_vocab = 320,
                                .window = 24,
                                .attention_window = 24,
                                .sinks = 11,
                                .no_policies = true});
}

/* Layers with a window of their own keep it: two KV groups, of which one has sinks. */
static void window_and_sinks(void **state)
{
    (void)state;
    check_model(&(struct model){.name = "qwen2_window",
                                .form = "lane",
                                .n_vocab = 320,
                                .cache = "int8",
                                .attention_window = 40,
                                .sinks = 4,
                                .no_policies = true});
}

static void qwen3(void **state)
{
    (void)state;
    check_model(&(struct model){.name = "qwen3", .form = "lane", .n_vocab = 512});
}

#ifndef TEST_RANKS
static void olmo2(void **state)
{
    (void)state;
    check_model(&(struct model){.name = "olmo2", .form = "lane", .n_vocab = 320});
}

/* Sinks, layers with a window and without one, and biases of experts; most prompts go beyond the window. */
static void gpt_oss(void **state)
{
    (void)state;
    check_model(&(struct model){.name = "gpt_oss", .form = "lane", .n_vocab = 320, .no_policies = true});
}

#endif

static void qwen3_moe(void **state)
{
    (void)state;
    check_model(&(struct model){.name = "qwen3_moe", .form = "lane", .n_vocab = 320});
}

/* Factors of what blocks add, which ranks apply to whole sums, and of logits. */
static void granite(void **state)
{
    (void)state;
    check_model(&(struct model){.name = "granite", .form = "lane", .n_vocab = 320, .no_policies = true});
}

/* Local and global layers, each with a RoPE of its own, and norms around blocks. */
static void gemma3(void **state)
{
    (void)state;
    check_model(&(struct model){.name = "gemma3", .form = "lane", .n_vocab = 320, .no_policies = true});
}

static void two_kv_groups(void **state)
{
    (void)state;
    check_model(&(struct model){.name = "qwen2_window", .form = "lane", .n_vocab = 320});
}
#endif

#ifdef TEST_DEVICE
static void mistral_mma(void **state)
{
    (void)state;
    check_model(&(struct model){.name = "mistral", .form = "mma", .n_vocab = 320, .window = 24});
}

static void two_kv_groups_mma(void **state)
{
    (void)state;
    check_model(&(struct model){.name = "qwen2_window", .form = "mma", .n_vocab = 320});
}

static void qwen3_mma(void **state)
{
    (void)state;
    check_model(&(struct model){.name = "qwen3", .form = "mma", .n_vocab = 512});
}

static void qwen2_moe_mma(void **state)
{
    (void)state;
    check_model(&(struct model){.name = "qwen2_moe", .form = "mma", .n_vocab = 320});
}

/* Attention sinks that end within a block, and a window that most prompts leave behind; another layer keeps its own. */
static void sinks_mma(void **state)
{
    (void)state;
    check_model(&(struct model){.name = "qwen2_window",
                                .form = "mma",
                                .n_vocab = 320,
                                .attention_window = 24,
                                .sinks = 11,
                                .no_policies = true});
}

#ifndef TEST_EMULATED
static void qwen3_f16_mma(void **state)
{
    (void)state;
    check_model(&(struct model){.name = "qwen3_f16", .form = "mma", .n_vocab = 320});
}
#endif
#else
static void qwen3_tile(void **state)
{
    (void)state;
    check_model(&(struct model){.name = "qwen3", .form = "tile", .n_vocab = 512});
}

static void qwen3_f16_tile(void **state)
{
    (void)state;
    check_model(&(struct model){.name = "qwen3_f16", .form = "tile", .n_vocab = 320});
}

static void qwen3_bf16_activations(void **state)
{
    (void)state;
    check_model(&(struct model){.name = "qwen3", .form = "tile", .n_vocab = 512, .activations = "bfloat16"});
}

/* Two KV groups, of which one has a window: blocks with scales are given back, swapped and hit in both. */
static void two_kv_groups_int8(void **state)
{
    (void)state;
    check_model(&(struct model){.name = "qwen2_window", .form = "lane", .n_vocab = 320, .cache = "int8"});
}

static void qwen3_moe_int8(void **state)
{
    (void)state;
    check_model(
        &(struct model){.name = "qwen3_moe", .form = "tile", .n_vocab = 320, .cache = "int8", .no_policies = true});
}

static void gemma3_int8(void **state)
{
    (void)state;
    check_model(
        &(struct model){.name = "gemma3", .form = "tile", .n_vocab = 320, .cache = "int8", .no_policies = true});
}

static void qwen3_fp8(void **state)
{
    (void)state;
    check_model(&(struct model){.name = "qwen3", .form = "tile", .n_vocab = 512, .cache = "fp8"});
}

/* Columns in another order, products by groups. */
static void gptq(void **state)
{
    (void)state;
    check_model(&(struct model){.name = "../quantized/gptq_4_32_order_zeros_v2", .n_vocab = 96, .no_policies = true});
}

/* Activations in int8 with a scale for a token's whole row. */
static void w8a8(void **state)
{
    (void)state;
    check_model(&(struct model){.name = "../quantized/w8a8_dynamic", .n_vocab = 96, .no_policies = true});
}

#ifndef TEST_RANKS
/* Experts in codes with powers of two, in place; sinks and windows. */
static void mxfp4(void **state)
{
    (void)state;
    check_model(&(struct model){.name = "../quantized/mxfp4", .n_vocab = 96, .no_policies = true});
}

static void fp8_blocks(void **state)
{
    (void)state;
    check_model(&(struct model){.name = "../quantized/fp8_block", .n_vocab = 96, .no_policies = true});
}
#endif

/* GGUF's blocks, made when it is loaded, beside matrices that stay as they are. */
static void made_int8(void **state)
{
    (void)state;
    check_model(&(struct model){.name = "qwen2", .n_vocab = 320, .quantization = "int8", .no_policies = true});
}

/* A file's own blocks, rows of q and k put in order. */
static void gguf(void **state)
{
    (void)state;
    check_model(&(struct model){.name = "../gguf/llama/model.gguf", .n_vocab = 96, .no_policies = true});
}

#ifndef TEST_RANKS /* experts are refused */
/* Experts in blocks of three types. */
static void gguf_experts(void **state)
{
    (void)state;
    check_model(&(struct model){.name = "../gguf/qwen3_moe/model.gguf", .n_vocab = 96, .no_policies = true});
}
#endif
#endif

int main(void)
{
#ifdef TEST_RANKS
    if (engine_is_rank())
        return rank_main();
#endif
    struct CMUnitTest tests[] = {
#ifdef TEST_DEVICE
        cmocka_unit_test(mistral_mma),   cmocka_unit_test(two_kv_groups_mma),
        cmocka_unit_test(qwen3_mma),     cmocka_unit_test(qwen2_moe_mma),
        cmocka_unit_test(sinks_mma),
#else
        cmocka_unit_test(qwen3_tile),
        cmocka_unit_test(qwen3_f16_tile),
        cmocka_unit_test(qwen3_bf16_activations),
        cmocka_unit_test(two_kv_groups_int8),
        cmocka_unit_test(qwen3_moe_int8),
        cmocka_unit_test(gemma3_int8),
        cmocka_unit_test(qwen3_fp8),
        cmocka_unit_test(gptq),
        cmocka_unit_test(w8a8),
#ifndef TEST_RANKS /* two ranks have rows of one scale, which is refused */
        cmocka_unit_test(fp8_blocks),
        cmocka_unit_test(mxfp4),
#endif
        cmocka_unit_test(made_int8),
        cmocka_unit_test(gguf),
#ifndef TEST_RANKS
        cmocka_unit_test(gguf_experts),
#endif
#endif
#ifndef TEST_EMULATED /* there the lane form is compared with a CPU's bits, which is enough */
#ifdef TEST_DEVICE
        cmocka_unit_test(qwen3_f16_mma),
#endif
        cmocka_unit_test(qwen2),         cmocka_unit_test(mistral_window),
        cmocka_unit_test(qwen2_sinks),   cmocka_unit_test(window_and_sinks),
        cmocka_unit_test(qwen3),         cmocka_unit_test(two_kv_groups),
        cmocka_unit_test(gemma3),        cmocka_unit_test(granite),
        cmocka_unit_test(qwen3_moe),
#ifndef TEST_RANKS /* it norms over all heads, and is refused */
        cmocka_unit_test(olmo2),         cmocka_unit_test(gpt_oss),
#endif
#endif
    };
#ifndef TEST_RANKS
    sample_overlap(tests, sizeof tests / sizeof *tests);
#endif
    models_sample = sample_of(ONE_MODEL_IN);
    sample = sample_of(ONE_IN);
    guesses_sample = sample_of(ONE_GUESS_IN);
    /* All ways of one model take AddressSanitizer 2 minutes of CPU time, and of two ThreadSanitizer had not done after 9: one finds
     * what formats do wrong, the other what models share. */
    if (SAMPLE_IS_SANITIZED && models_sample.one_in == 1) {
        models_sample.one_in = SAMPLE_IS_FOR_RACES ? 8 : 1;
        sample.one_in = 4;
        guesses_sample.one_in = 12;
    }
    int n_failed = RUN_ISOLATED(tests, NULL, NULL);
    sample_report(&models_sample, "models");
    sample_report(&sample, "ways");
    sample_report(&guesses_sample, "ways with guesses");
    return n_failed;
}
