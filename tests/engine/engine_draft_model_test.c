/* A draft model: every answer keeps its bits for any draft model. A model that drafts for itself is always right,
 * also with sampling. Its memory equals the plan. */
#include "tests/engine/fixtures/step_options.h"
#include "tests/engine/fixtures/client.h"
#include "engine/engine.h"
#include "engine/info.h"
#include "engine/model/describe.h"
#include "kernels/backend.h"
#include "kernels/open.h"
#include "tests/engine/fixtures/described.h"
#include "tests/engine/fixtures/tiny_model.h"

#include "engine/model/draft.h"
#include "engine/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/isolated_tests.h"

#include "tests/sample_tests.h"

#ifdef TEST_DEVICE /* emulated: each token takes milliseconds */
#define N_REQUESTS 5u
#define MORE 0
#else
#define N_REQUESTS 12u
#define MORE 1
#endif
#define N_PROMPT 40u

static struct tiny_model model, other;

static struct engine_options options(const char *draft, uint32_t n_tokens)
{
    struct engine_options o;
    engine_options_default(&o);
    o.steps = client_steps();
#ifdef TEST_DEVICE
    o.device = TEST_DEVICE;
#endif
    o.n_threads = 1;
    o.num_kv_blocks = 400;
    o.block_size = 8;
    o.max_model_len = 128;
    o.max_num_seqs = 8;
    o.max_num_batched_tokens = 64;
    if (draft) {
        o.steps->speculative.method = DRAFT_MODEL;
        o.steps->speculative.adaptive = false;
        o.steps->speculative.num_speculative_tokens = n_tokens;
        snprintf(o.steps->speculative.model, sizeof o.steps->speculative.model, "%s", draft);
    }
    return o;
}

/* Greedy and sampled, with choices, stops, logprobs and two prompts in common. */
static struct request_spec request_number(uint32_t i, const uint32_t *prompt)
{
    static const uint32_t stops[] = {3, 11, 40};
    struct request_spec r = client_varied_request(i, prompt, N_PROMPT - i % 3);
    r.max_drafts = 64;
    if (i % 2) {
        r.stop_token_ids = stops;
        r.n_stop_token_ids = 3;
    }
    return r;
}

static void ask_all(struct client *c, struct answer **answers)
{
    static uint32_t prompts[2][N_PROMPT];
    for (uint32_t i = 0; i < 2; i++)
        client_random_prompt(prompts[i], N_PROMPT, TINY_VOCAB, 7 + i);
    client_pause(c); /* so that all of them are there when the engine goes on, however slowly they come */
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        struct request_spec r = request_number(i, prompts[i % 2]);
        answers[i] = client_submit(c, &r);
        if (i == 0)
            client_wait_paused(c);
    }
    client_resume(c);
    for (uint32_t i = 0; i < N_REQUESTS; i++)
        client_wait(c, answers[i]);
}

/* The same requests with and without; returns what became of the guesses. */
static struct engine_stats compare(struct engine_options plain, struct engine_options drafted)
{
    struct answer *a[N_REQUESTS], *b[N_REQUESTS];
    struct client *first = client_open(model.dir, &plain), *second = client_open(model.dir, &drafted);
    ask_all(first, a);
    ask_all(second, b);
    for (uint32_t i = 0; i < N_REQUESTS; i++)
        assert_true(answers_equal(a[i], b[i]));
    struct engine_stats stats = client_idle_stats(second);
    assert_int_equal(stats.n_blocks_leaked, 0);
    client_close(first);
    client_close(second);
    return stats;
}

static void test_bits_stay(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {4, 1, 17};
    for (uint32_t i = 0; i < 1 + 2 * MORE; i++) {
        struct engine_stats s = compare(options(NULL, 0), options(other.dir, lengths[i]));
        assert_true(s.n_draft_tokens > 100 && s.n_accepted_tokens < s.n_draft_tokens);
        assert_true(s.draft_seconds > 0);
    }
}

