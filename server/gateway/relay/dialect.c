#include "server/gateway/relay/dialect.h"

#define MAX_DEPTH 64 /* relay_body_read() has checked the body before */

bool dialect_lacks(enum relay_api api, const char *target, struct api_error *e)
{
    if (api != RELAY_COUNT_TOKENS)
        return false;
    api_fail(e, 501, NULL, "not_supported",
             "target %.60s is an OpenAI-compatible server, which has no route that counts tokens", target);
    return true;
}

bool dialect_is_needed(enum relay_api api)
{
    return api == RELAY_MESSAGES;
}

bool dialect_begin(struct dialect *d, const struct relay_body *body, const char *upstream, const char *model,
                   const char *id, struct buffer *out, struct api_error *e)
{
    struct quire_doc *doc;
    int status = quire_doc_open(body->text, body->n, MAX_DEPTH, "the body", &doc, &e->why);
    if (status != QUIRE_OK)
        return api_fail_status(e, status, NULL);
    const bool ok = translate_request(out, doc, upstream, &d->facts, e);
    quire_doc_close(doc);
    if (!ok)
        return false;
    d->is_on = true;
    translate_stream_begin(&d->stream, id, model, d->facts.is_eager);
    return true;
}

void dialect_free(struct dialect *d)
{
    if (d->is_on)
        translate_stream_free(&d->stream);
    *d = (struct dialect){0};
}

bool dialect_event(struct dialect *d, const char *data, size_t n, struct buffer *out, struct api_error *why)
{
    return translate_stream_event(&d->stream, data, n, out, why);
}

bool dialect_end(struct dialect *d, bool is_done, const char *cost, struct buffer *out, struct api_error *why)
{
    return translate_stream_end(&d->stream, is_done, cost, out, why);
}

bool dialect_reply(struct dialect *d, struct buffer *reply, struct api_error *why)
{
    struct buffer out = {0};
    const char *text = reply->data ? reply->data : "";
    if (!translate_reply(&out, text, reply->n, d->stream.model, d->stream.id, why)) {
        buffer_free(&out);
        return false;
    }
    buffer_free(reply);
    *reply = out;
    return true;
}
