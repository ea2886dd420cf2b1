#include "server/bulk/run/line.h"

#include "text/quire_json.h"

#include <stdbool.h>
#include <stdio.h>

static const char *const endpoints[] = {"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"};
#define N_ENDPOINTS (sizeof endpoints / sizeof *endpoints)

const char *bulk_endpoint(size_t i)
{
    return i < N_ENDPOINTS ? endpoints[i] : NULL;
}

static int read_custom_id(const struct quire_doc *doc, struct bulk_line *out, struct quire_error *err)
{
    const struct quire_value id = quire_doc_field(doc, "custom_id");
    if (quire_value_kind(id) != QUIRE_STRING || id.n == 2)
        return quire_fail(err, QUIRE_INVALID, "custom_id: must be a string of 1 to %d bytes", BULK_MAX_CUSTOM_ID - 2);
    if (id.n > BULK_MAX_CUSTOM_ID)
        return quire_fail(err, QUIRE_INVALID, "custom_id: has %zu bytes; at most %d are allowed", id.n - 2,
                          BULK_MAX_CUSTOM_ID - 2);
    out->custom_id = id.text;
    out->n_custom_id = id.n;
    return QUIRE_OK;
}

static int read_url(const struct quire_doc *doc, const char *expected, struct bulk_line *out, struct quire_error *err)
{
    const struct quire_value url = quire_doc_field(doc, "url"), method = quire_doc_field(doc, "method");
    if (!quire_value_is(method, "POST"))
        return quire_fail(err, QUIRE_INVALID, "method: must be \"POST\"");
    if (expected) {
        out->url = quire_value_is(url, expected) ? expected : NULL;
        return out->url ? QUIRE_OK
                        : quire_fail(err, QUIRE_INVALID, "url: must be \"%s\", the endpoint of the batch", expected);
    }
    for (size_t i = 0; i < N_ENDPOINTS; i++)
        if (quire_value_is(url, endpoints[i]))
            out->url = endpoints[i];
    return out->url ? QUIRE_OK
                    : quire_fail(err, QUIRE_INVALID, "url: must be one of %s, %s, %s, %s", endpoints[0], endpoints[1],
                                 endpoints[2], endpoints[3]);
}

static int read_body(const struct quire_doc *doc, const char *field, struct bulk_line *out, struct quire_error *err)
{
    const struct quire_value body = quire_doc_field(doc, field);
    if (quire_value_kind(body) != QUIRE_OBJECT)
        return quire_fail(err, QUIRE_INVALID, "%s: must be an object, the body of a request", field);
    const struct quire_value stream = quire_value_member(body, "stream");
    if (quire_value_kind(stream) == QUIRE_BOOL && stream.text[0] == 't')
        return quire_fail(err, QUIRE_INVALID, "%s.stream: must be false; a batch has whole replies", field);
    out->body = body.text;
    out->n_body = body.n;
    return QUIRE_OK;
}

int bulk_line_read(const char *text, size_t n_bytes, enum bulk_dialect dialect, const char *url, struct bulk_line *out,
                   struct quire_error *err)
{
    struct quire_doc *doc;
    *out = (struct bulk_line){0};
    if (n_bytes > BULK_MAX_LINE_BYTES)
        return quire_fail(err, QUIRE_INVALID, "the line has %zu bytes; at most %zu are allowed", n_bytes,
                          BULK_MAX_LINE_BYTES);
    int status = quire_doc_open(text, n_bytes, BULK_MAX_DEPTH, "the line", &doc, err);
    if (status != QUIRE_OK)
        return status;
    if (quire_value_kind(quire_doc_root(doc)) != QUIRE_OBJECT)
        status = quire_fail(err, QUIRE_INVALID, "the line must be a JSON object");
    if (status == QUIRE_OK)
        status = read_custom_id(doc, out, err);
    if (status == QUIRE_OK && dialect == BULK_OPENAI)
        status = read_url(doc, url, out, err);
    if (status == QUIRE_OK && dialect == BULK_ANTHROPIC)
        out->url = BULK_MESSAGES_URL;
    if (status == QUIRE_OK)
        status = read_body(doc, dialect == BULK_OPENAI ? "body" : "params", out, err);
    quire_doc_close(doc);
    return status;
}
