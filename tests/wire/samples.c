#include "tests/wire/samples.h"

#include "server/wire/decode.h"
#include "server/wire/encode.h"
#include "server/wire/frame.h"

#include <string.h>

static const uint8_t rising[64] = {
    0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
    22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
    44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63,
};

void sample_hello(struct wire_hello *out)
{
    static const uint8_t eos[] = {2, 0, 0, 0, 4, 3, 2, 1};
    *out = (struct wire_hello){
        .version = WIRE_VERSION,
        .model = "demo",
        .n_model = 4,
        .vocab_size = 151936,
        .max_model_len = 32768,
        .max_num_seqs = 256,
        .block_tokens = 16,
        .n_eos = 2,
        .eos = eos,
        .initial_credit = 1 << 20,
        .description = "ref: nothing faster is here",
        .n_description = 27,
        .key_proof = rising + 32,
        .n_key_proof = 32,
        .nonce = rising,
        .n_nonce = 32,
        .arithmetic = "law=1\nform=lane\n",
        .n_arithmetic = 16,
        .takes_predict = true,
        .takes_hit_report = true,
    };
    memcpy(out->identity_arithmetic.bytes, rising + 3, 32);
    memcpy(out->identity_text.bytes, rising + 1, 32);
    memcpy(out->identity_config.bytes, rising + 2, 32);
    memcpy(out->identity_generation.bytes, rising + 4, 32);
}

void sample_submit(struct request_spec *out)
{
    static const uint32_t prompt[] = {1, 50, UINT32_MAX, 0x01020304};
    static const uint32_t stop[] = {9, 10};
    static const struct request_bias biases[] = {{5, -100.0f}, {6, 0.5f}};
    static const uint32_t words[] = {1, 8, 2, 9, UINT32_MAX};
    *out = (struct request_spec){
        .prompt = prompt,
        .n_prompt = 4,
        .max_tokens = 100,
        .n = 2,
        .min_tokens = 3,
        .top_k = 40,
        .temperature = 0.7f,
        .top_p = 0.95f,
        .min_p = 0.01f,
        .repetition_penalty = 1.1f,
        .presence_penalty = -0.5f,
        .frequency_penalty = 0.25f,
        .has_seed = true,
        .ignore_eos = true,
        .seed = UINT64_C(0xfedcba9876543210),
        .n_logprobs = 5,
        .n_prompt_logprobs = 0,
        .priority = -7,
        .deadline_us = 2500000,
        .tenant = 1023,
        .class_index = 7,
        .background = true,
        .pin_us = 300000000,
        .expected_tokens = 77,
        .stop_token_ids = stop,
        .n_stop_token_ids = 2,
        .biases = biases,
        .n_biases = 2,
        .allowed_token_ids = prompt,
        .n_allowed_token_ids = 3,
        .bad_words = words,
        .n_bad_words = 5,
        .max_drafts = 5,
        .draft_method = 2,
        .prediction = prompt,
        .n_prediction = 4,
    };
    memcpy(out->cache_domain.bytes, rising + 3, 32);
}

void sample_tokens(struct wire_token out[SAMPLE_TOKENS])
{
    out[0] = (struct wire_token){.choice = 0, .token = 50};
    out[1] = (struct wire_token){.choice = 1, .token = 51, .has_logprob = true, .logprob = -0.25f, .rank = 1};
    out[2] = (struct wire_token){
        .choice = 65535, .token = UINT32_MAX, .has_logprob = true, .logprob = -1.5f, .rank = 3, .n_top = WIRE_MAX_TOP};
    for (uint32_t i = 0; i < WIRE_MAX_TOP; i++) {
        out[2].top_ids[i] = 100 + i;
        out[2].top_logprobs[i] = -(float)i;
    }
}