/* Its own weights: every guess that was verified was right, in sampled answers too. A chunk cuts each prompt. */
static void test_itself_is_right(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {4, 1, 17};
    for (uint32_t i = 0; i < 1 + 2 * MORE; i++) {
        struct engine_stats s = compare(options(NULL, 0), options(model.dir, lengths[i]));
        assert_true(s.n_draft_tokens > 100);
        assert_int_equal(s.n_accepted_tokens, s.n_draft_tokens);
    }
}

/* Too few blocks for all, and a host tier: sequences leave and come back, what the draft model had computed with them. */
static void test_preempted(void **state)
{
    (void)state;
    for (uint32_t swap = !MORE; swap < 2; swap++) {
        struct engine_options o = options(model.dir, 5), plain = options(NULL, 0);
        o.num_kv_blocks = 26;
        o.swap_space = swap ? 1 << 20 : 0;
        struct engine_stats s = compare(plain, o);
        assert_true(s.n_preemptions > 0 && s.n_draft_tokens > 60);
        assert_true((s.n_swapped_in > 0) == (swap > 0));
        assert_int_equal(s.n_accepted_tokens, s.n_draft_tokens);
    }
}

/* A prompt that was computed for a request without drafts, whose blocks the draft model never saw; then again for
 * requests with drafts, which share it and each other's blocks; then one that finds the blocks of those. All drafts
 * are right in each case. */
static void test_prefixes(void **state)
{
    (void)state;
    struct engine_options o = options(model.dir, 6);
    struct client *c = client_open(model.dir, &o);
    struct answer *answers[6];
    uint32_t prompt[100];
    client_random_prompt(prompt, 100, TINY_VOCAB, 9);
    for (uint32_t i = 0; i < 6; i++) {
        struct request_spec r = client_request(prompt, i < 4 ? 90 : 100, 24);
        r.n = i == 2 ? 3 : 1;
        r.ignore_eos = true;
        r.temperature = 1;
        r.has_seed = true;
        r.max_drafts = i == 0 ? 0 : 64;
        answers[i] = client_submit(c, &r);
        if (i == 0 || i >= 3)
            for (uint32_t j = i == 3 ? 1 : i; j <= i; j++)
                client_wait(c, answers[j]);
    }
    for (uint32_t i = 1; i < 6; i++)
        assert_true(answers[i]->choices[0].n_cached >= 80);
    assert_true(answers_equal(answers[0], answers[1]) && answers_equal(answers[0], answers[3]));
    assert_true(answers_equal(answers[4], answers[5]));
    struct engine_stats s = client_idle_stats(c);
    assert_true(s.n_draft_tokens > 80);
    assert_int_equal(s.n_accepted_tokens, s.n_draft_tokens);
    client_close(c);
}

/* The same by way of the host tier: what comes back from it is what went there, and so is the count. */
static void test_host_tier(void **state)
{
    (void)state;
    struct engine_options o = options(model.dir, 6);
    o.num_kv_blocks = 20;
    o.swap_space = 1 << 20;
    struct client *c = client_open(model.dir, &o);
    uint32_t prompts[2][100], n_loaded = 0;
    for (uint32_t i = 0; i < 2; i++)
        client_random_prompt(prompts[i], 100, TINY_VOCAB, 20 + i);
    for (uint32_t i = 0; i < 6; i++) { /* each drives the other out */
        struct request_spec r = client_request(prompts[i % 2], 100, 20);
        r.ignore_eos = true;
        r.max_drafts = i == 0 ? 0 : 64;
        n_loaded += client_ask(c, &r)->choices[0].account.n_loaded;
    }
    struct engine_stats s = client_idle_stats(c);
    assert_true(n_loaded > 100 && s.n_draft_tokens > 50);
    assert_int_equal(s.n_accepted_tokens, s.n_draft_tokens);
    client_close(c);
}

/* Penalties do not count guesses, so later guesses may be wrong; the first of each row never is, whatever was thrown away
 * before it. */
