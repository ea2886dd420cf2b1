/* Prints the examples of protocol.md as this build encodes them, one "name hex" per line. A test compares them with
 * the document. */
#include "base/encoding/little_endian.h"
#include "base/encoding/tagged.h"
#include "server/wire/encode.h"
#include "server/wire/frame.h"
#include "server/wire/key.h"
#include "server/wire/records.h"
#include "server/wire/stats_frame.h"

#include <stdio.h>
#include <string.h>

static uint8_t engine_nonce[WIRE_NONCE_BYTES], front_nonce[WIRE_NONCE_BYTES];

static void print_bytes(const char *name, const void *data, size_t n)
{
    const uint8_t *bytes = data;
    printf("%s ", name);
    for (size_t i = 0; i < n; i++)
        printf("%02x", bytes[i]);
    putchar('\n');
}

static void print_frame(const char *name, struct buffer *b)
{
    print_bytes(name, b->data, b->n);
    buffer_free(b);
}

static void print_hellos(void)
{
    static const uint8_t eos[] = {0x5d, 0x50, 0x02, 0, 0x5b, 0x50, 0x02, 0};
    struct buffer b = {0};
    struct wire_hello hello = {.version = 1};
    wire_put_hello(&b, &hello);
    print_frame("greeting", &b);
    hello.nonce = engine_nonce;
    hello.n_nonce = sizeof engine_nonce;
    wire_put_hello(&b, &hello);
    print_frame("greeting-with-key", &b);
    hello = (struct wire_hello){.version = 1, .initial_credit = 1 << 20};
    memset(hello.identity_text.bytes, 0x11, 32);
    memset(hello.identity_config.bytes, 0x22, 32);
    wire_put_hello(&b, &hello);
    print_frame("hello", &b);
    hello.initial_credit = 0;
    hello.model = "demo";
    hello.n_model = 4;
    hello.vocab_size = 151936;
    hello.max_model_len = 32768;
    hello.max_num_seqs = 256;
    hello.block_tokens = 16;
    hello.n_eos = 2;
    hello.eos = eos;
    hello.description = "ref";
    hello.n_description = 3;
    hello.arithmetic = "law=1\n";
    hello.n_arithmetic = 6;
    hello.identity_arithmetic = quire_sha256(hello.arithmetic, hello.n_arithmetic);
    wire_put_hello(&b, &hello);
    print_frame("welcome", &b);
}

/* A request of a later program: with field 1000, which no program has yet. */
static void print_later(const char *name, uint64_t id, bool must, const char *value)
{
    static const uint32_t prompt[] = {9707, 11};
    const size_t n = strlen(value);
    struct buffer b = {0};
    struct request_spec submit;
    request_spec_default(&submit);
    submit.prompt = prompt;
    submit.n_prompt = 2;
    submit.max_tokens = 16;
    wire_put_submit(&b, id, &submit);
    uint8_t *field = tagged_put(&b, 1000, must, (uint32_t)n);
    if (field)
        memcpy(field, value, n);
    le_store_u32((uint8_t *)b.data, (uint32_t)(b.n - WIRE_HEADER_BYTES));
    print_frame(name, &b);
}

