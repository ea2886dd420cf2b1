/* llama.cpp's /props, /slots, /apply-template, and the routes that are not supported. */
#include "server/front/llama_cpp/llama_cpp.h"

#include "server/front/fields/field_shape.h"
#include "server/front/front_internal.h"
#include "server/http/query.h"

#include <stdlib.h>
#include <string.h>

static void reply_json(struct http_exchange *x, struct buffer *o)
{
    http_reply(x, o->failed ? 503 : 200, "application/json", o->data, o->failed ? 0 : o->n);
    buffer_free(o);
}

static void put_flag(struct buffer *o, const char *name, bool value)
{
    json_out_raw(o, ",\"");
    json_out_raw(o, name);
    json_out_raw(o, value ? "\":true" : "\":false");
}

/* ---- /props ---- */

/* A slot before its settings; an unfinished object. */
static void put_slot(struct buffer *o, const struct served_model *m, uint32_t id, bool is_processing)
{
    json_out_raw(o, "{\"id\":");
    json_out_u64(o, id);
    json_out_raw(o, ",\"id_task\":-1,\"n_ctx\":");
    json_out_u64(o, m->facts->max_model_len);
    put_flag(o, "speculative", false);
    put_flag(o, "is_processing", is_processing);
}

static bool put_defaults(struct buffer *o, const struct served_model *m)
{
    struct request_spec spec;
    const struct params params = {.spec = &spec};
    request_spec_default(&spec);
    request_spec_take_defaults(&spec, m->config->sampling);
    json_out_raw(o, "{\"default_generation_settings\":");
    put_slot(o, m, 0, false);
    json_out_raw(o, ",\"params\":");
    llama_cpp_put_settings(o, &params);
    json_out_raw(o, ",\"prompt\":\"\",\"next_token\":{\"has_next_token\":true,\"has_new_line\":false,\"n_remain\":-1,"
                    "\"n_decoded\":0}}");
    return !o->failed;
}

/* A string of tokenizer_config.json; "" if it is absent. */
static void put_string(struct buffer *o, const struct quire_doc *about, const char *name)
{
    const struct quire_value value = quire_doc_field(about, name);
    json_out_raw(o, ",\"");
    json_out_raw(o, name);
    json_out_raw(o, "\":");
    if (json_is(value, QUIRE_STRING))
        buffer_append(o, value.text, value.n);
    else
        json_out_raw(o, "\"\"");
}

static bool put_tokenizer(struct buffer *o, const struct served_model *m, struct api_error *e)
{
    char *text = NULL;
    size_t n = 0;
    struct quire_doc *about = NULL;
    int status = quire_text_about(m->config->text, &text, &n, &e->why);
    if (status == QUIRE_OK)
        status = quire_doc_open(text, n, REQUEST_MAX_DEPTH, "tokenizer_config.json", &about, &e->why);
    if (status == QUIRE_OK) {
        put_string(o, about, "chat_template");
        put_string(o, about, "bos_token");
        put_string(o, about, "eos_token");
    }
    quire_doc_close(about);
    free(text);
    return status == QUIRE_OK || api_fail(e, 500, NULL, "internal_error", "the tokenizer's facts are not readable");
}

/* A model's path would show the server's directories, so that its served name is given instead. */
void props_start(struct served_model *m, struct http_exchange *x)
{
    struct buffer o = {0};
    struct api_error e;
    if (!put_defaults(&o, m) || !put_tokenizer(&o, m, &e)) {
        if (o.failed)
            api_no_memory(&e);
        buffer_free(&o);
        api_error_reply(x, &e);
        return;
    }
    json_out_raw(&o, ",\"total_slots\":");
    json_out_u64(&o, m->facts->max_num_seqs);
    json_out_raw(&o, ",\"model_alias\":");
    json_out_text(&o, m->config->names[0]);
    json_out_raw(&o, ",\"model_path\":");
    json_out_text(&o, m->config->names[0]);
    json_out_raw(&o, ",\"modalities\":{\"vision\":false,\"audio\":false},\"endpoint_slots\":true,"
                     "\"endpoint_props\":false,\"endpoint_metrics\":true,\"is_sleeping\":false,\"build_info\":");
    json_out_text(&o, m->front->version);
    json_out_raw(&o, "}");
    reply_json(x, &o);
}

