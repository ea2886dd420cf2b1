#include "request/fields.h"

#include <string.h>

#define AT(member) offsetof(struct request_spec, member)
#define ROW(kind_, member_, name_, tag_, flags_) \
    .member = #member_, .name = name_, .tag = tag_, .kind = kind_, .flags = flags_, .at = AT(member_)
#define WHOLE(kind, member, name, tag, flags, least_, most_, ...) \
    {ROW(kind, member, name, tag, flags), .range = {.least = least_, .most = most_}, __VA_ARGS__}
#define NUMBER(member, tag, flags, low_, high_, ...) \
    {ROW(REQUEST_F32, member, #member, tag, flags), .range = {.low = low_, .high = high_}, __VA_ARGS__}
#define LIST(kind, member, name, tag, flags, most_, ...) \
    {ROW(kind, member, name, tag, flags), .has_at = AT(n_##member), .range = {.most = most_}, __VA_ARGS__}
#define DRAWS (REQUEST_MUST | REQUEST_DRAWS)
#define BODY (REQUEST_MUST | REQUEST_DRAWS | REQUEST_IN_BODY)

const struct request_field request_fields[] = {
    LIST(REQUEST_IDS, prompt, "prompt", 1, DRAWS | REQUEST_REQUIRED, REQUEST_MAX_PROMPT),
    WHOLE(REQUEST_U32, max_tokens, "max_tokens", 2, DRAWS | REQUEST_REQUIRED, 0, UINT32_MAX),
    WHOLE(REQUEST_U32, n, "n", 3, BODY, 1, REQUEST_MAX_CHOICES,
          .about = "Number of choices. Must be 1 in responses and messages."),
    WHOLE(REQUEST_U32, min_tokens, "min_tokens", 4, BODY, 0, UINT32_MAX, .body = {.most = INT32_MAX}),
    NUMBER(temperature, 5, BODY | REQUEST_MODELS, 0, 1000, .body = {.high = 2}, .about = "0 is greedy."),
    NUMBER(top_p, 6, BODY | REQUEST_MODELS | REQUEST_ABOVE, 0, 1, .body = {.high = 1}, .about = "0 is greedy."),
    NUMBER(min_p, 7, BODY | REQUEST_MODELS, 0, 1),
    WHOLE(REQUEST_U32, top_k, "top_k", 8, BODY | REQUEST_MODELS, 0, UINT32_MAX,
          .body = {.least = -1, .most = INT32_MAX}, .about = "-1 and 0: off."),
    /* The lower bound excludes values such as 1 / 10^38, which turn a logit of 4 into infinity. */
    NUMBER(repetition_penalty, 9, BODY | REQUEST_MODELS, 0.001, 1000),
    NUMBER(presence_penalty, 10, BODY, -2, 2),
    NUMBER(frequency_penalty, 11, BODY, -2, 2),
    WHOLE(REQUEST_U64, seed, "seed", 12, BODY, 0, 0, .has_at = AT(has_seed),
          .body = {.least = INT64_MIN, .most = UINT64_MAX},
          .about = "The same request with the same seed gets the same bits."),
    WHOLE(REQUEST_BOOL, ignore_eos, "ignore_eos", 13, BODY, 0, 1),
    WHOLE(REQUEST_I32, n_logprobs, "logprobs", 14, DRAWS, -1, REQUEST_MAX_LOGPROBS),
    WHOLE(REQUEST_I32, n_prompt_logprobs, "prompt_logprobs", 15, DRAWS, -1, REQUEST_MAX_LOGPROBS),
    WHOLE(REQUEST_I32, priority, "priority", 16, REQUEST_IN_BODY, INT32_MIN, INT32_MAX,
          .about = "Lower values run first."),
    WHOLE(REQUEST_U64, deadline_us, "deadline", 17, 0, 0, REQUEST_MAX_US),
    WHOLE(REQUEST_KEY, cache_domain, "cache_domain", 18, REQUEST_MUST | REQUEST_PRIVATE, 0, 0),
    LIST(REQUEST_IDS, stop_token_ids, "stop_token_ids", 19, BODY, REQUEST_MAX_STOP_TOKEN_IDS),
    LIST(REQUEST_BIASES, biases, "logit_bias", 20, BODY, REQUEST_MAX_BIASES, .body = {.low = -100, .high = 100},
         .about = "Bias per token id."),
    WHOLE(REQUEST_U32, tenant, "tenant", 21, 0, 0, UINT32_MAX),
    WHOLE(REQUEST_U32, class_index, "class", 22, 0, 0, UINT32_MAX),
    WHOLE(REQUEST_BOOL, background, "background", 23, REQUEST_IN_BODY, 0, 1,
          .about = "Runs after every request without this flag. Not supported in responses."),
    WHOLE(REQUEST_U64, pin_us, "pin", 24, REQUEST_MUST, 0, REQUEST_MAX_US),
    WHOLE(REQUEST_U32, expected_tokens, "expected_tokens", 25, 0, 0, UINT32_MAX),
    LIST(REQUEST_IDS, allowed_token_ids, "allowed_token_ids", 26, BODY | REQUEST_NOT_EMPTY,
         REQUEST_MAX_ALLOWED_TOKEN_IDS, .about = "Restricts sampling to these tokens."),
    LIST(REQUEST_IDS, bad_words, "bad_words", 27, DRAWS, REQUEST_MAX_BAD_WORDS),
    WHOLE(REQUEST_U32, max_drafts, "num_speculative_tokens", 28, 0, 0, UINT32_MAX),
    WHOLE(REQUEST_U32, draft_method, "speculative", 29, 0, 0, UINT32_MAX),
    LIST(REQUEST_IDS, prediction, "prediction", 30, 0, REQUEST_MAX_PROMPT),
    WHOLE(REQUEST_BOOL, wants_vector, "wants_vector", 31, DRAWS, 0, 1),
    WHOLE(REQUEST_U32, segment_from, "segment_from", 32, DRAWS, 0, REQUEST_MAX_PROMPT),
    WHOLE(REQUEST_U64, keep_us, "keep", 33, 0, 0, REQUEST_MAX_US),
    WHOLE(REQUEST_U64, keep_name, "keep_name", 34, 0, 0, 0),
    LIST(REQUEST_IDS, given, "given", 35, REQUEST_OLD, REQUEST_MAX_GIVEN),
    LIST(REQUEST_BYTES, grammar, "grammar", 36, DRAWS, REQUEST_MAX_GRAMMAR),
};
const size_t request_n_fields = sizeof request_fields / sizeof request_fields[0];

const struct request_spec request_defaults = {
    .n = 1,
    .max_drafts = UINT32_MAX,
    .temperature = 1.0f,
    .top_p = 1.0f,
    .repetition_penalty = 1.0f,
    .n_logprobs = -1,
    .n_prompt_logprobs = -1,
};

const struct request_layout request_spec_layout = {
    .rows = request_fields,
    .n_rows = sizeof request_fields / sizeof request_fields[0],
    .defaults = &request_defaults,
    .struct_bytes = sizeof request_defaults,
};

const struct request_field *request_field_find(const char *member)
{
    for (size_t i = 0; i < request_n_fields; i++)
        if (strcmp(request_fields[i].member, member) == 0)
            return &request_fields[i];
    return NULL;
}

size_t request_field_bytes(const struct request_field *field)
{
    switch ((enum request_kind)field->kind) {
    case REQUEST_BOOL: return sizeof(bool);
    case REQUEST_U32:
    case REQUEST_I32:
    case REQUEST_F32: return 4;
    case REQUEST_U64:
    case REQUEST_F64: return 8;
    case REQUEST_KEY: return sizeof(struct key256);
    case REQUEST_IDS: return sizeof(uint32_t);
    case REQUEST_BYTES: return 1;
    case REQUEST_BIASES: return sizeof(struct request_bias);
    }
    return 0;
}

void request_field_set_list(const struct request_field *field, void *values, struct request_list list)
{
    memcpy((char *)values + field->at, &list.items, sizeof list.items);
    memcpy((char *)values + field->has_at, &list.n, sizeof list.n);
}

void request_layout_default(const struct request_layout *layout, void *values)
{
    for (size_t i = 0; i < layout->n_rows; i++) {
        const struct request_field *f = &layout->rows[i];
        if (request_field_is_list(f)) {
            request_field_set_list(f, values, request_field_list(f, layout->defaults));
            continue;
        }
        memcpy((char *)values + f->at, (const char *)layout->defaults + f->at, request_field_bytes(f));
        if (f->has_at)
            memcpy((char *)values + f->has_at, (const char *)layout->defaults + f->has_at, sizeof(bool));
    }
}

bool request_layout_is_default(const struct request_layout *layout, const struct request_field *field,
                               const void *values)
{
    bool has;
    if (field->flags & REQUEST_REQUIRED)
        return false;
    if (request_field_is_list(field))
        return request_field_list(field, values).n == 0;
    if (field->has_at) {
        memcpy(&has, (const char *)values + field->has_at, sizeof has);
        return !has;
    }
    return memcmp((const char *)values + field->at, (const char *)layout->defaults + field->at,
                  request_field_bytes(field)) == 0;
}

bool request_field_is_default(const struct request_field *field, const struct request_spec *spec)
{
    return request_layout_is_default(&request_spec_layout, field, spec);
}

const struct request_range *request_field_body(const struct request_field *field)
{
    static const struct request_range none;
    return memcmp(&field->body, &none, sizeof none) == 0 ? &field->range : &field->body;
}