static void print_requests(void)
{
    static const uint32_t prompt[] = {9707, 11}, stop[] = {13};
    static const uint32_t allowed[] = {13, 15, 16}, words[] = {1, 13, 2, 15, 15};
    static const struct request_bias bias = {25, -100.0f};
    struct buffer b = {0};
    struct request_spec submit;
    request_spec_default(&submit);
    submit.prompt = prompt;
    submit.n_prompt = 2;
    submit.max_tokens = 16;
    wire_put_submit(&b, 1, &submit);
    print_frame("submit-least", &b);
    submit.n = 2;
    submit.temperature = 0.5f;
    submit.has_seed = true;
    submit.seed = 42;
    submit.n_logprobs = 1;
    submit.priority = -1;
    submit.stop_token_ids = stop;
    submit.n_stop_token_ids = 1;
    submit.biases = &bias;
    submit.n_biases = 1;
    wire_put_submit(&b, 2, &submit);
    print_frame("submit", &b);
    request_spec_default(&submit);
    submit.prompt = prompt;
    submit.n_prompt = 2;
    submit.tenant = 3;
    submit.background = true;
    submit.pin_us = 300000000;
    wire_put_submit(&b, 3, &submit);
    print_frame("submit-pin", &b);
    request_spec_default(&submit);
    submit.prompt = prompt;
    submit.n_prompt = 2;
    submit.max_tokens = 8;
    submit.allowed_token_ids = allowed;
    submit.n_allowed_token_ids = 3;
    submit.bad_words = words;
    submit.n_bad_words = 5;
    wire_put_submit(&b, 4, &submit);
    print_frame("submit-restricted", &b);
    request_spec_default(&submit);
    submit.prompt = prompt;
    submit.n_prompt = 2;
    submit.max_tokens = 8;
    submit.max_drafts = 4;
    submit.prediction = allowed;
    submit.n_prediction = 3;
    wire_put_submit(&b, 5, &submit);
    print_frame("submit-prediction", &b);
    print_later("submit-later", 6, false, "fast");
    print_later("submit-later-must", 7, true, "[a-z]*");
    wire_put_accept(&b, 1, UINT64_C(0x500000002));
    print_frame("accept", &b);
    struct wire_refuse refuse = {
        .status = QUIRE_EXHAUSTED, .retry_after_ms = 1500, .message = "queue full", .n_message = 10};
    wire_put_refuse(&b, 2, &refuse);
    print_frame("refuse", &b);
    wire_put_predict(&b, 1, &(struct wire_predict){.ids = allowed, .n_tokens = 3});
    print_frame("predict", &b);
    wire_put_hit_report(&b, &(struct wire_hit_report){.words = (const uint32_t[]){13, 15, 4}, .n_served = 1});
    print_frame("hit-report", &b);
    wire_put_cancel(&b, 1, -1);
    print_frame("cancel", &b);
    wire_put_cancel(&b, 2, 1);
    print_frame("cancel-choice", &b);
}

static void print_answers(void)
{
    struct buffer b = {0};
    struct wire_token tokens[2] = {
        {.choice = 0, .token = 1879},
        {.choice = 1,
         .token = 1879,
         .has_logprob = true,
         .logprob = -0.75f,
         .rank = 2,
         .n_top = 1,
         .top_ids = {1052},
         .top_logprobs = {-0.5f}},
    };
    wire_put_tokens(&b, 1, tokens, 1);
    print_frame("tokens-least", &b);
    wire_put_tokens(&b, 2, tokens, 2);
    print_frame("tokens", &b);
    struct wire_token of_prompt = {.token = 11, .has_logprob = true, .logprob = -2.0f, .rank = 7};
    wire_put_prompt_logprobs(&b, 2, &of_prompt, 1);
    print_frame("prompt-logprobs", &b);
    const float numbers[] = {0.25f, -1.5f, 0x1p-149f};
    wire_put_vector(&b, 2, &(struct wire_vector){.numbers = numbers, .n_values = 3});
    print_frame("vector", &b);
    struct wire_done done = {.choice = 0,
                             .finish = WIRE_FINISH_STOP,
                             .last = true,
                             .has_stop_token = true,
                             .stop_token = 151645,
                             .n_prompt = 2,
                             .n_generated = 3};
    wire_put_done(&b, 1, &done);
    print_frame("done", &b);
    done.n_generated = 9;
    done.n_drafted = 8;
    done.n_accepted = 6;
    done.n_predicted = 8;
    done.n_predicted_right = 6;
    wire_put_done(&b, 5, &done);
    print_frame("done-drafts", &b);
    struct wire_done refused = {
        .choice = 0,
        .finish = WIRE_FINISH_ERROR,
        .last = true,
        .message = "too late",
        .n_message = 8,
        .status = QUIRE_EXHAUSTED,
        .retry_after_ms = 1500,
        .account = {.queue_budget_us = 250000, .blocker = UINT64_C(0x500000002), .n_overtaken = 2}};
    wire_put_done(&b, 2, &refused);
    print_frame("done-refused", &b);
}

static void print_experts(struct buffer *b)
{
    uint32_t experts[2 * WIRE_EXPERT_WORDS];
    const struct wire_stats stats = {.expert_imbalance = 1.5, .expert_tokens = experts, .n_expert_tokens = 2};
    wire_expert_put(experts, 300);
    wire_expert_put(experts + WIRE_EXPERT_WORDS, 100);
    wire_put_stats(b, &stats);
    print_frame("stats-experts", b);
}