void sample_done(struct wire_done *out)
{
    *out = (struct wire_done){
        .choice = 1,
        .finish = WIRE_FINISH_STOP,
        .last = true,
        .has_stop_token = true,
        .stop_token = 2,
        .n_prompt = 40,
        .n_cached = 32,
        .n_generated = 17,
        .message = "none",
        .n_message = 4,
        .parameter = "bad_words",
        .n_parameter = 9,
        .status = QUIRE_EXHAUSTED,
        .retry_after_ms = 1234,
        .n_created = 8,
        .n_drafted = 15,
        .n_accepted = 9,
        .n_predicted = 12,
        .n_predicted_right = UINT32_MAX,
        .account = {1, 2, 3, 4, 5, 6, 7, UINT64_C(1) << 60, 9, 10, 11, 12, 13, 14},
    };
}

void sample_stats(struct wire_stats *out)
{
    static uint32_t tenants[2 * WIRE_TENANT_WORDS], buckets[WIRE_SHADOW_BUCKET_WORDS];
    static uint32_t steps[2 * WIRE_STEP_BUCKET_WORDS], accepted[2 * WIRE_ACCEPTED_WORDS];
    static uint32_t waits[4 * WIRE_RANK_WAIT_WORDS], experts[2 * WIRE_EXPERT_WORDS];
    *out = (struct wire_stats){
        .policy = "fair",
        .n_policy = 4,
        .figure_name = "gap",
        .n_figure_name = 3,
        .tenants = tenants,
        .n_tenants = 2,
        .shadow_policy = "sjf",
        .n_shadow_policy = 3,
        .shadow_buckets = buckets,
        .n_shadow_buckets = 1,
        .step_buckets = steps,
        .n_step_buckets = 2,
        .cache_dtype = "float16",
        .n_cache_dtype = 7,
        .accepted_at = accepted,
        .n_accepted_at = 2,
        .draft_method = "suffix",
        .n_draft_method = 6,
        .rank_waits = waits,
        .n_rank_waits = 4,
        .expert_tokens = experts,
        .n_expert_tokens = 2,
    };
    /* Every row has a different value, of more than 32 bits if possible. */
#define VALUE_U32(tag) (1000u + (tag))
#define VALUE_U64(tag) ((UINT64_C(1) << 40) + (tag))
#define VALUE_F64(tag) ((tag) + 0.5)
#define VALUE_BOOL(tag) true
#define SET(member, type, tag, ...) out->member = VALUE_##type(tag);
    STATS_ROWS(SET)
    wire_rank_wait_put(waits + WIRE_RANK_WAIT_WORDS, UINT64_C(1) << 46);
    wire_rank_wait_put(waits + 2 * WIRE_RANK_WAIT_WORDS, 52);
    wire_expert_put(experts + WIRE_EXPERT_WORDS, UINT64_C(1) << 47);
    wire_accepted_put(accepted, UINT64_C(1) << 44);
    wire_accepted_put(accepted + WIRE_ACCEPTED_WORDS, 7);
    wire_step_bucket_put(steps, &(struct wire_step_bucket){1, 2});
    wire_step_bucket_put(steps + WIRE_STEP_BUCKET_WORDS, &(struct wire_step_bucket){16384, UINT64_C(1) << 41});
    wire_shadow_bucket_put(buckets, &(struct wire_shadow_bucket){UINT64_MAX - 1, 2, UINT64_C(1) << 40});
    wire_tenant_put(tenants, &(struct wire_tenant){1, 2, 3, 4, 5, 6, 7});
    wire_tenant_put(tenants + WIRE_TENANT_WORDS,
                    &(struct wire_tenant){UINT64_MAX, UINT64_C(1) << 33, 0, 8, 9, 10, UINT32_MAX});
}

