/* Every frame: round trips, every truncation, every single-byte change, unknown fields, limits. Bodies are decoded
 * from malloc'd copies of their exact size, so that AddressSanitizer finds reads past the end. */
#include "server/wire/decode.h"
#include "server/wire/encode.h"
#include "server/wire/fields.h"
#include "server/wire/frame.h"
#include "tests/wire/samples.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Decodes as `type` from an exact copy. Returns the status and checks the guarantees of every decoder. */
static int decode(uint16_t type, const void *body, size_t n, struct quire_error *err)
{
    uint8_t *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    if (n)
        memcpy(copy, body, n);
    err->text[0] = '\0';
    int status = sample_decode(type, copy, n, err);
    if (status) {
        assert_true(status == QUIRE_INVALID || status == QUIRE_UNSUPPORTED);
        assert_true(err->text[0] != '\0');
    }
    free(copy);
    return status;
}

static uint16_t split(const struct buffer *b, const uint8_t **body, size_t *n)
{
    struct wire_header h;
    struct quire_error err;
    assert_int_equal(wire_header_read(b->data, b->n, &h, &err), 1);
    assert_int_equal(h.body_bytes + WIRE_HEADER_BYTES, b->n);
    *body = (const uint8_t *)b->data + WIRE_HEADER_BYTES;
    *n = h.body_bytes;
    return h.type;
}

/* ---- round trips ---- */

