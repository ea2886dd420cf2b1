/* TOKENS and PROMPT_LOGPROBS: one field of packed records, 8 bytes for a token without logprobs.
 *
 * The records' field comes first in the body, so a cursor is enough to store a reader's position.
 *   record: {u16 choice, u8 flags (1: has a logprob), u8 n_top, u32 token}
 *   with a logprob it continues: {f32 logprob, u32 rank}, n_top × {u32 id, f32 logprob} */
#include "server/wire/decode.h"
#include "server/wire/encode.h"
#include "server/wire/fields.h"
#include "server/wire/frame.h"

#include <string.h>

#define RECORDS_TAG 1u
#define HAS_LOGPROB 1u
#define RECORDS_AT (WIRE_HEADER_BYTES + TAGGED_HEADER_BYTES)

static uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

int wire_tokens_begin(struct buffer *b, uint16_t type, uint64_t request, size_t *mark)
{
    int status = wire_frame_begin(b, type, request, mark);
    if (status)
        return status;
    return tagged_put(b, RECORDS_TAG, true, 0) ? QUIRE_OK : QUIRE_NO_MEMORY;
}

int wire_tokens_add(struct buffer *b, const struct wire_token *token)
{
    uint32_t n_top = token->has_logprob ? token->n_top : 0;
    if (token->choice > UINT16_MAX || n_top > WIRE_MAX_TOP)
        return QUIRE_INVALID;
    uint8_t *p = buffer_reserve(b, WIRE_MAX_TOKEN_RECORD);
    if (!p)
        return QUIRE_NO_MEMORY;
    le_store_u16(p, token->choice);
    p[2] = token->has_logprob ? HAS_LOGPROB : 0;
    p[3] = (uint8_t)n_top;
    le_store_u32(p + 4, token->token);
    b->n += 8;
    if (!token->has_logprob)
        return QUIRE_OK;
    le_store_u32(p + 8, float_bits(token->logprob));
    le_store_u32(p + 12, token->rank);
    for (uint32_t i = 0; i < n_top; i++) {
        le_store_u32(p + 16 + 8 * i, token->top_ids[i]);
        le_store_u32(p + 20 + 8 * i, float_bits(token->top_logprobs[i]));
    }
    b->n += 8 + 8 * n_top;
    return QUIRE_OK;
}

int wire_tokens_end(struct buffer *b, size_t mark)
{
    if (b->failed)
        return QUIRE_NO_MEMORY;
    size_t n = b->n - mark - RECORDS_AT;
    if (n == 0) {
        b->n = mark;
        return QUIRE_INVALID;
    }
    int status = wire_frame_end(b, mark);
    if (!status)
        le_store_u32(b->data + mark + WIRE_HEADER_BYTES + 4, (uint32_t)n);
    return status;
}

static int put_tokens(struct buffer *b, uint16_t type, uint64_t request, const struct wire_token *tokens,
                      uint32_t n_tokens)
{
    size_t mark;
    int status = wire_tokens_begin(b, type, request, &mark);
    if (status)
        return status;
    for (uint32_t i = 0; i < n_tokens && !status; i++) {
        status = wire_tokens_add(b, &tokens[i]);
        if (!status && b->n - mark > WIRE_MAX_BODY)
            status = QUIRE_INVALID;
    }
    if (!status)
        return wire_tokens_end(b, mark);
    b->n = mark;
    return status;
}

int wire_put_tokens(struct buffer *b, uint64_t request, const struct wire_token *tokens, uint32_t n_tokens)
{
    return put_tokens(b, WIRE_TOKENS, request, tokens, n_tokens);
}

int wire_put_prompt_logprobs(struct buffer *b, uint64_t request, const struct wire_token *tokens, uint32_t n_tokens)
{
    return put_tokens(b, WIRE_PROMPT_LOGPROBS, request, tokens, n_tokens);
}

/* Checks the framing of the whole body once; *end is the end of the records. */
static int check_body(const uint8_t *body, size_t n, size_t *end, struct quire_error *err)
{
    size_t cursor = 0, n_fields = 0;
    struct tagged t;
    int found;
    while ((found = tagged_next("TOKENS", body, n, &cursor, &t, err)) > 0) {
        if (++n_fields > WIRE_MAX_FIELDS)
            return quire_fail(err, QUIRE_INVALID, "TOKENS: more than %u fields", WIRE_MAX_FIELDS);
        bool is_records = t.tag == RECORDS_TAG;
        if (is_records != (n_fields == 1))
            return quire_fail(err, QUIRE_INVALID, "TOKENS: records: must be the first field, once");
        if (!is_records && t.must)
            return quire_fail(err, QUIRE_UNSUPPORTED, "TOKENS: field %u is not known here", t.tag);
        if (is_records)
            *end = cursor;
    }
    if (found < 0)
        return -found;
    if (n_fields == 0 || *end == TAGGED_HEADER_BYTES)
        return quire_fail(err, QUIRE_INVALID, "TOKENS: records: missing or empty");
    return QUIRE_OK;
}

int wire_next_token(const uint8_t *body, size_t n, size_t *cursor, struct wire_token *out, struct quire_error *err)
{
    size_t end = 0;
    if (*cursor == 0) {
        int status = check_body(body, n, &end, err);
        if (status)
            return -status;
        *cursor = TAGGED_HEADER_BYTES;
    } else {
        end = TAGGED_HEADER_BYTES + le_load_u32(body + 4);
    }
    size_t left = end - *cursor;
    if (left == 0)
        return 0;
    const uint8_t *p = body + *cursor;
    if (left < 8)
        return -quire_fail(err, QUIRE_INVALID, "TOKENS: records: the last one is cut short");
    if (p[2] & ~HAS_LOGPROB)
        return -quire_fail(err, QUIRE_INVALID, "TOKENS: records: flags: must be 0 or 1, got %u", p[2]);
    out->choice = le_load_u16(p);
    out->token = le_load_u32(p + 4);
    out->has_logprob = p[2] & HAS_LOGPROB;
    out->n_top = p[3];
    out->logprob = 0.0f;
    out->rank = 0;
    if (out->n_top > WIRE_MAX_TOP || (out->n_top > 0 && !out->has_logprob))
        return -quire_fail(err, QUIRE_INVALID, "TOKENS: records: n_top: %u is too many", out->n_top);
    size_t need = out->has_logprob ? 16 + 8 * (size_t)out->n_top : 8;
    if (left < need)
        return -quire_fail(err, QUIRE_INVALID, "TOKENS: records: the last one is cut short");
    if (out->has_logprob) {
        out->logprob = float_of(le_load_u32(p + 8));
        out->rank = le_load_u32(p + 12);
        for (uint32_t i = 0; i < out->n_top; i++) {
            out->top_ids[i] = le_load_u32(p + 16 + 8 * i);
            out->top_logprobs[i] = float_of(le_load_u32(p + 20 + 8 * i));
        }
    }
    *cursor += need;
    return 1;
}