void sample_frame(size_t which, struct buffer *b)
{
    struct wire_hello hello, greeting = {.version = WIRE_VERSION};
    struct request_spec submit;
    struct wire_token tokens[SAMPLE_TOKENS];
    struct wire_done done;
    struct wire_stats stats;
    const struct wire_predict predict = {.ids = (const uint32_t[]){1, 50, UINT32_MAX}, .n_tokens = 3};
    const struct wire_hit_report report = {.words = (const uint32_t[]){1, UINT32_MAX, 50, 0, 0, 0}, .n_served = 2};
    const struct wire_vector vector = {.numbers = (const float[]){0.25f, -1.5f, 0x1p-149f}, .n_values = 3};
    struct wire_refuse refuse = {.status = QUIRE_INVALID,
                                 .retry_after_ms = 1500,
                                 .message = "n: is odd",
                                 .n_message = 9,
                                 .parameter = "n",
                                 .n_parameter = 1};
    sample_hello(&hello);
    sample_submit(&submit);
    sample_tokens(tokens);
    sample_done(&done);
    sample_stats(&stats);
    switch (which) {
    case 0: wire_put_hello(b, &greeting); break;
    case 1: wire_put_hello(b, &hello); break;
    case 2: wire_put_submit(b, 1, &submit); break;
    case 3: wire_put_accept(b, 1, UINT64_C(3) << 40); break;
    case 4: wire_put_refuse(b, 1, &refuse); break;
    case 5: wire_put_tokens(b, 1, tokens, SAMPLE_TOKENS); break;
    case 6: wire_put_prompt_logprobs(b, 1, tokens, SAMPLE_TOKENS); break;
    case 7: wire_put_done(b, 1, &done); break;
    case 8: wire_put_cancel(b, 1, 0); break;
    case 9: wire_put_credit(b, 65536); break;
    case 10: wire_put_control(b, "name"); break;
    case 11: wire_put_stats_request(b, 0); break;
    case 12: wire_put_stats(b, &stats); break;
    case 13: wire_put_drain(b); break;
    case 14: wire_put_vector(b, 1, &vector); break;
    case 15: wire_put_predict(b, 1, &predict); break;
    case 16: wire_put_hit_report(b, &report); break;
    default: wire_put_error(b, QUIRE_INVALID, "HELLO: version: is missing"); break;
    }
}

static int decode_tokens(const uint8_t *body, size_t n, struct quire_error *err)
{
    struct wire_token token;
    size_t cursor = 0;
    int found;
    while ((found = wire_next_token(body, n, &cursor, &token, err)) > 0) {
    }
    return -found;
}

int sample_decode(uint16_t type, const uint8_t *body, size_t n, struct quire_error *err)
{
    union {
        struct wire_hello hello;
        struct request_spec submit;
        struct wire_refuse refuse;
        struct wire_done done;
        struct wire_stats stats;
        struct wire_vector vector;
        struct wire_predict predict;
        struct wire_hit_report report;
    } out;
    int64_t choice;
    uint64_t credit;
    const char *text;
    size_t n_text;
    uint32_t status;
    switch ((enum wire_type)type) {
    case WIRE_HELLO: return wire_get_hello(body, n, &out.hello, err);
    case WIRE_SUBMIT:
        status = (uint32_t)wire_get_submit(body, n, &out.submit, err);
        request_spec_free(&out.submit);
        return (int)status;
    case WIRE_REFUSE: return wire_get_refuse(body, n, &out.refuse, err);
    case WIRE_TOKENS:
    case WIRE_PROMPT_LOGPROBS: return decode_tokens(body, n, err);
    case WIRE_DONE: return wire_get_done(body, n, &out.done, err);
    case WIRE_CANCEL: return wire_get_cancel(body, n, &choice, err);
    case WIRE_CREDIT: return wire_get_credit(body, n, &credit, err);
    case WIRE_CONTROL: return wire_get_control(body, n, &text, &n_text, err);
    case WIRE_STATS:
        return n ? wire_get_stats(body, n, &out.stats, err) : wire_get_stats_request(body, n, &status, err);
    case WIRE_ERROR: return wire_get_error(body, n, &status, &text, &n_text, err);
    case WIRE_VECTOR: return wire_get_vector(body, n, &out.vector, err);
    case WIRE_PREDICT: return wire_get_predict(body, n, &out.predict, err);
    case WIRE_HIT_REPORT: return wire_get_hit_report(body, n, &out.report, err);
    case WIRE_ACCEPT: return wire_get_accept(body, n, &credit, err);
    case WIRE_DRAIN: break;
    }
    return wire_get_drain(body, n, err);
}
