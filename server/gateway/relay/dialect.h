/* Messages requests for upstream servers that speak OpenAI's API only: joins the translation (messages/) with an
 * attempt. Loop's thread. */
#ifndef QUIRE_GATEWAY_DIALECT_H
#define QUIRE_GATEWAY_DIALECT_H

#include "base/buffer.h"
#include "server/gateway/messages/translate.h"
#include "server/gateway/relay/body.h"

#include <stdbool.h>
#include <stddef.h>

#define DIALECT_PATH "/v1/chat/completions" /* of the translated requests */

struct dialect { /* zeroed: nothing is translated */
    bool is_on;
    struct translate_facts facts;
    struct translate_stream stream;
};

/* Whether a target with a URL cannot take the request at all: it has no route that counts tokens. Fills in a 501. */
bool dialect_lacks(enum relay_api api, const char *target, struct api_error *e);
/* Whether the request is to be translated for a target with a URL. */
bool dialect_is_needed(enum relay_api api);
/* Begins, and appends the body for the target. model: the name that the client knows; upstream: that of the target.
 * id: of the request, borrowed until dialect_free(), as model is. Returns false with an error that names the field. */
bool dialect_begin(struct dialect *d, const struct relay_body *body, const char *upstream, const char *model,
                   const char *id, struct buffer *out, struct api_error *e);
void dialect_free(struct dialect *d);

/* Each returns false with the reason in why: the upstream server's reply is wrong. */
bool dialect_event(struct dialect *d, const char *data, size_t n, struct buffer *out, struct api_error *why);
/* The stream has ended. cost: in dollars, for the usage; NULL: not known. */
bool dialect_end(struct dialect *d, bool is_done, const char *cost, struct buffer *out, struct api_error *why);
/* Translates a whole reply in its place. */
bool dialect_reply(struct dialect *d, struct buffer *reply, struct api_error *why);

#endif