void props_set_start(struct served_model *m, struct http_exchange *x)
{
    struct api_error e;
    (void)m;
    api_fail(&e, 501, NULL, "not_supported", "POST /props: properties cannot be changed while the server runs");
    api_error_reply(x, &e);
}

/* ---- routes that are not supported ---- */

/* Programs that speak to llama.cpp show this message, or take the status as: the server has no such feature. */
void llama_cpp_missing_start(struct served_model *m, struct http_exchange *x)
{
    static const struct {
        const char *begin, *instead;
    } routes[] = {
        {"/infill", "send the prompt with the model's own fill-in-the-middle tokens to /completion"},
        {"/embedding", "/v1/embeddings serves embeddings"},
        {"/slots/", "requests are not bound to slots, and the prefix cache needs no commands"},
    };
    struct api_error e;
    const char *path = http_path(x), *instead = "";
    (void)m;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        if (strncmp(path, routes[i].begin, strlen(routes[i].begin)) == 0)
            instead = routes[i].instead;
    api_fail(&e, 501, NULL, "not_supported", "%.40s is not supported: %s", path, instead);
    api_error_reply(x, &e);
}

/* ---- /slots ---- */

/* Whether the client wants an error if no slot is free. */
static bool wants_failure(struct http_exchange *x)
{
    struct buffer value = {0};
    const bool has_value = query_value(http_query(x), "fail_on_no_slot", &value) == QUERY_FOUND && !value.failed;
    const bool is_set = has_value && value.n > 0 && !(value.n == 1 && value.data[0] == '0');
    buffer_free(&value);
    return is_set;
}

/* The slots have no prompts: they may be another client's. */
static void answer_slots(struct served_model *m, struct http_exchange *x, const struct wire_stats *stats)
{
    struct buffer o = {0};
    struct api_error e;
    const uint32_t n = m->facts->max_num_seqs;
    if (!stats || n == 0) {
        api_fail(&e, 503, NULL, "engine_unavailable", "the engine did not report its requests");
        e.retry_ms = 1000;
        api_error_reply(x, &e);
        return;
    }
    if (stats->n_running >= n && wants_failure(x)) {
        api_fail(&e, 503, NULL, "engine_unavailable", "no slot is free: all %u are in use", n);
        e.retry_ms = 1000;
        api_error_reply(x, &e);
        return;
    }
    json_out_raw(&o, "[");
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0)
            json_out_raw(&o, ",");
        put_slot(&o, m, i, i < stats->n_running);
        json_out_raw(&o, "}");
    }
    json_out_raw(&o, "]");
    reply_json(x, &o);
}

void slots_start(struct served_model *m, struct http_exchange *x)
{
    scrape_ask(m, x, answer_slots);
}

/* ---- /apply-template ---- */

static bool read_template(struct request_job *j, const struct quire_doc *body)
{
    const char *model = NULL;
    j->text->shows_chat = true;
    j->text->want_text = true;
    return json_field_string(body, "model", &model, &j->error) && model_name(j->models, j->served, model, &j->error) &&
           chat_read_messages(j, body);
}

static void put_prompt(struct buffer *o, const struct request_job *j)
{
    json_out_raw(o, "{\"prompt\":");
    json_out_string(o, j->text->items[0].text, j->text->items[0].n_text);
    json_out_raw(o, "}");
}

void apply_template_start(struct served_model *m, struct http_exchange *x)
{
    static const struct utility_calls calls = {read_template, put_prompt, true, &field_shape_chat};
    utility_start(m, x, &calls);
}
