#include "server/gateway/complete/question.h"

#include "server/http/query.h"
#include "text/quire_json.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 64

static bool read_text(const struct quire_doc *body, const char *name, char **out, size_t *n, struct api_error *e)
{
    const struct quire_value value = quire_doc_field(body, name);
    if (value.n == 0 || quire_value_kind(value) == QUIRE_NULL)
        return true;
    if (quire_value_kind(value) != QUIRE_STRING)
        return api_bad(e, name, "must be a string");
    return quire_value_text(value, out, n, NULL) == QUIRE_OK || api_no_memory(e);
}

static bool read_bool(const struct quire_doc *body, const char *name, bool *out, struct api_error *e)
{
    const struct quire_value value = quire_doc_field(body, name);
    if (value.n == 0)
        return true;
    if (quire_value_kind(value) != QUIRE_BOOL)
        return api_bad(e, name, "must be true or false");
    *out = value.text[0] == 't';
    return true;
}

bool question_read(struct question *q, const char *body, size_t n, struct api_error *e)
{
    struct quire_doc *doc;
    size_t n_model;
    *q = (struct question){.use_cache = true};
    int status = quire_doc_open(body ? body : "", n, MAX_DEPTH, "the body", &doc, &e->why);
    if (status != QUIRE_OK)
        return api_fail_status(e, status, NULL);
    bool ok = quire_value_kind(quire_doc_root(doc)) == QUIRE_OBJECT ||
              api_fail(e, 400, NULL, "invalid_value", "the body must be a JSON object");
    ok = ok && read_text(doc, "prompt", &q->prompt, &q->n_prompt, e) &&
         read_text(doc, "model", &q->model, &n_model, e) && read_bool(doc, "use_cache", &q->use_cache, e) &&
         read_bool(doc, "stream", &q->is_stream, e);
    quire_doc_close(doc);
    return ok && (q->prompt || api_bad(e, "prompt", "is missing"));
}

static bool query_text(const char *query, const char *name, char **out, size_t *n, struct api_error *e)
{
    struct buffer text = {0};
    const enum query_result result = query_value(query, name, &text);
    const bool ok = result != QUERY_INVALID || api_bad(e, name, "is not UTF-8 with valid escapes");
    if (ok && result == QUERY_FOUND && !buffer_text(&text)) {
        buffer_free(&text);
        return api_no_memory(e);
    }
    if (!ok || result == QUERY_ABSENT) {
        buffer_free(&text);
        return ok;
    }
    *out = text.data;
    *n = text.n;
    return true;
}

bool question_query(struct question *q, const char *query, struct api_error *e)
{
    static const char *const names[] = {"prompt", "model", "sentences"};
    char *sentences = NULL;
    size_t n = 0;
    *q = (struct question){.is_stream = true};
    if (!query_has_only(query, names, 3))
        return api_fail(e, 400, NULL, "invalid_value", "the query may have prompt, model and sentences only");
    bool ok = query_text(query, "prompt", &q->prompt, &q->n_prompt, e) &&
              query_text(query, "model", &q->model, &n, e) && query_text(query, "sentences", &sentences, &n, e);
    if (ok && sentences && strcmp(sentences, "0") != 0 && strcmp(sentences, "1") != 0)
        ok = api_bad(e, "sentences", "must be 0 or 1");
    q->in_sentences = sentences && sentences[0] == '1';
    free(sentences);
    return ok && (q->prompt || api_bad(e, "prompt", "is missing: GET /stream?prompt=TEXT"));
}

void question_free(struct question *q)
{
    free(q->prompt);
    free(q->model);
    *q = (struct question){0};
}

void question_put_body(const struct question *q, struct buffer *o)
{
    json_out_raw(o, "{\"messages\":[{\"role\":\"user\",\"content\":");
    json_out_string(o, q->prompt, q->n_prompt);
    json_out_raw(o, "}]");
    if (q->model) {
        json_out_raw(o, ",\"model\":");
        json_out_text(o, q->model);
    }
    json_out_raw(o, q->is_stream ? ",\"stream\":true}" : "}");
}

int question_key(const struct question *q, const char *tenant, struct key256 *out)
{
    struct buffer o = {0};
    json_out_raw(&o, "{\"max_tokens\": null, \"messages\": [{\"content\": ");
    json_out_string(&o, q->prompt, q->n_prompt);
    json_out_raw(&o, ", \"role\": \"user\"}], \"model\": ");
    json_out_text_or_null(&o, q->model);
    json_out_raw(&o, ", \"temperature\": null, \"tenant\": ");
    json_out_text(&o, tenant);
    json_out_raw(&o, "}");
    const int status = o.failed ? QUIRE_NO_MEMORY : QUIRE_OK;
    if (status == QUIRE_OK)
        *out = quire_sha256(o.data, o.n);
    buffer_free(&o);
    return status;
}
