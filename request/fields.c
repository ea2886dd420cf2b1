#include "request/fields.h"

#include <string.h>

#define AT(member) offsetof(struct request_spec, member)
#define ROW(kind_, member_, name_, tag_, flags_) \
    .member = #member_, .name = name_, .tag = tag_, .kind = kind_, .flags = flags_, .at = AT(member_)
#define WHOLE(kind, member, name, tag, flags, least_, most_, ...) \
    {ROW(REQUEST_##kind, member, name, tag, flags), .range = {.least = least_, .most = most_}, __VA_ARGS__},
#define OPTION(kind, member, name, tag, flags, least_, most_, ...) \
    WHOLE(kind, member, name, tag, flags, least_, most_, .has_at = AT(has_##member), __VA_ARGS__)
#define NUMBER(member, tag, flags, low_, high_, ...) \
    {ROW(REQUEST_F32, member, #member, tag, flags), .range = {.low = low_, .high = high_}, __VA_ARGS__},
#define LIST(kind, member, name, tag, flags, most_, ...) \
    {ROW(REQUEST_##kind, member, name, tag, flags), .has_at = AT(n_##member), .range = {.most = most_}, __VA_ARGS__},
#define DRAWS (REQUEST_MUST | REQUEST_DRAWS)
#define BODY (REQUEST_MUST | REQUEST_DRAWS | REQUEST_IN_BODY)

const struct request_field request_fields[] = {REQUEST_ROWS(WHOLE, OPTION, NUMBER, LIST)};
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
