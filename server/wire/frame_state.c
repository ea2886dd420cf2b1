/* DONE and STATS. */
#include "server/wire/fields.h"

#define DONE(member, tag, kind, flags, max) FIELD_SCALAR(struct wire_done, member, tag, kind, flags, max)
#define ACCOUNT(member, tag, kind) \
    {#member, tag, kind, 0, offsetof(struct wire_done, account.member), FIELD_NONE, FIELD_NONE, 0, 0}
static const struct wire_field done_rules[] = {
    DONE(choice, 1, FIELD_32, FIELD_REQUIRED | FIELD_MUST, 0),
    DONE(finish, 2, FIELD_32, FIELD_REQUIRED | FIELD_MUST, WIRE_FINISH_ERROR),
    DONE(last, 3, FIELD_BOOL, FIELD_REQUIRED | FIELD_MUST, 0),
    FIELD_OPTIONAL(struct wire_done, stop_token, 4, FIELD_32, 0),
    DONE(n_prompt, 5, FIELD_32, 0, 0),
    DONE(n_cached, 6, FIELD_32, 0, 0),
    DONE(n_generated, 7, FIELD_32, 0, 0),
    FIELD_SPAN(struct wire_done, message, 8, FIELD_TEXT, 0, WIRE_MAX_TEXT),
    DONE(status, 9, FIELD_32, 0, 0),
    DONE(retry_after_ms, 10, FIELD_32, 0, 0),
    DONE(n_created, 11, FIELD_32, 0, 0),
    ACCOUNT(queue_nothing_us, 12, FIELD_64),
    ACCOUNT(queue_budget_us, 13, FIELD_64),
    ACCOUNT(queue_seqs_us, 14, FIELD_64),
    ACCOUNT(queue_blocks_us, 15, FIELD_64),
    ACCOUNT(queue_batch_us, 16, FIELD_64),
    ACCOUNT(queue_prefix_us, 17, FIELD_64),
    ACCOUNT(preempted_us, 18, FIELD_64),
    ACCOUNT(blocker, 19, FIELD_64),
    ACCOUNT(blocker_tenant, 20, FIELD_32),
    ACCOUNT(n_overtaken, 21, FIELD_32),
    ACCOUNT(n_chunks, 22, FIELD_32),
    ACCOUNT(n_preemptions, 23, FIELD_32),
    ACCOUNT(n_loaded, 24, FIELD_32),
    ACCOUNT(n_recomputed, 25, FIELD_32),
    FIELD_SPAN(struct wire_done, parameter, 26, FIELD_TEXT, 0, WIRE_MAX_TEXT),
    DONE(n_drafted, 27, FIELD_32, 0, 0),
    DONE(n_accepted, 28, FIELD_32, 0, 0),
    DONE(n_predicted, 29, FIELD_32, 0, 0),
    DONE(n_predicted_right, 30, FIELD_32, 0, 0),
};
static const struct wire_done done_defaults;
static const struct wire_body done_body = {"DONE", done_rules, FIELD_COUNT(done_rules), &done_defaults,
                                           sizeof done_defaults};

/* ---- VECTOR ---- */

static const struct wire_field vector_rules[] = {
    {"values", 1, FIELD_WORDS, FIELD_REQUIRED | FIELD_MUST, offsetof(struct wire_vector, values),
     offsetof(struct wire_vector, n_values), offsetof(struct wire_vector, numbers), 1, WIRE_MAX_VECTOR},
};
static const struct wire_vector no_vector;
static const struct wire_body vector_body = {"VECTOR", vector_rules, FIELD_COUNT(vector_rules), &no_vector,
                                             sizeof no_vector};

int wire_put_vector(struct buffer *b, uint64_t request, const struct wire_vector *vector)
{
    return wire_put_body(b, WIRE_VECTOR, request, &vector_body, vector);
}

int wire_get_vector(const uint8_t *body, size_t n, struct wire_vector *out, struct quire_error *err)
{
    return wire_get_body(&vector_body, body, n, out, err);
}

int wire_put_done(struct buffer *b, uint64_t request, const struct wire_done *done)
{
    return wire_put_body(b, WIRE_DONE, request, &done_body, done);
}

int wire_get_done(const uint8_t *body, size_t n, struct wire_done *out, struct quire_error *err)
{
    return wire_get_body(&done_body, body, n, out, err);
}

#define STATS(member, tag, kind) FIELD_SCALAR(struct wire_stats, member, tag, kind, 0, 0)
static const struct wire_field stats_rules[] = {
    STATS(n_running, 1, FIELD_32),
    STATS(n_waiting, 2, FIELD_32),
    STATS(n_waiting_tokens, 3, FIELD_64),
    STATS(kv_usage, 4, FIELD_64),
    STATS(n_preemptions, 5, FIELD_64),
    STATS(n_prefix_queries, 6, FIELD_64),
    STATS(n_prefix_hits, 7, FIELD_64),
    STATS(n_prompt_tokens, 8, FIELD_64),
    STATS(n_generation_tokens, 9, FIELD_64),
    STATS(n_steps, 10, FIELD_64),
    STATS(n_blocks_leaked, 11, FIELD_64),
    STATS(n_blocks, 12, FIELD_32),
    STATS(n_block_tokens, 13, FIELD_32),
    STATS(draining, 14, FIELD_BOOL),
    STATS(dead, 15, FIELD_BOOL),
    STATS(n_host_hits, 16, FIELD_64),
    STATS(n_recomputed, 17, FIELD_64),
    STATS(n_refused, 18, FIELD_64),
    STATS(n_evicted_blocks, 19, FIELD_64),
    STATS(n_swapped_out, 20, FIELD_64),
    STATS(n_swapped_in, 21, FIELD_64),
    STATS(swap_usage, 22, FIELD_64),
    STATS(n_pins, 23, FIELD_32),
    STATS(n_pinned_blocks, 24, FIELD_32),
    STATS(token_budget, 25, FIELD_32),
    FIELD_SPAN(struct wire_stats, policy, 26, FIELD_TEXT, 0, WIRE_MAX_TEXT),
    FIELD_SPAN(struct wire_stats, figure_name, 27, FIELD_TEXT, 0, WIRE_MAX_TEXT),
    STATS(figure, 28, FIELD_64),
    {"tenants", 29, FIELD_WORDS, 0, offsetof(struct wire_stats, tenant_bytes), offsetof(struct wire_stats, n_tenants),
     offsetof(struct wire_stats, tenants), WIRE_TENANT_WORDS, WIRE_MAX_TENANTS},
    FIELD_SPAN(struct wire_stats, shadow_policy, 30, FIELD_TEXT, 0, WIRE_MAX_TEXT),
    STATS(n_shadow, 31, FIELD_64),
    STATS(n_shadow_refused, 32, FIELD_64),
    STATS(live_ttft_us, 33, FIELD_64),
    STATS(live_queue_us, 34, FIELD_64),
    STATS(shadow_ttft_us, 35, FIELD_64),
    STATS(shadow_queue_us, 36, FIELD_64),
    {"shadow_buckets", 37, FIELD_WORDS, 0, offsetof(struct wire_stats, shadow_bucket_bytes),
     offsetof(struct wire_stats, n_shadow_buckets), offsetof(struct wire_stats, shadow_buckets),
     WIRE_SHADOW_BUCKET_WORDS, WIRE_MAX_SHADOW_BUCKETS},
    STATS(n_step_tokens, 38, FIELD_64),
    {"step_buckets", 39, FIELD_WORDS, 0, offsetof(struct wire_stats, step_bucket_bytes),
     offsetof(struct wire_stats, n_step_buckets), offsetof(struct wire_stats, step_buckets), WIRE_STEP_BUCKET_WORDS,
     WIRE_MAX_STEP_BUCKETS},
    FIELD_SPAN(struct wire_stats, cache_dtype, 40, FIELD_TEXT, 0, WIRE_MAX_TEXT),
    STATS(prefix_caching, 41, FIELD_BOOL),
    STATS(n_host_blocks, 42, FIELD_32),
    STATS(n_drafts, 43, FIELD_64),
    STATS(n_draft_tokens, 44, FIELD_64),
    STATS(n_accepted_tokens, 45, FIELD_64),
    {"accepted_at", 46, FIELD_WORDS, 0, offsetof(struct wire_stats, accepted_at_bytes),
     offsetof(struct wire_stats, n_accepted_at), offsetof(struct wire_stats, accepted_at), WIRE_ACCEPTED_WORDS,
     WIRE_MAX_ACCEPTED},
    FIELD_SPAN(struct wire_stats, draft_method, 47, FIELD_TEXT, 0, WIRE_MAX_TEXT),
    STATS(draft_us, 48, FIELD_64),
    STATS(n_kept, 49, FIELD_32),
    STATS(n_kept_blocks, 50, FIELD_32),
    STATS(kept_bytes, 51, FIELD_64),
    {"rank_waits", 52, FIELD_WORDS, 0, offsetof(struct wire_stats, rank_wait_bytes),
     offsetof(struct wire_stats, n_rank_waits), offsetof(struct wire_stats, rank_waits), WIRE_RANK_WAIT_WORDS,
     WIRE_MAX_RANK_WAITS},
};
static const struct wire_stats stats_defaults;
static const struct wire_body stats_body = {"STATS", stats_rules, FIELD_COUNT(stats_rules), &stats_defaults,
                                            sizeof stats_defaults};

int wire_put_stats(struct buffer *b, const struct wire_stats *stats)
{
    return wire_put_body(b, WIRE_STATS, 0, &stats_body, stats);
}

int wire_get_stats(const uint8_t *body, size_t n, struct wire_stats *out, struct quire_error *err)
{
    return wire_get_body(&stats_body, body, n, out, err);
}

static void put_words(uint32_t *words, uint64_t value)
{
    words[0] = (uint32_t)value;
    words[1] = (uint32_t)(value >> 32);
}

void wire_shadow_bucket_put(uint32_t *words, const struct wire_shadow_bucket *bucket)
{
    put_words(words, bucket->bound_us);
    put_words(words + 2, bucket->n_live);
    put_words(words + 4, bucket->n_shadow);
}

void wire_shadow_bucket_get(const struct wire_stats *stats, uint32_t index, struct wire_shadow_bucket *out)
{
    const uint8_t *bytes = stats->shadow_bucket_bytes + 4 * (size_t)WIRE_SHADOW_BUCKET_WORDS * index;
    *out = (struct wire_shadow_bucket){
        .bound_us = le_load_u64(bytes),
        .n_live = le_load_u64(bytes + 8),
        .n_shadow = le_load_u64(bytes + 16),
    };
}

void wire_step_bucket_put(uint32_t *words, const struct wire_step_bucket *bucket)
{
    put_words(words, bucket->n_tokens);
    put_words(words + 2, bucket->n_steps);
}

void wire_step_bucket_get(const struct wire_stats *stats, uint32_t index, struct wire_step_bucket *out)
{
    const uint8_t *bytes = stats->step_bucket_bytes + 4 * (size_t)WIRE_STEP_BUCKET_WORDS * index;
    *out = (struct wire_step_bucket){.n_tokens = le_load_u64(bytes), .n_steps = le_load_u64(bytes + 8)};
}

void wire_accepted_put(uint32_t *words, uint64_t n_rows)
{
    put_words(words, n_rows);
}

uint64_t wire_accepted_get(const struct wire_stats *stats, uint32_t place)
{
    return le_load_u64(stats->accepted_at_bytes + 4 * (size_t)WIRE_ACCEPTED_WORDS * place);
}

void wire_rank_wait_put(uint32_t *words, uint64_t us)
{
    put_words(words, us);
}

uint64_t wire_rank_wait_get(const struct wire_stats *stats, uint32_t index)
{
    return le_load_u64(stats->rank_wait_bytes + 4 * (size_t)WIRE_RANK_WAIT_WORDS * index);
}

void wire_tenant_put(uint32_t *words, const struct wire_tenant *tenant)
{
    const uint64_t counters[] = {tenant->n_prompt_tokens, tenant->n_generated_tokens, tenant->n_prefix_queries,
                                 tenant->n_prefix_hits, tenant->n_evicted_blocks};
    for (uint32_t i = 0; i < 5; i++)
        put_words(words + 2 * i, counters[i]);
    words[10] = tenant->n_running;
    words[11] = tenant->n_waiting;
}

void wire_tenant_get(const struct wire_stats *stats, uint32_t index, struct wire_tenant *out)
{
    const uint8_t *bytes = stats->tenant_bytes + 4 * (size_t)WIRE_TENANT_WORDS * index;
    *out = (struct wire_tenant){
        .n_prompt_tokens = le_load_u64(bytes),
        .n_generated_tokens = le_load_u64(bytes + 8),
        .n_prefix_queries = le_load_u64(bytes + 16),
        .n_prefix_hits = le_load_u64(bytes + 24),
        .n_evicted_blocks = le_load_u64(bytes + 32),
        .n_running = le_load_u32(bytes + 40),
        .n_waiting = le_load_u32(bytes + 44),
    };
}

/* ---- the question ---- */

struct question {
    uint32_t n_tenants;
};
static const struct wire_field question_rules[] = {
    FIELD_SCALAR(struct question, n_tenants, 1, FIELD_32, 0, WIRE_MAX_TENANTS),
};
static const struct question question_defaults;
static const struct wire_body question_body = {"STATS", question_rules, FIELD_COUNT(question_rules), &question_defaults,
                                               sizeof question_defaults};

int wire_put_stats_request(struct buffer *b, uint32_t n_tenants)
{
    struct question question = {.n_tenants = n_tenants};
    return wire_put_body(b, WIRE_STATS, 0, &question_body, &question);
}

int wire_get_stats_request(const uint8_t *body, size_t n, uint32_t *n_tenants, struct quire_error *err)
{
    struct question question;
    int status = wire_get_body(&question_body, body, n, &question, err);
    if (!status)
        *n_tenants = question.n_tenants;
    return status;
}
