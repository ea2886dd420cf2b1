/* A model that guesses for another: every answer keeps its bits, whoever guesses; a model that guesses for itself is
 * always right, also where answers are sampled; and what it takes is what was planned. */
#include "client.h"
#include "tiny_model.h"

#include "engine/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_REQUESTS 12u
#define N_PROMPT 40u

static struct tiny_model model, other;

static struct engine_options options(const char *draft, uint32_t n_tokens)
{
    struct engine_options o;
    engine_options_default(&o);
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
        o.speculative.method = DRAFT_MODEL;
        o.speculative.adaptive = false;
        o.speculative.num_speculative_tokens = n_tokens;
        snprintf(o.speculative.model, sizeof o.speculative.model, "%s", draft);
    }
    return o;
}

/* Greedy and sampled, with choices, stops, logprobs and two prompts in common. */
static struct request_spec request_number(uint32_t i, const uint32_t *prompt)
{
    static const uint32_t stops[] = {3, 11, 40};
    struct request_spec r = client_request(prompt, N_PROMPT - i % 3, 30 + i);
    r.n = i % 4 == 1 ? 3 : 1;
    r.temperature = i % 3 ? 1.2f : 0;
    r.has_seed = true;
    r.seed = i;
    r.top_p = i % 5 == 2 ? 0.8f : 1;
    r.n_logprobs = (int32_t)(i % 4);
    r.n_prompt_logprobs = i % 6 == 3 ? 1 : -1;
    r.ignore_eos = true;
    r.min_tokens = i % 6 == 4 ? 12 : 0;
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
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        struct request_spec r = request_number(i, prompts[i % 2]);
        answers[i] = client_submit(c, &r);
    }
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
    static const uint32_t lengths[] = {1, 4, 17};
    for (uint32_t i = 0; i < 3; i++) {
        struct engine_stats s = compare(options(NULL, 0), options(other.dir, lengths[i]));
        assert_true(s.n_draft_tokens > 100 && s.n_accepted_tokens < s.n_draft_tokens);
        assert_true(s.draft_seconds > 0);
    }
}

/* Its own weights: every guess that was verified was right, in sampled answers too. A chunk cuts each prompt. */
static void test_itself_is_right(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {1, 4, 17};
    for (uint32_t i = 0; i < 3; i++) {
        struct engine_stats s = compare(options(NULL, 0), options(model.dir, lengths[i]));
        assert_true(s.n_draft_tokens > 200);
        assert_int_equal(s.n_accepted_tokens, s.n_draft_tokens);
    }
}

/* Too few blocks for all, and a host tier: sequences leave and come back, what the draft model had computed with them. */
static void test_preempted(void **state)
{
    (void)state;
    for (uint32_t swap = 0; swap < 2; swap++) {
        struct engine_options o = options(model.dir, 5), plain = options(NULL, 0);
        o.num_kv_blocks = 26;
        o.swap_space = swap ? 1 << 20 : 0;
        struct engine_stats s = compare(plain, o);
        assert_true(s.n_preemptions > 0 && s.n_draft_tokens > 100);
        assert_true((s.n_swapped_in > 0) == (swap > 0));
        assert_int_equal(s.n_accepted_tokens, s.n_draft_tokens);
    }
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
    assert_int_equal(p->kv_bytes, without->kv_bytes + kv);
    assert_int_equal(p->draft_weight_bytes, p->weight_bytes);
    assert_int_equal(without->draft_weight_bytes + without->draft_model_bytes, 0);
    /* The same shape as the model's, but for logits of its 8 sequences instead of 64 rows. */
    uint64_t buffers = p->param_bytes + p->activation_bytes + p->logits_bytes + p->workspace_bytes;
    uint64_t fewer_logits = 56 * (TINY_VOCAB * 4 + 4);
    assert_in_range(p->draft_model_bytes,
                    guessed + buffers - fewer_logits - p->workspace_bytes - 56 * (4 + 16 + 32 * 4),
                    guessed + buffers - fewer_logits);
#ifndef TEST_OVERLAP
    assert_int_equal(n_bytes, p->total_bytes - p->draft_bytes);
#endif
    assert_int_equal(p->total_bytes - without->total_bytes,
                     kv + p->draft_model_bytes + p->draft_bytes - without->draft_bytes);
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
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_stay), cmocka_unit_test(test_itself_is_right),
        cmocka_unit_test(test_preempted), cmocka_unit_test(test_planned_to_the_byte),
        cmocka_unit_test(test_refused),
    };
    tiny_model_write(&(struct tiny_spec){.seed = 5, .nan_token = -1, .prefix = "model."}, &model);
    tiny_model_write(&(struct tiny_spec){.seed = 6, .nan_token = -1, .prefix = "model."}, &other);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tiny_model_remove(&model);
    tiny_model_remove(&other);
    return failed;
}