static void guess_wrong(bool adaptive, struct engine_stats *stats)
{
    struct engine_options plain = options(NULL, 0), o = options(model.dir, 9);
    o.steps->speculative.adaptive = adaptive;
    struct client *a = client_open(model.dir, &plain), *b = client_open(model.dir, &o);
    uint32_t prompt[N_PROMPT];
    for (uint32_t i = 0; i < 4; i++) {
        client_random_prompt(prompt, N_PROMPT, TINY_VOCAB, i);
        struct request_spec r = client_request(prompt, N_PROMPT, 70);
        r.ignore_eos = true;
        r.frequency_penalty = 1.5f;
        r.temperature = i % 2 ? 0.5f : 0;
        r.has_seed = true;
        assert_true(answers_equal(client_ask(a, &r), client_ask(b, &r)));
    }
    *stats = client_idle_stats(b);
    client_close(a);
    client_close(b);
}

static void test_after_wrong_guesses(void **state)
{
    (void)state;
    struct engine_stats s;
    guess_wrong(false, &s);
    assert_true(s.n_drafts > 30 && s.n_accepted_tokens + 20 < s.n_draft_tokens);
    assert_int_equal(s.accepted_at[0], s.n_drafts);
    if (!MORE)
        return;
    guess_wrong(true, &s); /* and after pauses, as many as there may be */
    assert_int_equal(s.accepted_at[0], s.n_drafts);
}

/* Cancelled in the middle: the other requests get drafts as before. */
static void test_cancelled(void **state)
{
    (void)state;
    struct engine_options o = options(model.dir, 3);
    struct client *c = client_open(model.dir, &o);
    struct answer *answers[8];
    uint32_t prompt[30];
    for (uint32_t i = 0; i < 8; i++) {
        client_random_prompt(prompt, 30, TINY_VOCAB, i / 2);
        struct request_spec r = client_request(prompt, 30, 90);
        r.ignore_eos = true;
        answers[i] = client_submit(c, &r);
    }
    client_wait_tokens(c, answers[0], 3);
    for (uint32_t i = 0; i < 8; i += 2)
        engine_cancel(client_engine(c), answers[i]->id);
    for (uint32_t i = 0; i < 8; i++)
        client_wait(c, answers[i]);
    struct engine_stats s = client_idle_stats(c);
    assert_int_equal(s.n_blocks_leaked, 0);
    assert_true(s.n_draft_tokens > 200);
    assert_int_equal(s.n_accepted_tokens, s.n_draft_tokens);
    client_close(c);
}

/* Vocabularies of one tokenizer that are padded to another size, either way, with lists and masks of the request's that
 * the draft model has no logits for, and tokens that it has no embedding for. */
static void test_padded_vocabulary(void **state)
{
    (void)state;
    static const char tokens[] = "{\"model\":{\"vocab\":{\"a\":0,\"b\":1}},\"added_tokens\":[]}";
    static const uint32_t sizes[] = {150, 264};
    static uint32_t allowed[TINY_VOCAB];
    struct tiny_model large, drafts;
    uint32_t prompt[N_PROMPT];
    tiny_model_write(&(struct tiny_spec){.seed = 5, .nan_token = -1, .prefix = "model.", .tokenizer = tokens}, &large);
    for (uint32_t i = 0; i < TINY_VOCAB; i++)
        allowed[i] = i;
    client_random_prompt(prompt, N_PROMPT, TINY_VOCAB, 3);
    for (uint32_t i = 0; i < 2; i++) {
        tiny_model_write(
            &(struct tiny_spec){
                .seed = 5, .nan_token = -1, .prefix = "model.", .n_vocab = sizes[i], .tokenizer = tokens},
            &drafts);
        struct engine_options plain = options(NULL, 0), o = options(drafts.dir, 4);
        struct client *a = client_open(large.dir, &plain), *b = client_open(large.dir, &o);
        for (uint32_t k = 0; k < 3; k++) {
            const struct request_bias bias = {.id = TINY_VOCAB - 1, .bias = 1};
            struct request_spec r = client_request(prompt, N_PROMPT, 40);
            r.temperature = k ? 1 : 0;
            r.has_seed = true;
            r.repetition_penalty = k == 2 ? 1.2f : 1;
            r.biases = &bias;
            r.n_biases = 1;
            r.allowed_token_ids = k == 1 ? allowed : NULL;
            r.n_allowed_token_ids = k == 1 ? TINY_VOCAB : 0;
            struct answer *x = client_ask(a, &r), *y = client_ask(b, &r);
            assert_true(answers_equal(x, y));
        }
        assert_true(client_idle_stats(b).n_draft_tokens > 20);
        client_close(a);
        client_close(b);
        tiny_model_remove(&drafts);
    }
    tiny_model_remove(&large);
}

