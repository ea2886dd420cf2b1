/* A request of POST /complete or GET /stream: what it says, and the body of the chat that answers it. Pure. */
#ifndef QUIRE_GATEWAY_QUESTION_H
#define QUIRE_GATEWAY_QUESTION_H

#include "base/buffer.h"
#include "base/hash.h"
#include "server/front/api/api_error.h"

#include <stdbool.h>
#include <stddef.h>

struct question {
    char *prompt; /* malloc'd */
    size_t n_prompt;
    char *model; /* malloc'd; NULL: not set */
    bool use_cache, is_stream;
    bool in_sentences; /* of a stream */
};

/* Reads the body of POST /complete. Returns false with an error that names the field; the question is to be freed also
 * then. */
bool question_read(struct question *q, const char *body, size_t n, struct api_error *e);
/* Reads the query of GET /stream. */
bool question_query(struct question *q, const char *query, struct api_error *e);
void question_free(struct question *q);

/* Appends the body for /v1/chat/completions. */
void question_put_body(const struct question *q, struct buffer *o);
/* SHA-256 of JSON with sorted keys: {max_tokens, messages, model, temperature, tenant}. Requests of another tenant
 * have other keys. QUIRE_NO_MEMORY. */
int question_key(const struct question *q, const char *tenant, struct key256 *out);

#endif