static void test_header(void **state)
{
    (void)state;
    struct buffer b = {0};
    struct wire_header h;
    struct quire_error err;
    assert_int_equal(wire_put_accept(&b, UINT64_C(0x1122334455667788), 0), 0);
    static const uint8_t want[16] = {0, 0, 0, 0, 3, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11};
    assert_int_equal(b.n, 16);
    assert_memory_equal(b.data, want, 16);
    for (size_t n = 0; n < 16; n++)
        assert_int_equal(wire_header_read(b.data, n, &h, &err), 0);
    assert_int_equal(wire_header_read(b.data, 16, &h, &err), 1);
    assert_int_equal(h.type, WIRE_ACCEPT);
    assert_true(h.request == UINT64_C(0x1122334455667788));

    struct {
        size_t at;
        uint8_t value;
        const char *says;
    } bad[] = {
        {4, 0, "not a frame type"},
        {4, 17, "not a frame type"},
        {5, 1, "not a frame type"},
        {6, 1, "flags"},
        {7, 0x80, "flags"},
        {3, 2, "length"},
        {4, WIRE_CREDIT, "request id"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint8_t copy[16];
        memcpy(copy, b.data, 16);
        copy[bad[i].at] = bad[i].value;
        if (bad[i].at == 3)
            copy[0] = 1; /* 32 MiB and a byte */
        assert_int_equal(wire_header_read(copy, 16, &h, &err), -QUIRE_INVALID);
        assert_non_null(strstr(err.text, bad[i].says));
    }
    memset(b.data + 8, 0, 8);
    assert_int_equal(wire_header_read(b.data, 16, &h, &err), -QUIRE_INVALID);
    b.data[4] = WIRE_REFUSE; /* a reply to CONTROL has request id zero */
    assert_int_equal(wire_header_read(b.data, 16, &h, &err), 1);
    buffer_free(&b);
}

static void test_hello(void **state)
{
    (void)state;
    struct buffer b = {0};
    struct quire_error err;
    const uint8_t *body;
    size_t n;
    struct wire_hello want, got;
    sample_hello(&want);
    assert_int_equal(wire_put_hello(&b, &want), 0);
    assert_int_equal(split(&b, &body, &n), WIRE_HELLO);
    assert_int_equal(wire_get_hello(body, n, &got, &err), 0);
    assert_int_equal(got.version, want.version);
    assert_memory_equal(&got.identity_text, &want.identity_text, 32);
    assert_memory_equal(&got.identity_config, &want.identity_config, 32);
    assert_int_equal(got.n_model, want.n_model);
    assert_memory_equal(got.model, want.model, want.n_model);
    assert_int_equal(got.vocab_size, want.vocab_size);
    assert_int_equal(got.max_model_len, want.max_model_len);
    assert_int_equal(got.max_num_seqs, want.max_num_seqs);
    assert_int_equal(got.block_tokens, want.block_tokens);
    assert_int_equal(got.n_eos, 2);
    assert_int_equal(wire_u32(got.eos, 0), 2);
    assert_int_equal(wire_u32(got.eos, 1), 0x01020304);
    assert_true(got.initial_credit == want.initial_credit);
    assert_int_equal(got.n_description, want.n_description);
    assert_memory_equal(got.description, want.description, want.n_description);
    assert_int_equal(got.n_key_proof, 32);
    assert_memory_equal(got.key_proof, want.key_proof, 32);
    assert_int_equal(got.n_nonce, 32);
    assert_memory_equal(got.nonce, want.nonce, 32);
    assert_memory_equal(&got.identity_arithmetic, &want.identity_arithmetic, 32);
    assert_int_equal(got.n_arithmetic, want.n_arithmetic);
    assert_memory_equal(got.arithmetic, want.arithmetic, want.n_arithmetic);
    assert_true(got.takes_predict);
    assert_memory_equal(&got.identity_generation, &want.identity_generation, 32);
    buffer_free(&b);

    /* A greeting is only the version: 16 + 8 + 4 bytes. */
    struct wire_hello greeting = {.version = 1};
    assert_int_equal(wire_put_hello(&b, &greeting), 0);
    assert_int_equal(b.n, 28);
    split(&b, &body, &n);
    assert_int_equal(wire_get_hello(body, n, &got, &err), 0);
    assert_int_equal(got.n_nonce, 0);
    assert_true(got.initial_credit == 0);
    buffer_free(&b);
}

static uint32_t bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static void check_submit(const struct request_spec *want)
{
    struct buffer b = {0};
    struct quire_error err;
    const uint8_t *body;
    size_t n;
    struct request_spec got;
    assert_int_equal(wire_put_submit(&b, 7, want), 0);
    assert_int_equal(split(&b, &body, &n), WIRE_SUBMIT);
    assert_int_equal(wire_get_submit(body, n, &got, &err), 0);
    assert_int_equal(got.n_prompt, want->n_prompt);
    for (uint32_t i = 0; i < want->n_prompt; i++)
        assert_int_equal(got.prompt[i], want->prompt[i]);
    assert_int_equal(got.max_tokens, want->max_tokens);
    assert_int_equal(got.n, want->n);
    assert_int_equal(got.min_tokens, want->min_tokens);
    assert_int_equal(got.top_k, want->top_k);
    assert_int_equal(bits(got.temperature), bits(want->temperature));
    assert_int_equal(bits(got.top_p), bits(want->top_p));
    assert_int_equal(bits(got.min_p), bits(want->min_p));
    assert_int_equal(bits(got.repetition_penalty), bits(want->repetition_penalty));
    assert_int_equal(bits(got.presence_penalty), bits(want->presence_penalty));
    assert_int_equal(bits(got.frequency_penalty), bits(want->frequency_penalty));
    assert_int_equal(got.has_seed, want->has_seed);
    assert_true(!want->has_seed || got.seed == want->seed);
    assert_int_equal(got.ignore_eos, want->ignore_eos);
    assert_int_equal(got.n_logprobs, want->n_logprobs);
    assert_int_equal(got.n_prompt_logprobs, want->n_prompt_logprobs);
    assert_int_equal(got.priority, want->priority);
    assert_true(got.deadline_us == want->deadline_us);
    assert_memory_equal(&got.cache_domain, &want->cache_domain, 32);
    assert_int_equal(got.tenant, want->tenant);
    assert_int_equal(got.class_index, want->class_index);
    assert_int_equal(got.background, want->background);
    assert_true(got.pin_us == want->pin_us);
    assert_int_equal(got.expected_tokens, want->expected_tokens);
    assert_int_equal(got.n_stop_token_ids, want->n_stop_token_ids);
    for (uint32_t i = 0; i < want->n_stop_token_ids; i++)
        assert_int_equal(got.stop_token_ids[i], want->stop_token_ids[i]);
    assert_int_equal(got.n_allowed_token_ids, want->n_allowed_token_ids);
    for (uint32_t i = 0; i < want->n_allowed_token_ids; i++)
        assert_int_equal(got.allowed_token_ids[i], want->allowed_token_ids[i]);
    assert_int_equal(got.max_drafts, want->max_drafts);
    assert_int_equal(got.draft_method, want->draft_method);
    assert_int_equal(got.n_prediction, want->n_prediction);
    for (uint32_t i = 0; i < want->n_prediction; i++)
        assert_int_equal(got.prediction[i], want->prediction[i]);
    assert_int_equal(got.n_bad_words, want->n_bad_words);
    for (uint32_t i = 0; i < want->n_bad_words; i++)
        assert_int_equal(got.bad_words[i], want->bad_words[i]);
    assert_int_equal(got.n_biases, want->n_biases);
    for (uint32_t i = 0; i < want->n_biases; i++) {
        assert_int_equal(got.biases[i].id, want->biases[i].id);
        assert_int_equal(bits(got.biases[i].bias), bits(want->biases[i].bias));
    }
    request_spec_free(&got);
    buffer_free(&b);
}

static void test_submit(void **state)
{
    (void)state;
    struct request_spec s;
    sample_submit(&s);
    check_submit(&s);

    request_spec_default(&s);
    assert_int_equal(s.n, 1);
    assert_int_equal(s.n_logprobs, -1);
    uint32_t prompt[1] = {5};
    s.prompt = prompt;
    s.n_prompt = 1;
    s.max_tokens = 3;
    check_submit(&s);
    /* Bits, not values: -0.0 and NaN with a payload are preserved. */
    s.temperature = -0.0f;
    uint32_t nan_bits = 0x7fc12345;
    memcpy(&s.top_p, &nan_bits, 4);
    s.has_seed = true;
    s.seed = 0;
    check_submit(&s);

    /* Fields with their default are not sent, so a reader that does not know them can accept the request. */
    struct buffer b = {0};
    request_spec_default(&s);
    s.prompt = prompt;
    s.n_prompt = 1;
    s.max_tokens = 3;
    assert_int_equal(wire_put_submit(&b, 7, &s), 0);
    assert_int_equal(b.n, 16 + 8 + 4 + 8 + 4);
    buffer_free(&b);
}

static void test_tokens(void **state)
{
    (void)state;
    struct wire_token want[SAMPLE_TOKENS], got;
    struct quire_error err;
    sample_tokens(want);
    for (int prompt = 0; prompt < 2; prompt++) {
        struct buffer b = {0};
        const uint8_t *body;
        size_t n, cursor = 0;
        if (prompt)
            assert_int_equal(wire_put_prompt_logprobs(&b, 9, want, SAMPLE_TOKENS), 0);
        else
            assert_int_equal(wire_put_tokens(&b, 9, want, SAMPLE_TOKENS), 0);
        assert_int_equal(split(&b, &body, &n), prompt ? WIRE_PROMPT_LOGPROBS : WIRE_TOKENS);
        for (uint32_t i = 0; i < SAMPLE_TOKENS; i++) {
            assert_int_equal(wire_next_token(body, n, &cursor, &got, &err), 1);
            assert_int_equal(got.choice, want[i].choice);
            assert_int_equal(got.token, want[i].token);
            assert_int_equal(got.has_logprob, want[i].has_logprob);
            if (!want[i].has_logprob)
                continue;
            assert_int_equal(bits(got.logprob), bits(want[i].logprob));
            assert_int_equal(got.rank, want[i].rank);
            assert_int_equal(got.n_top, want[i].n_top);
            assert_memory_equal(got.top_ids, want[i].top_ids, 4 * want[i].n_top);
            assert_memory_equal(got.top_logprobs, want[i].top_logprobs, 4 * want[i].n_top);
        }
        assert_int_equal(wire_next_token(body, n, &cursor, &got, &err), 0);
        assert_int_equal(wire_next_token(body, n, &cursor, &got, &err), 0);
        buffer_free(&b);
    }
    /* A plain token costs 8 bytes. */
    struct buffer b = {0};
    struct wire_token plain = {.choice = 1, .token = 77};
    assert_int_equal(wire_put_tokens(&b, 9, &plain, 1), 0);
    assert_int_equal(b.n, 16 + 8 + 8);
    assert_int_equal(wire_put_tokens(&b, 9, &plain, 0), QUIRE_INVALID);
    plain.choice = 65536;
    assert_int_equal(wire_put_tokens(&b, 9, &plain, 1), QUIRE_INVALID);
    plain = (struct wire_token){.has_logprob = true, .n_top = 21};
    assert_int_equal(wire_put_tokens(&b, 9, &plain, 1), QUIRE_INVALID);
    assert_int_equal(b.n, 16 + 8 + 8); /* the failed call left nothing behind */
    buffer_free(&b);
}

static void test_done(void **state)
{
    (void)state;
    struct wire_done want, got;
    struct buffer b = {0};
    struct quire_error err;
    const uint8_t *body;
    size_t n;
    sample_done(&want);
    assert_int_equal(wire_put_done(&b, 5, &want), 0);
    assert_int_equal(split(&b, &body, &n), WIRE_DONE);
    assert_int_equal(wire_get_done(body, n, &got, &err), 0);
    assert_int_equal(got.choice, want.choice);
    assert_int_equal(got.finish, want.finish);
    assert_int_equal(got.last, want.last);
    assert_int_equal(got.has_stop_token, want.has_stop_token);
    assert_int_equal(got.stop_token, want.stop_token);
    assert_int_equal(got.n_prompt, want.n_prompt);
    assert_int_equal(got.n_cached, want.n_cached);
    assert_int_equal(got.n_generated, want.n_generated);
    assert_int_equal(got.n_message, want.n_message);
    assert_memory_equal(got.message, want.message, want.n_message);
    assert_int_equal(got.n_parameter, want.n_parameter);
    assert_memory_equal(got.parameter, want.parameter, want.n_parameter);
    assert_int_equal(got.status, want.status);
    assert_int_equal(got.retry_after_ms, want.retry_after_ms);
    assert_int_equal(got.n_created, want.n_created);
    assert_int_equal(got.n_drafted, 15);
    assert_int_equal(got.n_accepted, 9);
    assert_int_equal(got.n_predicted, 12);
    assert_int_equal(got.n_predicted_right, UINT32_MAX);
    assert_memory_equal(&got.account, &want.account, sizeof want.account);
    buffer_free(&b);
    want.has_stop_token = false;
    assert_int_equal(wire_put_done(&b, 5, &want), 0);
    split(&b, &body, &n);
    assert_int_equal(wire_get_done(body, n, &got, &err), 0);
    assert_false(got.has_stop_token);
    buffer_free(&b);
    want.finish = 4;
    assert_int_equal(wire_put_done(&b, 5, &want), 0);
    split(&b, &body, &n);
    assert_int_equal(wire_get_done(body, n, &got, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "DONE: finish"));
    buffer_free(&b);
}

static void test_stats(void **state)
{
    (void)state;
    struct wire_stats want, got;
    struct buffer b = {0};
    struct quire_error err;
    const uint8_t *body;
    size_t n;
    sample_stats(&want);
    assert_int_equal(wire_put_stats(&b, &want), 0);
    assert_int_equal(split(&b, &body, &n), WIRE_STATS);
    memset(&got, 0xff, sizeof got);
    assert_int_equal(wire_get_stats(body, n, &got, &err), 0);
#define SAME(member, ...) assert_memory_equal(&got.member, &want.member, sizeof got.member);
    STATS_ROWS(SAME)
#undef SAME
    assert_int_equal(got.n_policy, 4);
    assert_memory_equal(got.policy, "fair", 4);
    assert_int_equal(got.n_figure_name, 3);
    assert_memory_equal(got.figure_name, "gap", 3);
    assert_int_equal(got.n_tenants, 2);
    assert_int_equal(got.n_shadow_policy, 3);
    assert_memory_equal(got.shadow_policy, "sjf", 3);
    assert_int_equal(got.n_shadow_buckets, 1);
    struct wire_shadow_bucket bucket;
    wire_shadow_bucket_get(&got, 0, &bucket);
    assert_true(bucket.bound_us == UINT64_MAX - 1 && bucket.n_live == 2 && bucket.n_shadow == UINT64_C(1) << 40);
    assert_int_equal(got.n_step_buckets, 2);
    struct wire_step_bucket steps;
    wire_step_bucket_get(&got, 1, &steps);
    assert_true(steps.n_tokens == 16384 && steps.n_steps == UINT64_C(1) << 41);
    assert_int_equal(got.n_cache_dtype, 7);
    assert_memory_equal(got.cache_dtype, "float16", 7);
    assert_int_equal(got.n_accepted_at, 2);
    assert_true(wire_accepted_get(&got, 0) == UINT64_C(1) << 44 && wire_accepted_get(&got, 1) == 7);
    assert_int_equal(got.n_draft_method, 6);
    assert_memory_equal(got.draft_method, "suffix", 6);
    assert_int_equal(got.n_rank_waits, 4);
    assert_true(wire_rank_wait_get(&got, 1) == UINT64_C(1) << 46 && wire_rank_wait_get(&got, 2) == 52);
    assert_int_equal(got.n_expert_tokens, 2);
    assert_true(wire_expert_get(&got, 0) == 0 && wire_expert_get(&got, 1) == UINT64_C(1) << 47);
    struct wire_tenant tenant;
    wire_tenant_get(&got, 0, &tenant);
    assert_memory_equal(&tenant, (&(struct wire_tenant){1, 2, 3, 4, 5, 6, 7}), sizeof tenant);
    wire_tenant_get(&got, 1, &tenant);
    assert_memory_equal(&tenant, (&(struct wire_tenant){UINT64_MAX, UINT64_C(1) << 33, 0, 8, 9, 10, UINT32_MAX}),
                        sizeof tenant);
    buffer_free(&b);
}

/* The longest reply fits into a frame that every client accepts. */
static void test_stats_of_all_tenants(void **state)
{
    (void)state;
    static uint32_t words[(WIRE_MAX_TENANTS + 1) * WIRE_TENANT_WORDS];
    static char text[2 * WIRE_MAX_TEXT];
    struct wire_stats stats;
    struct buffer b = {0};
    sample_stats(&stats);
    memset(text, 'x', sizeof text);
    stats.policy = stats.figure_name = stats.shadow_policy = stats.cache_dtype = stats.draft_method = text;
    stats.n_policy = stats.n_figure_name = stats.n_shadow_policy = stats.n_cache_dtype = sizeof text;
    stats.n_draft_method = sizeof text;
    stats.accepted_at = words;
    stats.n_accepted_at = WIRE_MAX_ACCEPTED;
    stats.rank_waits = words;
    stats.n_rank_waits = WIRE_MAX_RANK_WAITS;
    stats.expert_tokens = words;
    stats.n_expert_tokens = WIRE_MAX_EXPERTS;
    stats.step_buckets = words;
    stats.n_step_buckets = WIRE_MAX_STEP_BUCKETS;
    stats.shadow_buckets = words;
    stats.n_shadow_buckets = WIRE_MAX_SHADOW_BUCKETS;
    stats.tenants = words;
    stats.n_tenants = WIRE_MAX_TENANTS;
    assert_int_equal(wire_put_stats(&b, &stats), 0);
    assert_true(b.n > WIRE_MAX_TENANTS * 48 && b.n <= WIRE_HEADER_BYTES + WIRE_MAX_EVENT_BODY);
    buffer_free(&b);
    stats.n_tenants++;
    assert_int_equal(wire_put_stats(&b, &stats), QUIRE_INVALID);
    buffer_free(&b);
}

static void test_small_frames(void **state)
{
    (void)state;
    struct buffer b = {0};
    struct quire_error err;
    const uint8_t *body;
    size_t n, n_text;
    const char *text;
    uint32_t status;
    uint64_t credit;

    struct wire_refuse refuse = {.status = QUIRE_EXHAUSTED,
                                 .retry_after_ms = 1500,
                                 .message = "full",
                                 .n_message = 4,
                                 .parameter = "top_k",
                                 .n_parameter = 5},
                       refused;
    assert_int_equal(wire_put_refuse(&b, 3, &refuse), 0);
    assert_int_equal(split(&b, &body, &n), WIRE_REFUSE);
    assert_int_equal(wire_get_refuse(body, n, &refused, &err), 0);
    assert_int_equal(refused.status, QUIRE_EXHAUSTED);
    assert_int_equal(refused.retry_after_ms, 1500);
    assert_int_equal(refused.n_message, 4);
    assert_memory_equal(refused.message, "full", 4);
    assert_int_equal(refused.n_parameter, 5);
    assert_memory_equal(refused.parameter, "top_k", 5);
    buffer_free(&b);

    static const int64_t choices[] = {-1, 0, 127, UINT32_MAX};
    for (size_t i = 0; i < 4; i++) {
        int64_t choice = 99;
        assert_int_equal(wire_put_cancel(&b, 3, choices[i]), 0);
        assert_int_equal(split(&b, &body, &n), WIRE_CANCEL);
        assert_int_equal(wire_get_cancel(body, n, &choice, &err), 0);
        assert_true(choice == choices[i]);
        buffer_free(&b);
    }
    assert_int_equal(wire_put_cancel(&b, 3, (int64_t)UINT32_MAX + 1), QUIRE_INVALID);

    assert_int_equal(wire_put_credit(&b, UINT64_C(0x123456789abcdef0)), 0);
    assert_int_equal(split(&b, &body, &n), WIRE_CREDIT);
    assert_int_equal(wire_get_credit(body, n, &credit, &err), 0);
    assert_true(credit == UINT64_C(0x123456789abcdef0));
    buffer_free(&b);

    assert_int_equal(wire_put_control(&b, "dance"), 0);
    assert_int_equal(split(&b, &body, &n), WIRE_CONTROL);
    assert_int_equal(wire_get_control(body, n, &text, &n_text, &err), 0);
    assert_int_equal(n_text, 5);
    assert_memory_equal(text, "dance", 5);
    buffer_free(&b);

    assert_int_equal(wire_put_error(&b, QUIRE_INVALID, "so it is"), 0);
    assert_int_equal(split(&b, &body, &n), WIRE_ERROR);
    assert_int_equal(wire_get_error(body, n, &status, &text, &n_text, &err), 0);
    assert_int_equal(status, QUIRE_INVALID);
    assert_memory_equal(text, "so it is", 8);
    buffer_free(&b);

    static const uint32_t tenants[] = {0, 1, WIRE_MAX_TENANTS};
    for (size_t i = 0; i < 3; i++) {
        uint32_t n_tenants = 99;
        assert_int_equal(wire_put_stats_request(&b, tenants[i]), 0);
        assert_int_equal(split(&b, &body, &n), WIRE_STATS);
        assert_int_equal(n, tenants[i] ? 12 : 0);
        assert_int_equal(wire_get_stats_request(body, n, &n_tenants, &err), 0);
        assert_int_equal(n_tenants, tenants[i]);
        buffer_free(&b);
    }
    wire_put_stats_request(&b, WIRE_MAX_TENANTS + 1);
    split(&b, &body, &n);
    assert_int_equal(wire_get_stats_request(body, n, &status, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "STATS: n_tenants"));
    buffer_free(&b);

    static const uint64_t ids[] = {0, UINT64_MAX};
    for (size_t i = 0; i < 2; i++) {
        uint64_t id = 99;
        assert_int_equal(wire_put_accept(&b, 3, ids[i]), 0);
        assert_int_equal(split(&b, &body, &n), WIRE_ACCEPT);
        assert_int_equal(n, ids[i] ? 16 : 0);
        assert_int_equal(wire_get_accept(body, n, &id, &err), 0);
        assert_true(id == ids[i]);
        buffer_free(&b);
    }
    assert_int_equal(wire_put_drain(&b), 0);
    assert_int_equal(split(&b, &body, &n), WIRE_DRAIN);
    assert_int_equal(wire_get_drain(body, n, &err), 0);
    buffer_free(&b);
}

/* ---- malformed frames ---- */

/* A prefix of a body is either rejected or ends exactly between two fields (the rest are optional). */
static void test_truncation(void **state)
{
    (void)state;
    for (size_t which = 0; which < SAMPLE_FRAMES; which++) {
        struct buffer b = {0};
        struct quire_error err;
        const uint8_t *body;
        size_t n;
        sample_frame(which, &b);
        uint16_t type = split(&b, &body, &n);
        assert_int_equal(decode(type, body, n, &err), 0);
        bool boundary[65536] = {false};
        assert_true(n < sizeof boundary);
        for (size_t at = 0; at < n; at += 8 + wire_u32(body + at + 4, 0))
            boundary[at] = true;
        for (size_t cut = 0; cut < n; cut++) {
            int status = decode(type, body, cut, &err);
            if (!boundary[cut])
                assert_int_equal(status, QUIRE_INVALID);
        }
        buffer_free(&b);
    }
}

/* Any byte changed to any value is either rejected or decoded, and never read past the end: AddressSanitizer checks. */
static void test_changed_bytes(void **state)
{
    (void)state;
    static const uint8_t values[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    for (size_t which = 0; which < SAMPLE_FRAMES; which++) {
        struct buffer b = {0};
        struct quire_error err;
        const uint8_t *body;
        size_t n;
        sample_frame(which, &b);
        uint16_t type = split(&b, &body, &n);
        for (size_t at = 0; at < n; at++) {
            uint8_t *changed = (uint8_t *)b.data + WIRE_HEADER_BYTES + at, old = *changed;
            for (size_t v = 0; v < sizeof values; v++) {
                *changed = values[v];
                decode(type, body, n, &err);
            }
            *changed = old;
        }
        buffer_free(&b);
    }
}

static void append_field(struct buffer *b, uint16_t tag, const void *value, uint32_t n)
{
    uint8_t head[8] = {(uint8_t)tag,       (uint8_t)(tag >> 8), 0, 0, (uint8_t)n, (uint8_t)(n >> 8),
                       (uint8_t)(n >> 16), (uint8_t)(n >> 24)};
    assert_int_equal(buffer_append(b, head, 8), 0);
    assert_int_equal(buffer_append(b, value, n), 0);
}

static void test_unknown_fields(void **state)
{
    (void)state;
    for (size_t which = 0; which < SAMPLE_FRAMES; which++) {
        struct buffer b = {0}, body = {0};
        struct quire_error err;
        const uint8_t *old;
        size_t n;
        sample_frame(which, &b);
        uint16_t type = split(&b, &old, &n);
        buffer_append(&body, old, n);
        append_field(&body, 4711, "later", 5);
        assert_int_equal(decode(type, body.data, body.n, &err), 0);
        append_field(&body, 4712, NULL, 0);
        assert_int_equal(decode(type, body.data, body.n, &err), 0);
        append_field(&body, 0x8000 | 4713, "now", 3);
        assert_int_equal(decode(type, body.data, body.n, &err), QUIRE_UNSUPPORTED);
        assert_non_null(strstr(err.text, "4713"));
        buffer_free(&body);

        /* A known field that appears twice, and too many fields. */
        if (n) {
            buffer_append(&body, old, n);
            append_field(&body, (uint16_t)(old[0] | old[1] << 8), old + 8, wire_u32(old + 4, 0));
            assert_int_equal(decode(type, body.data, body.n, &err), QUIRE_INVALID);
            buffer_free(&body);
        }
        buffer_append(&body, old, n);
        for (unsigned i = 0; i < WIRE_MAX_FIELDS; i++)
            append_field(&body, 4711, NULL, 0);
        if (n)
            assert_int_equal(decode(type, body.data, body.n, &err), QUIRE_INVALID);
        else
            assert_int_equal(decode(type, body.data, body.n, &err), 0);
        buffer_free(&body);
        buffer_free(&b);
    }
}

static void expect_bad(uint16_t type, const struct buffer *body, const char *says)
{
    struct quire_error err;
    assert_int_equal(decode(type, body->data, body->n, &err), QUIRE_INVALID);
    if (!strstr(err.text, says))
        fail_msg("'%s' does not say '%s'", err.text, says);
}

static void test_wrong_fields(void **state)
{
    (void)state;
    static const uint8_t zeros[64];
    struct {
        uint16_t type, tag;
        const void *value;
        uint32_t n;
        const char *says;
    } cases[] = {
        {WIRE_HELLO, 1, zeros, 3, "HELLO: version: must be 4 bytes, got 3"},
        {WIRE_HELLO, 2, zeros, 31, "HELLO: identity_text: must be 32 bytes"},
        {WIRE_HELLO, 4, "\xff", 1, "HELLO: model: is not UTF-8"},
        {WIRE_HELLO, 4, "a\xe2\x82", 3, "HELLO: model: is not UTF-8"},
        {WIRE_HELLO, 9, zeros, 6, "HELLO: eos: must be a multiple of 4"},
        {WIRE_HELLO, 10, zeros, 4, "HELLO: initial_credit: must be 8 bytes"},
        {WIRE_HELLO, 12, zeros, 0, "HELLO: key_proof: must be 32 bytes"},
        {WIRE_HELLO, 13, zeros, 33, "HELLO: nonce: at most 32"},
        {WIRE_SUBMIT, 1, zeros, 7, "SUBMIT: prompt: must be a multiple of 4"},
        {WIRE_SUBMIT, 12, zeros, 4, "SUBMIT: seed: must be 8 bytes"},
        {WIRE_SUBMIT, 13, "\x02", 1, "SUBMIT: ignore_eos: must be 0 or 1"},
        {WIRE_SUBMIT, 20, zeros, 12, "SUBMIT: biases: must be a multiple of 8"},
        {WIRE_DONE, 3, zeros, 4, "DONE: last: must be 1 bytes"},
        {WIRE_CANCEL, 1, zeros, 8, "CANCEL: choice: must be 4 bytes"},
        {WIRE_TOKENS, 2, zeros, 8, "TOKENS: records: must be the first"},
        {WIRE_TOKENS, 1, zeros, 0, "TOKENS: records: missing or empty"},
        {WIRE_TOKENS, 1, zeros, 9, "cut short"},
        {WIRE_TOKENS, 1, "\0\0\2\0\0\0\0\0", 8, "flags"},
        {WIRE_TOKENS, 1, "\0\0\0\1\0\0\0\0", 8, "n_top"},
        {WIRE_TOKENS, 1, "\0\0\1\x15\0\0\0\0", 8, "n_top"},
        {WIRE_TOKENS, 1, "\0\0\1\1\0\0\0\0\0\0\0\0\0\0\0\0", 16, "cut short"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct buffer b = {0};
        append_field(&b, cases[i].tag, cases[i].value, cases[i].n);
        expect_bad(cases[i].type, &b, cases[i].says);
        buffer_free(&b);
    }
    struct buffer b = {0};
    static const struct {
        uint16_t type;
        const char *says;
    } required[] = {
        {WIRE_HELLO, "version: is missing"}, {WIRE_SUBMIT, "prompt: is missing"},
        {WIRE_REFUSE, "status: is missing"}, {WIRE_DONE, "choice: is missing"},
        {WIRE_CREDIT, "bytes: is missing"},  {WIRE_CONTROL, "command: is missing"},
        {WIRE_ERROR, "status: is missing"},  {WIRE_TOKENS, "missing"},
    };
    for (size_t i = 0; i < sizeof required / sizeof required[0]; i++)
        expect_bad(required[i].type, &b, required[i].says);
    append_field(&b, 1, zeros, 4);
    b.data[2] = 1;
    expect_bad(WIRE_HELLO, &b, "must be zero");
    buffer_free(&b);
}

static void test_limits(void **state)
{
    (void)state;
    struct buffer b = {0};
    struct quire_error err;
    const uint8_t *body;
    size_t n;
    /* The longest prompt that fits into a frame, and one that is too long. */
    struct request_spec s;
    uint32_t n_most = (WIRE_MAX_BODY - 8 - 8 - 4) / 4;
    uint32_t *prompt = calloc(n_most + 1, sizeof *prompt);
    assert_non_null(prompt);
    request_spec_default(&s);
    s.prompt = prompt;
    s.n_prompt = n_most;
    s.max_tokens = 1;
    assert_int_equal(wire_put_submit(&b, 1, &s), 0);
    assert_int_equal(b.n, WIRE_HEADER_BYTES + WIRE_MAX_BODY);
    split(&b, &body, &n);
    assert_int_equal(decode(WIRE_SUBMIT, body, n, &err), 0);
    buffer_free(&b);
    wire_put_accept(&b, 1, 0);
    s.n_prompt++;
    assert_int_equal(wire_put_submit(&b, 1, &s), QUIRE_INVALID);
    assert_int_equal(b.n, WIRE_HEADER_BYTES);
    assert_false(b.failed);
    s.n_prompt = 1;
    s.stop_token_ids = prompt;
    s.n_stop_token_ids = REQUEST_MAX_STOP_TOKEN_IDS + 1;
    assert_int_equal(wire_put_submit(&b, 1, &s), QUIRE_INVALID);
    assert_int_equal(b.n, WIRE_HEADER_BYTES);
    s.n_stop_token_ids--;
    assert_int_equal(wire_put_submit(&b, 1, &s), 0);
    buffer_free(&b);

    append_field(&b, 19, prompt, 4 * (REQUEST_MAX_STOP_TOKEN_IDS + 1));
    expect_bad(WIRE_SUBMIT, &b, "stop_token_ids: at most 4096");
    buffer_free(&b);
    append_field(&b, 20, prompt, 8 * (REQUEST_MAX_BIASES + 1));
    expect_bad(WIRE_SUBMIT, &b, "biases: at most 65536");
    buffer_free(&b);
    append_field(&b, 26, prompt, 4 * (REQUEST_MAX_ALLOWED_TOKEN_IDS + 1));
    expect_bad(WIRE_SUBMIT, &b, "allowed_token_ids: at most 4194304");
    buffer_free(&b);
    append_field(&b, 27, prompt, 4 * (REQUEST_MAX_BAD_WORDS + 1));
    expect_bad(WIRE_SUBMIT, &b, "bad_words: at most 16384");
    buffer_free(&b);
    append_field(&b, 9, prompt, 4 * (WIRE_MAX_EOS + 1));
    expect_bad(WIRE_HELLO, &b, "eos: at most 64");
    buffer_free(&b);
    append_field(&b, 4, prompt, WIRE_MAX_TEXT + 1);
    expect_bad(WIRE_HELLO, &b, "model: at most 1024");
    buffer_free(&b);

    struct wire_token *tokens = calloc(200000, sizeof *tokens);
    assert_non_null(tokens);
    for (uint32_t i = 0; i < 200000; i++)
        tokens[i] = (struct wire_token){.has_logprob = true, .n_top = 20};
    assert_int_equal(wire_put_tokens(&b, 1, tokens, 200000), QUIRE_INVALID);
    assert_int_equal(b.n, 0);
    free(tokens);
    free(prompt);
    buffer_free(&b);
}

static void test_text_is_cut(void **state)
{
    (void)state;
    /* 1,023 letters and a two-byte character: the whole character is cut. Bytes that are not UTF-8 end the text. */
    char text[2000];
    struct buffer b = {0};
    struct quire_error err;
    const uint8_t *body;
    const char *got;
    size_t n, n_got;
    uint32_t status;
    memset(text, 'a', sizeof text);
    memcpy(text + 1023, "\xc3\xa9", 2);
    text[1500] = '\0';
    assert_int_equal(wire_put_error(&b, 1, text), 0);
    split(&b, &body, &n);
    assert_int_equal(wire_get_error(body, n, &status, &got, &n_got, &err), 0);
    assert_int_equal(n_got, 1023);
    buffer_free(&b);
    static const struct {
        const char *text;
        size_t good;
    } cases[] = {
        {"abc\xff", 3},       {"\xc0\x80", 0},         {"a\xed\xa0\x80", 1}, {"\xf4\x90\x80\x80", 0},
        {"\xe2\x82\xac!", 4}, {"\xf0\x9f\x98\x80", 4}, {"\xe0\x80\x80", 0},  {"\xf0\x9f\x98", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(wire_utf8_prefix(cases[i].text, strlen(cases[i].text), 1024), cases[i].good);
    assert_int_equal(wire_utf8_prefix("a\xc3\xa9", 3, 2), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header),
        cmocka_unit_test(test_hello),
        cmocka_unit_test(test_submit),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_done),
        cmocka_unit_test(test_stats),
        cmocka_unit_test(test_stats_of_all_tenants),
        cmocka_unit_test(test_small_frames),
        cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_changed_bytes),
        cmocka_unit_test(test_unknown_fields),
        cmocka_unit_test(test_wrong_fields),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_text_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