/* ---- what it takes --------------------------------------------------------------------------- */

#ifndef TEST_OVERLAP /* which has a k_backend_open() of its own */
static struct k_backend_ops counted_ops;
static const struct k_backend_ops *real_ops;
static uint64_t n_allocated;

static int counted_alloc(struct k_backend *b, uint64_t bytes, void **dev, struct quire_error *err)
{
    n_allocated += bytes;
    return real_ops->alloc(b, bytes, dev, err);
}

int __real_k_backend_open(const struct k_backend_options *o, struct k_backend **out, const char **why,
                          struct quire_error *err);
int __wrap_k_backend_open(const struct k_backend_options *o, struct k_backend **out, const char **why,
                          struct quire_error *err);

int __wrap_k_backend_open(const struct k_backend_options *o, struct k_backend **out, const char **why,
                          struct quire_error *err)
{
    int status = __real_k_backend_open(o, out, why, err);
    if (status != QUIRE_OK)
        return status;
    real_ops = (*out)->ops;
    counted_ops = *real_ops;
    counted_ops.alloc = counted_alloc;
    (*out)->ops = &counted_ops;
    n_allocated = 0;
    return QUIRE_OK;
}
#endif

/* 2 layers of one KV head of 16 in f32 for a block of 8; f32 parts beside the tensors; 17 guesses touch 3 blocks. */
static void test_planned_to_the_byte(void **state)
{
    (void)state;
    struct engine_options plain = options(NULL, 0), o = options(other.dir, 17);
    struct client *a = client_open(model.dir, &plain), *b = client_open(model.dir, &o);
#ifndef TEST_OVERLAP
    const uint64_t n_bytes = n_allocated;
#endif
    const struct engine_plan *without = engine_info(client_engine(a))->plan, *p = engine_info(client_engine(b))->plan;
    uint64_t block = 2 * 2 * 16 * 4 * 8, kv = 400 * block, guessed = 8 * 3 * block;
    assert_int_equal(p->n_kv_groups, 1);
    assert_int_equal(engine_plan_n_groups(p), 2);
    assert_int_equal(p->groups[1].n_blocks, 400);
    assert_int_equal(p->groups[1].block_bytes, block);
    assert_int_equal(p->bytes[PLAN_KV], without->bytes[PLAN_KV] + kv);
    assert_int_equal(p->bytes[PLAN_DRAFT_WEIGHTS], p->bytes[PLAN_WEIGHTS]);
    assert_int_equal(without->bytes[PLAN_DRAFT_WEIGHTS] + without->bytes[PLAN_DRAFT_MODEL], 0);
    /* The same shape as the model's, but for logits of its 8 sequences instead of 64 rows. */
    uint64_t buffers = p->bytes[PLAN_PARAMS] + p->bytes[PLAN_ACTIVATIONS] + p->bytes[PLAN_LOGITS] +
                       p->bytes[PLAN_WORKSPACE];
    uint64_t fewer_logits = 56 * (TINY_VOCAB * 4 + 4);
    assert_in_range(p->bytes[PLAN_DRAFT_MODEL],
                    guessed + buffers - fewer_logits - p->bytes[PLAN_WORKSPACE] - 56 * (4 + 16 + 32 * 4),
                    guessed + buffers - fewer_logits);
#ifndef TEST_OVERLAP
    assert_int_equal(n_bytes, engine_plan_total_bytes(p) - p->bytes[PLAN_DRAFTS]);
#endif
    assert_int_equal(engine_plan_total_bytes(p) - engine_plan_total_bytes(without),
                     kv + p->bytes[PLAN_DRAFT_MODEL] + p->bytes[PLAN_DRAFTS] - without->bytes[PLAN_DRAFTS]);
    client_close(a);
    client_close(b);
}

