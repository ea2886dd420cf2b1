/* The body of a request: what the gateway reads of it, and the body that a target gets, with the target's own model name.
 * Everything else passes unchanged, so that fields that the gateway does not know reach the target. Pure; any thread.
 */
#ifndef QUIRE_GATEWAY_BODY_H
#define QUIRE_GATEWAY_BODY_H

#include "base/buffer.h"
#include "server/front/api/api_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The APIs whose requests name a model. */
enum relay_api {
    RELAY_CHAT,
    RELAY_COMPLETIONS,
    RELAY_RESPONSES,
    RELAY_MESSAGES,
    RELAY_COUNT_TOKENS,
    RELAY_EMBEDDINGS,
    RELAY_OTHER, /* scores, tokenizing, pins: no text is generated */
};

/* A value in the text; n is 0 if it is absent. */
struct body_part {
    size_t at, n;
};

/* A field that limits the answer's tokens. */
struct body_limit {
    struct body_part part;
    bool is_null;
    uint64_t n; /* 0: no positive whole number */
};

struct relay_body {
    enum relay_api api;
    char *text; /* n bytes, owned */
    size_t n;
    struct body_part model, stream_options, include_usage;
    size_t inside; /* behind the opening brace */
    bool is_empty; /* {} */
    bool has_options; /* stream_options is an object with members */
    char *asked; /* the model's name, owned; NULL: absent or null */
    size_t n_asked;
    char *prompt; /* the text of the last user message, owned; NULL: none, or nobody asked for it */
    size_t n_prompt;
    char *user; /* who asks, owned; NULL: the body does not say, or nobody asked for it */
    size_t n_user;
    bool is_stream, wants_usage; /* wants_usage: of a stream, the client said include_usage */
    struct body_limit limits[2]; /* a chat has two names for one limit, and the target may read either */
    uint64_t n_max_tokens; /* the larger limit; 0: not set */
    const char *max_tokens_name; /* static; its field, else the one to set; NULL: the API has none */
    uint64_t n_choices;
};

/* Takes text (malloc'd, also on failure; NULL: no body). with_prompt: also reads the prompt and the user,
 * for routes. Returns false with a 400. */
bool relay_body_read(struct relay_body *b, enum relay_api api, char *text, size_t n, bool with_prompt,
                     struct api_error *e);
void relay_body_free(struct relay_body *b);

struct relay_target_body {
    const char *model; /* the name that the target knows */
    bool adds_usage; /* stream_options.include_usage is set to true */
    uint32_t max_tokens; /* is set if the request sets none; 0: nothing */
};
/* Appends the body for a target. Out of memory: out->failed. */
void relay_body_write(const struct relay_body *b, const struct relay_target_body *how, struct buffer *out);
/* Estimated tokens of the prompt and of the answers: four bytes for a token. */
uint64_t relay_body_prompt_tokens(const struct relay_body *b);
uint64_t relay_body_answer_tokens(const struct relay_body *b);

#endif
