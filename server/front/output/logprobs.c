#include "server/front/output/logprobs.h"

#include <stdlib.h>
#include <string.h>

/* The bytes of a token; empty for an id outside the tokenizer. free(*bytes). */
static void get_bytes(const struct logprobs_style *style, uint32_t id, uint8_t **bytes, size_t *n)
{
    if (quire_text_token_bytes(style->text, id, bytes, n, NULL) != QUIRE_OK) {
        *bytes = NULL;
        *n = 0;
    }
}

static void put_name(struct buffer *o, const struct logprobs_style *style, uint32_t id, const uint8_t *bytes, size_t n)
{
    if (!style->as_ids) {
        json_out_string(o, (const char *)bytes, n);
        return;
    }
    json_out_raw(o, "\"token_id:");
    json_out_u64(o, id);
    json_out_raw(o, "\"");
}

static void put_token(struct buffer *o, const struct logprobs_style *style, uint32_t id)
{
    uint8_t *bytes = NULL;
    size_t n = 0;
    if (!style->as_ids)
        get_bytes(style, id, &bytes, &n);
    put_name(o, style, id, bytes, n);
    free(bytes);
}

static void put_chat_token(struct buffer *o, const struct logprobs_style *style, uint32_t id, float logprob)
{
    uint8_t *bytes;
    size_t n;
    get_bytes(style, id, &bytes, &n);
    json_out_raw(o, "\"token\":");
    put_name(o, style, id, bytes, n);
    json_out_raw(o, ",\"logprob\":");
    json_out_logprob(o, logprob);
    json_out_raw(o, ",\"bytes\":");
    json_out_byte_array(o, bytes, n);
    free(bytes);
}

void logprobs_chat_entry(struct buffer *o, const struct logprobs_style *style, const struct wire_token *token)
{
    json_out_raw(o, "{");
    put_chat_token(o, style, token->token, token->has_logprob ? token->logprob : 0);
    json_out_raw(o, ",\"top_logprobs\":[");
    for (uint32_t i = 0; i < token->n_top && i < style->n_top; i++) {
        json_out_raw(o, i > 0 ? ",{" : "{");
        put_chat_token(o, style, token->top_ids[i], token->top_logprobs[i]);
        json_out_raw(o, "}");
    }
    json_out_raw(o, "]}");
}

void logprobs_arrays_free(struct logprobs_arrays *a)
{
    buffer_free(&a->tokens);
    buffer_free(&a->token_logprobs);
    buffer_free(&a->top_logprobs);
    buffer_free(&a->text_offset);
    a->n = 0;
}

void logprobs_arrays_clear(struct logprobs_arrays *a)
{
    buffer_clear(&a->tokens);
    buffer_clear(&a->token_logprobs);
    buffer_clear(&a->top_logprobs);
    buffer_clear(&a->text_offset);
    a->n = 0;
}

uint64_t logprobs_arrays_bytes(const struct logprobs_arrays *a)
{
    return a->tokens.n + a->token_logprobs.n + a->top_logprobs.n + a->text_offset.n;
}

#define MAX_KEYS 21 /* 20 alternatives and the token itself */

/* An object's keys are token strings, and two tokens may have the same string: the more likely one stays. */
struct keys {
    size_t at[MAX_KEYS], n[MAX_KEYS], count;
};

static void put_top(struct buffer *o, const struct logprobs_style *style, struct keys *keys, uint32_t id, float logprob)
{
    size_t begin = o->n;
    if (keys->count > 0)
        json_out_raw(o, ",");
    size_t key = o->n;
    put_token(o, style, id);
    size_t n = o->n - key;
    if (o->failed)
        return;
    for (size_t i = 0; i < keys->count; i++) {
        if (keys->n[i] == n && memcmp(o->data + keys->at[i], o->data + key, n) == 0) {
            o->n = begin;
            return;
        }
    }
    keys->at[keys->count] = key;
    keys->n[keys->count++] = n;
    json_out_raw(o, ":");
    json_out_logprob(o, logprob);
}

void logprobs_arrays_add(struct logprobs_arrays *a, const struct logprobs_style *style, const struct wire_token *token,
                         uint64_t offset)
{
    if (a->n++ > 0) {
        json_out_raw(&a->tokens, ",");
        json_out_raw(&a->token_logprobs, ",");
        json_out_raw(&a->top_logprobs, ",");
        json_out_raw(&a->text_offset, ",");
    }
    put_token(&a->tokens, style, token->token);
    json_out_u64(&a->text_offset, offset);
    if (!token->has_logprob) {
        json_out_raw(&a->token_logprobs, "null");
        json_out_raw(&a->top_logprobs, "null");
        return;
    }
    json_out_logprob(&a->token_logprobs, token->logprob);
    /* The token itself is always included, as in OpenAI's API. */
    struct keys keys = {.count = 0};
    bool has_own = false;
    json_out_raw(&a->top_logprobs, "{");
    for (uint32_t i = 0; i < token->n_top && i < style->n_top; i++) {
        has_own |= token->top_ids[i] == token->token;
        put_top(&a->top_logprobs, style, &keys, token->top_ids[i], token->top_logprobs[i]);
    }
    if (!has_own)
        put_top(&a->top_logprobs, style, &keys, token->token, token->logprob);
    json_out_raw(&a->top_logprobs, "}");
}

static void put_array(struct buffer *o, const char *name, const struct buffer *first, const struct buffer *second)
{
    json_out_raw(o, name);
    if (first)
        buffer_append(o, first->data, first->n);
    if (first && first->n > 0 && second->n > 0)
        json_out_raw(o, ",");
    buffer_append(o, second->data, second->n);
    o->failed |= second->failed || (first && first->failed);
}

void logprobs_arrays_json(struct buffer *o, const struct logprobs_arrays *first, const struct logprobs_arrays *second)
{
    put_array(o, "{\"tokens\":[", first ? &first->tokens : NULL, &second->tokens);
    put_array(o, "],\"token_logprobs\":[", first ? &first->token_logprobs : NULL, &second->token_logprobs);
    put_array(o, "],\"top_logprobs\":[", first ? &first->top_logprobs : NULL, &second->top_logprobs);
    put_array(o, "],\"text_offset\":[", first ? &first->text_offset : NULL, &second->text_offset);
    json_out_raw(o, "]}");
}

static void put_ranked(struct buffer *o, const struct logprobs_style *style, uint32_t id, float logprob, uint32_t rank)
{
    json_out_raw(o, "\"");
    json_out_u64(o, id);
    json_out_raw(o, "\":{\"logprob\":");
    json_out_logprob(o, logprob);
    json_out_raw(o, ",\"rank\":");
    json_out_u64(o, rank);
    json_out_raw(o, ",\"decoded_token\":");
    put_token(o, style, id);
    json_out_raw(o, "}");
}

void logprobs_prompt_entry(struct buffer *o, const struct logprobs_style *style, const struct wire_token *token)
{
    bool has_own = false;
    json_out_raw(o, "{");
    for (uint32_t i = 0; i < token->n_top && i < style->n_top; i++) {
        if (i > 0)
            json_out_raw(o, ",");
        has_own |= token->top_ids[i] == token->token;
        put_ranked(o, style, token->top_ids[i], token->top_logprobs[i], i + 1);
    }
    if (!has_own) {
        if (token->n_top > 0 && style->n_top > 0)
            json_out_raw(o, ",");
        put_ranked(o, style, token->token, token->logprob, token->rank);
    }
    json_out_raw(o, "}");
}