static void refused(struct engine_options o, const char *says)
{
    struct quire_error err;
    struct client *c = client_try_open(model.dir, &o, &err);
    if (c)
        fail_msg("opened, and should say: %s", says);
    if (!strstr(err.text, says))
        fail_msg("says: %s", err.text);
}

static void test_refused(void **state)
{
    (void)state;
    struct tiny_model small;
    struct engine_options o = options("/nowhere/at/all", 4);
    refused(o, "--speculative-config: model: ");
    tiny_model_write(&(struct tiny_spec){.seed = 7, .nan_token = -1, .prefix = "model.", .omit = "lm_head.weight"},
                     &small);
    refused(options(small.dir, 4), "lm_head.weight");
    tiny_model_remove(&small);
    tiny_model_write(&(struct tiny_spec){.seed = 7, .nan_token = -1, .prefix = "model.", .n_vocab = 201}, &small);
    refused(options(small.dir, 4), "another vocabulary: 201 tokens, the model has 200");
    tiny_model_remove(&small);
}

/* A group of its own beside the model's: four in all. */
static void test_too_many_groups(void **state)
{
    (void)state;
    static struct described small, large;
    struct model_config *config;
    struct sampling_defaults ignored;
    struct engine_plan plan;
    struct quire_error err;
    struct engine_options o = options(NULL, 0);
    const struct engine_draft draft = {.desc = &small.desc, .n_tokens = 4};
    o.device = "cpu";
    assert_int_equal(model_describe(model.dir, &config, &ignored, &err), QUIRE_OK);
    described_take(config, &small);
    large = small;
    large.config.n_layers = 4;
    described_layers(&large, NORM_PRE, HEAD_NORM_NONE, *described_attention(&small, 0), 64);
    for (uint32_t l = 1; l < 4; l++) {
        model_set_window(&large.config, l, 10 * l);
        int status = engine_plan_make_on(&o, &large.desc, 0, &draft, NULL, &plan, &err);
        assert_int_equal(status, l < 3 ? QUIRE_OK : QUIRE_UNSUPPORTED);
    }
    assert_non_null(strstr(err.text, "--speculative-config: model: "));
    assert_non_null(strstr(err.text, "at most 4 in all"));
}

