/* Ollama's /api/embed, and /api/embeddings of older clients: bodies of /v1/embeddings under other names. */
#include "server/front/ollama/ollama.h"

#include "base/clock.h"
#include "server/front/fields/field_shape.h"
#include "server/front/ollama/ollama_read.h"
#include "server/front/vectors/vectors.h"

/* Reads a body of /v1/embeddings with the texts of this field. Vectors have length 1, as Ollama's do. */
static bool read_texts(struct request_job *j, const struct quire_doc *body, const char *field)
{
    struct buffer o = {0};
    struct quire_doc *own = NULL;
    const struct quire_value texts = json_field_get(body, field);
    json_out_raw(&o, "{\"normalize\":true");
    bool ok = ollama_put_model(&o, j, json_field_get(body, "model"), &j->error) &&
              (texts.n || api_bad(&j->error, field, "is missing"));
    ollama_put_field(&o, "input", texts);
    ollama_put_field(&o, "dimensions", json_field_get(body, "dimensions"));
    ollama_put_field(&o, "truncate", json_field_get(body, "truncate"));
    json_out_raw(&o, "}");
    if (ok && o.failed)
        ok = api_no_memory(&j->error);
    ok = ok && request_body_parse(o.data, o.n, &own, &j->error) && embeddings_read(j, own);
    quire_doc_close(own);
    buffer_free(&o);
    return ok;
}

static bool embed_read(struct request_job *j, const struct quire_doc *body)
{
    return read_texts(j, body, "input");
}

static bool embeddings_read_one(struct request_job *j, const struct quire_doc *body)
{
    if (!json_is(json_field_get(body, "prompt"), QUIRE_STRING))
        return api_bad(&j->error, "prompt", "must be a string");
    return read_texts(j, body, "prompt");
}

static void put_embed(const struct vectors *v, struct buffer *o)
{
    json_out_raw(o, "{\"model\":");
    json_out_text(o, v->job->job.model);
    json_out_raw(o, ",\"embeddings\":[");
    for (size_t i = 0; i < v->n_prompts; i++) {
        json_out_raw(o, i > 0 ? "," : "");
        vectors_put_numbers(v, o, i);
    }
    json_out_raw(o, "],\"total_duration\":");
    json_out_u64(o, (quire_now_us() - v->arrived_us) * 1000);
    json_out_raw(o, ",\"load_duration\":0,\"prompt_eval_count\":");
    json_out_u64(o, v->n_tokens);
    json_out_raw(o, "}");
}

static void put_one(const struct vectors *v, struct buffer *o)
{
    json_out_raw(o, "{\"embedding\":");
    vectors_put_numbers(v, o, 0);
    json_out_raw(o, "}");
}

void ollama_embed_start(struct served_model *m, struct http_exchange *x)
{
    static const struct vectors_route route = {VECTORS_EMBED,
                                               {.n_bytes = sizeof(struct vectors_job), .read = embed_read},
                                               &field_shape_ollama_embed,
                                               put_embed};
    vectors_start(m, x, &route);
}

void ollama_embeddings_start(struct served_model *m, struct http_exchange *x)
{
    static const struct vectors_route route = {VECTORS_EMBED,
                                               {.n_bytes = sizeof(struct vectors_job), .read = embeddings_read_one},
                                               &field_shape_ollama_embeddings,
                                               put_one};
    vectors_start(m, x, &route);
}
