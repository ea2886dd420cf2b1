/* The frames DONE, VECTOR and STATS. */
#include "server/wire/decode.h"
#include "server/wire/encode.h"
#include "server/wire/fields.h"
#include "server/wire/frame.h"

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

/* Rows in the order of their tags: frames have this order. */
#define FIELD_OF_U32 FIELD_32
#define FIELD_OF_U64 FIELD_64
#define FIELD_OF_F64 FIELD_64
#define FIELD_OF_BOOL FIELD_BOOL
#define SCALAR(member, type, tag, ...) [tag - 1] = FIELD_SCALAR(struct wire_stats, member, tag, FIELD_OF_##type, 0, 0),
#define TEXT(member, tag) [tag - 1] = FIELD_SPAN(struct wire_stats, member, tag, FIELD_TEXT, 0, WIRE_MAX_TEXT),
#define LIST(member, tag, bytes, words, most) \
    [tag - 1] = {#member, \
                 tag, \
                 FIELD_WORDS, \
                 0, \
                 offsetof(struct wire_stats, bytes), \
                 offsetof(struct wire_stats, n_##member), \
                 offsetof(struct wire_stats, member), \
                 words, \
                 most},
#define STATS_TEXTS(TEXT) \
    TEXT(policy, 26) \
    TEXT(figure_name, 27) \
    TEXT(shadow_policy, 30) \
    TEXT(cache_dtype, 40) \
    TEXT(draft_method, 47)
#define STATS_LISTS(LIST) \
    LIST(tenants, 29, tenant_bytes, WIRE_TENANT_WORDS, WIRE_MAX_TENANTS) \
    LIST(shadow_buckets, 37, shadow_bucket_bytes, WIRE_SHADOW_BUCKET_WORDS, WIRE_MAX_SHADOW_BUCKETS) \
    LIST(step_buckets, 39, step_bucket_bytes, WIRE_STEP_BUCKET_WORDS, WIRE_MAX_STEP_BUCKETS) \
    LIST(accepted_at, 46, accepted_at_bytes, WIRE_ACCEPTED_WORDS, WIRE_MAX_ACCEPTED) \
    LIST(rank_waits, 52, rank_wait_bytes, WIRE_RANK_WAIT_WORDS, WIRE_MAX_RANK_WAITS) \
    LIST(expert_tokens, 58, expert_token_bytes, WIRE_EXPERT_WORDS, WIRE_MAX_EXPERTS)
static const struct wire_field stats_rules[] = {STATS_ROWS(SCALAR) STATS_TEXTS(TEXT) STATS_LISTS(LIST)};
#define ONE(...) +1
_Static_assert(FIELD_COUNT(stats_rules) == 0 STATS_ROWS(ONE) STATS_TEXTS(ONE) STATS_LISTS(ONE),
               "a tag was left out, or is there twice");
_Static_assert(FIELD_COUNT(stats_rules) <= 64, "wire_body takes no more");
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

void wire_expert_put(uint32_t *words, uint64_t n_tokens)
{
    put_words(words, n_tokens);
}

uint64_t wire_expert_get(const struct wire_stats *stats, uint32_t expert)
{
    return le_load_u64(stats->expert_token_bytes + 4 * (size_t)WIRE_EXPERT_WORDS * expert);
}

#define FITS(member, type, at, ...) \
    _Static_assert((at) + sizeof(STATS_C_##type) <= 4 * WIRE_TENANT_WORDS, #member ": is past the end of the record");
STATS_TENANT_ROWS(FITS)

/* Words are in the host's order (put_span() stores them). */
void wire_tenant_put(uint32_t *words, const struct wire_tenant *tenant)
{
#define PUT_U32(at, value) words[(at) / 4] = value
#define PUT_U64(at, value) put_words(words + (at) / 4, value)
#define PUT(member, type, at, ...) PUT_##type(at, tenant->member);
    STATS_TENANT_ROWS(PUT)
#undef PUT
}

void wire_tenant_get(const struct wire_stats *stats, uint32_t index, struct wire_tenant *out)
{
    const uint8_t *bytes = stats->tenant_bytes + 4 * (size_t)WIRE_TENANT_WORDS * index;
#define GET_U32(at) le_load_u32(bytes + (at))
#define GET_U64(at) le_load_u64(bytes + (at))
#define GET(member, type, at, ...) out->member = GET_##type(at);
    STATS_TENANT_ROWS(GET)
#undef GET
}

/* ---- the request for STATS ---- */

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