static void test_tokens(void **state)
{
    (void)state;
    static const struct {
        const char *draft, *model, *says; /* NULL: they are the same */
    } cases[] = {
        {"{\"model\":{\"vocab\":{\"a\":0,\"b\":1}}}", "{\"model\":{\"vocab\":{\"b\":1,\"a\":0}}}", NULL},
        {"{\"model\":{\"vocab\":{\"a\":0,\"b\":1}}}", "{\"model\":{\"vocab\":{\"b\":0,\"a\":1}}}", "'a' is 0, and 1"},
        {"{\"model\":{\"vocab\":{\"a\":0}}}", "{\"model\":{\"vocab\":{\"a\":0,\"b\":1}}}",
         "has 1 tokens, the model's has 2"},
        {"{\"model\":{\"vocab\":[[\"a\",0.5],[\"b\",0]]}}", "{\"model\":{\"vocab\":[[\"a\",0],[\"b\",1]]}}", NULL},
        {"{\"model\":{\"vocab\":[[\"a\",0],[\"b\",0]]}}", "{\"model\":{\"vocab\":[[\"a\",0],[\"c\",0]]}}",
         "token 1 is 'b', and 'c'"},
        {"{\"model\":{\"vocab\":[]}}", "{\"model\":{\"vocab\":{}}}", "different kinds"},
        {"{\"model\":{\"vocab\":{}},\"added_tokens\":[{\"id\":5,\"content\":\"<s>\"}]}",
         "{\"model\":{\"vocab\":{}},\"added_tokens\":[{\"id\":5,\"content\":\"</s>\"}]}",
         "token 5 is '<s>', and '</s>'"},
        {"{\"model\":{\"vocab\":{}},\"added_tokens\":[{\"id\":5,\"content\":\"<s>\"}]}", "{\"model\":{\"vocab\":{}}}",
         NULL},
        /* As a GGUF file has it: what is added counts, too, and padding may. */
        {"{\"model\":{\"vocab\":{\"a\":0,\"<s>\":1,\"[PAD2]\":2}},\"added_tokens\":[{\"id\":1,\"content\":\"<s>\"}]}",
         "{\"model\":{\"vocab\":{\"a\":0}},\"added_tokens\":[{\"id\":1,\"content\":\"<s>\"}]}", NULL},
        {"{\"model\":{\"vocab\":{\"a\":0}}}", "{\"model\":{\"vocab\":{\"a\":0,\"[PAD1]\":1,\"[PAD2]\":2}}}", NULL},
        {"{\"model\":{\"vocab\":{\"a\":0}}}", "{\"model\":{\"vocab\":{\"a\":0,\"[PAD1]\":2}}}",
         "has 1 tokens, the model's has 2"},
        {"{\"model\":{\"vocab\":{\"a\":0,\"b\":1}},\"added_tokens\":[{\"id\":2,\"content\":\"b\"}]}",
         "{\"model\":{\"vocab\":{\"a\":0}}}", "has 2 tokens, the model's has 1"},
        {"{\"model\":{\"vocab\":{\"a\":0,\"b\":1}}}", "{\"model\":{\"vocab\":{\"a\":0,\"c\":1}}}",
         "has 2 tokens, the model's has 2"},
        {"{\"model\":{\"vocab\":{\"a\":0,\"<s>\":1}},\"added_tokens\":[{\"id\":1,\"content\":\"<s>\"}]}",
         "{\"model\":{\"vocab\":{\"a\":0}},\"added_tokens\":[{\"id\":1,\"content\":\"</s>\"}]}",
         "token 1 is '<s>', and '</s>'"},
        {"{\"model\":{\"vocab\":[[\"a\",0],[\"[PAD1]\",0]]}}", "{\"model\":{\"vocab\":[[\"a\",0]]}}", NULL},
        {"{\"model\":{\"vocab\":[[\"a\",0]]}}", "{\"model\":{\"vocab\":[[\"a\",0],[\"b\",0]]}}",
         "has 1 tokens, the model's has 2"},
        {"{", "{}", "tokenizer.json"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct quire_error err = {.text = ""};
        int status = model_same_tokens(cases[i].draft, strlen(cases[i].draft), cases[i].model, strlen(cases[i].model),
                                       &err);
        assert_int_equal(status == QUIRE_OK, cases[i].says == NULL);
        if (cases[i].says && !strstr(err.text, cases[i].says))
            fail_msg("%zu: %s", i, err.text);
    }
}

int main(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_stay),           cmocka_unit_test(test_itself_is_right),
        cmocka_unit_test(test_preempted),           cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_cancelled),           cmocka_unit_test(test_host_tier),
        cmocka_unit_test(test_after_wrong_guesses), cmocka_unit_test(test_padded_vocabulary),
        cmocka_unit_test(test_planned_to_the_byte), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_too_many_groups),     cmocka_unit_test(test_tokens),
    };
    tiny_model_plain(5, &model);
    tiny_model_plain(6, &other);
#ifdef TEST_EMULATED /* they run completely as engine_draft_model_test and its emulated copy */
    sample_tests(tests, sizeof tests / sizeof *tests, 2);
#endif
    int failed = RUN_ISOLATED(tests, NULL, NULL);
    tiny_model_remove(&model);
    tiny_model_remove(&other);
    return failed;
}