static void print_rank_waits(struct buffer *b)
{
    uint32_t waits[4 * WIRE_RANK_WAIT_WORDS] = {0};
    const struct wire_stats stats = {.rank_waits = waits, .n_rank_waits = 4};
    wire_rank_wait_put(waits + WIRE_RANK_WAIT_WORDS, 1000000);
    wire_rank_wait_put(waits + 2 * WIRE_RANK_WAIT_WORDS, 500);
    wire_put_stats(b, &stats);
    print_frame("stats-ranks", b);
}

static void print_others(void)
{
    struct buffer b = {0};
    struct wire_stats stats = {.n_running = 1, .kv_usage = 0.25, .n_steps = 300};
    wire_put_credit(&b, 65536);
    print_frame("credit", &b);
    wire_put_control(&b, "unpin 3");
    print_frame("control", &b);
    wire_put_stats_request(&b, 0);
    print_frame("stats-question", &b);
    wire_put_stats(&b, &stats);
    print_frame("stats", &b);
    wire_put_stats_request(&b, 1);
    print_frame("stats-question-tenants", &b);
    uint32_t words[WIRE_TENANT_WORDS];
    const struct wire_tenant tenant = {.n_prompt_tokens = 500,
                                       .n_generated_tokens = 80,
                                       .n_prefix_queries = 700,
                                       .n_prefix_hits = 200,
                                       .n_evicted_blocks = 4,
                                       .n_running = 1,
                                       .n_waiting = 2};
    wire_tenant_put(words, &tenant);
    stats = (struct wire_stats){.policy = "fair", .n_policy = 4, .tenants = words, .n_tenants = 1};
    wire_put_stats(&b, &stats);
    print_frame("stats-tenants", &b);
    const struct wire_shadow_bucket bucket = {100000, 6, 9};
    wire_shadow_bucket_put(words, &bucket);
    stats = (struct wire_stats){.shadow_policy = "sjf",
                                .n_shadow_policy = 3,
                                .n_shadow = 10,
                                .live_ttft_us = 2e6,
                                .shadow_ttft_us = 5e5,
                                .shadow_buckets = words,
                                .n_shadow_buckets = 1};
    wire_put_stats(&b, &stats);
    print_frame("stats-shadow", &b);
    const struct wire_step_bucket steps = {64, 290};
    wire_step_bucket_put(words, &steps);
    stats = (struct wire_stats){.n_step_tokens = 5000,
                                .step_buckets = words,
                                .n_step_buckets = 1,
                                .cache_dtype = "float16",
                                .n_cache_dtype = 7,
                                .prefix_caching = true,
                                .n_host_blocks = 2048};
    wire_put_stats(&b, &stats);
    print_frame("stats-steps", &b);
    wire_accepted_put(words, 40);
    wire_accepted_put(words + WIRE_ACCEPTED_WORDS, 25);
    stats = (struct wire_stats){.n_drafts = 50,
                                .n_draft_tokens = 100,
                                .n_accepted_tokens = 65,
                                .accepted_at = words,
                                .n_accepted_at = 2,
                                .draft_method = "ngram",
                                .n_draft_method = 5};
    wire_put_stats(&b, &stats);
    print_frame("stats-drafts", &b);
    print_rank_waits(&b);
    print_experts(&b);
    wire_put_drain(&b);
    print_frame("drain", &b);
    wire_put_error(&b, QUIRE_INVALID, "SUBMIT: before HELLO");
    print_frame("error", &b);
}

int main(void)
{
    static const char secret[] = "correct horse battery staple";
    for (uint8_t i = 0; i < WIRE_NONCE_BYTES; i++) {
        engine_nonce[i] = i;
        front_nonce[i] = (uint8_t)(0x80 + i);
    }
    if (quire_hash_init())
        return 1;
    print_hellos();
    print_requests();
    print_answers();
    print_others();
    struct key256 key = quire_keyed_hash(NULL, secret, sizeof secret - 1);
    struct key256 front = wire_key_proof(&key, WIRE_KEY_FRONT, engine_nonce, front_nonce);
    struct key256 engine = wire_key_proof(&key, WIRE_KEY_ENGINE, engine_nonce, front_nonce);
    print_bytes("key", key.bytes, 32);
    print_bytes("front-proof", front.bytes, 32);
    print_bytes("engine-proof", engine.bytes, 32);
    return 0;
}
