/* Ollama's lists of models. A model of this server is loaded from its start to its end. */
#include "server/front/ollama/ollama.h"

#include "server/front/fields/field_shape.h"
#include "server/front/front_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LATEST ":latest" /* Ollama's clients add it to a name without a tag */

const char *ollama_name(const struct model_list *list, const struct model_view *model, const char *asked,
                        struct api_error *e)
{
    const size_t n = asked ? strlen(asked) : 0, n_latest = strlen(LATEST);
    char name[256];
    const char *found = model_name(list, model, asked, e);
    if (found || n <= n_latest || n - n_latest >= sizeof name || strcmp(asked + n - n_latest, LATEST) != 0)
        return found;
    snprintf(name, sizeof name, "%.*s", (int)(n - n_latest), asked);
    return model_name(list, model, name, e);
}

bool ollama_put_model(struct buffer *o, const struct request_job *j, struct quire_value model, struct api_error *e)
{
    char *asked = NULL;
    size_t n = 0;
    if (!json_is(model, QUIRE_STRING))
        return api_bad(e, "model", model.n ? "must be a string" : "is missing");
    if (!json_value_text(model, "model", &asked, &n, e))
        return false;
    const char *name = ollama_name(j->models, j->served, asked, e);
    free(asked);
    if (!name)
        return false;
    json_out_raw(o, ",\"model\":");
    json_out_text(o, name);
    return true;
}

/* ---- lists ---------------------------------------------------------------------------------- */

static void put_time(struct buffer *o, const char *name, int64_t at)
{
    char text[OLLAMA_TIME_BYTES];
    const time_t seconds = (time_t)at;
    struct tm utc;
    gmtime_r(&seconds, &utc);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    json_out_raw(o, ",\"");
    json_out_raw(o, name);
    json_out_raw(o, "\":");
    json_out_text(o, text);
}

static void put_digest(struct buffer *o, const struct key256 *identity)
{
    static const char digits[] = "0123456789abcdef";
    char text[2 * sizeof identity->bytes + 1] = "";
    for (size_t i = 0; i < sizeof identity->bytes; i++) {
        text[2 * i] = digits[identity->bytes[i] >> 4];
        text[2 * i + 1] = digits[identity->bytes[i] & 15];
    }
    json_out_raw(o, ",\"digest\":");
    json_out_text(o, text);
}

/* "494.03M", "7.6B", as Ollama writes a number of parameters; "" if it is unknown. */
static void put_parameter_size(struct buffer *o, uint64_t n)
{
    char text[32] = "";
    if (n >= 1000000000)
        snprintf(text, sizeof text, n % 1000000000 ? "%.1fB" : "%.0fB", (double)n * 1e-9);
    else if (n >= 1000000)
        snprintf(text, sizeof text, n % 1000000 ? "%.2fM" : "%.0fM", (double)n * 1e-6);
    else if (n > 0)
        snprintf(text, sizeof text, n >= 1000 ? "%.0fK" : "%.0f", n >= 1000 ? (double)n * 1e-3 : (double)n);
    json_out_text(o, text);
}

/* The facts that the front end has about a model. */
static void put_details(struct buffer *o, const struct model_config *c)
{
    json_out_raw(o, ",\"details\":{\"parent_model\":\"\",\"format\":");
    json_out_text(o, c->about.is_gguf ? "gguf" : "safetensors");
    json_out_raw(o, ",\"family\":");
    json_out_text(o, c->about.family);
    json_out_raw(o, ",\"families\":[");
    json_out_text(o, c->about.family);
    json_out_raw(o, "],\"parameter_size\":");
    put_parameter_size(o, c->about.n_parameters);
    json_out_raw(o, ",\"quantization_level\":");
    json_out_text(o, c->about.quantization);
    json_out_raw(o, "}");
}

/* The size of a model that runs is that of its memory. */
static void put_model(struct buffer *o, const struct served_model *m, const char *name, bool runs)
{
    const struct model_about *about = &m->config->about;
    json_out_raw(o, "{\"name\":");
    json_out_text(o, name);
    json_out_raw(o, ",\"model\":");
    json_out_text(o, name);
    put_digest(o, &m->config->prompt_identity);
    json_out_raw(o, ",\"size\":");
    json_out_u64(o, runs && about->memory_bytes > 0 ? about->memory_bytes : about->n_bytes);
    put_details(o, m->config);
    if (runs) {
        /* It is not unloaded: the end of this century. */
        json_out_raw(o, ",\"expires_at\":\"2099-12-31T23:59:59Z\",\"size_vram\":");
        json_out_u64(o, about->vram_bytes);
        json_out_raw(o, ",\"context_length\":");
        json_out_u64(o, m->facts->max_model_len);
    } else {
        put_time(o, "modified_at", m->front->created);
    }
    json_out_raw(o, "}");
}

void ollama_reply(struct http_exchange *x, struct buffer *o)
{
    http_reply(x, o->failed ? 503 : 200, "application/json", o->data, o->failed ? 0 : o->n);
    buffer_free(o);
}

/* runs: only models whose engine is there. */
static void list(struct served_model *m, struct http_exchange *x, bool runs)
{
    struct buffer o = {0};
    const struct served_model *of;
    const char *comma = "";
    json_out_raw(&o, "{\"models\":[");
    TAILQ_FOREACH(of, &m->front->models, link)
    {
        for (size_t i = 0; i < of->config->n_names && (!runs || of->facts->max_model_len > 0); i++) {
            json_out_raw(&o, comma);
            put_model(&o, of, of->config->names[i], runs);
            comma = ",";
        }
    }
    json_out_raw(&o, "]}");
    ollama_reply(x, &o);
}

void ollama_tags_start(struct served_model *m, struct http_exchange *x)
{
    list(m, x, false);
}

void ollama_ps_start(struct served_model *m, struct http_exchange *x)
{
    list(m, x, true);
}

/* ---- /api/show ------------------------------------------------------------------------------ */

static void put_number(struct buffer *o, bool has, const char *name, double value)
{
    char text[64];
    if (has) {
        snprintf(text, sizeof text, "%-30s %.9g\\n", name, value);
        json_out_raw(o, text);
    }
}

/* The sampling defaults, a line each, as Ollama writes the parameters of a model. */
static void put_parameters(struct buffer *o, const struct sampling_defaults *s)
{
    json_out_raw(o, ",\"parameters\":\"");
    put_number(o, s->has_temperature, "temperature", s->temperature);
    put_number(o, s->has_top_p, "top_p", s->top_p);
    put_number(o, s->has_top_k, "top_k", s->top_k);
    put_number(o, s->has_min_p, "min_p", s->min_p);
    put_number(o, s->has_repetition_penalty, "repeat_penalty", s->repetition_penalty);
    json_out_raw(o, "\"");
}

static void put_capabilities(struct buffer *o, const struct served_model *m)
{
    const struct model_config *c = m->config;
    json_out_raw(o, ",\"capabilities\":[");
    json_out_raw(o, m->facts->vector_size > 0 ? "\"embedding\"" : "\"completion\"");
    if (c->tool_format != TOOL_NONE && c->shows_tools && m->facts->vector_size == 0)
        json_out_raw(o, ",\"tools\"");
    if (c->reasoning_format != REASONING_NONE)
        json_out_raw(o, ",\"thinking\"");
    json_out_raw(o, "]");
}

static void put_info(struct buffer *o, const struct served_model *m)
{
    const struct model_about *a = &m->config->about;
    json_out_raw(o, ",\"model_info\":{\"general.architecture\":");
    json_out_text(o, a->family);
    if (a->n_parameters > 0) {
        json_out_raw(o, ",\"general.parameter_count\":");
        json_out_u64(o, a->n_parameters);
    }
    if (m->facts->max_model_len > 0) {
        json_out_raw(o, ",\"");
        json_out_raw(o, a->family);
        json_out_raw(o, ".context_length\":");
        json_out_u64(o, m->facts->max_model_len);
    }
    if (m->facts->vector_size > 0) {
        json_out_raw(o, ",\"");
        json_out_raw(o, a->family);
        json_out_raw(o, ".embedding_length\":");
        json_out_u64(o, m->facts->vector_size);
    }
    json_out_raw(o, "}");
}

/* The model of a body {"model": NAME}, or {"name": NAME} of older clients. NULL, with an error in e. */
static struct served_model *asked_model(struct served_model *m, const struct quire_doc *body, struct api_error *e)
{
    struct served_model *of;
    const char *name = NULL;
    if (!json_field_string(body, "name", &name, e) || !json_field_string(body, "model", &name, e) ||
        (!name && !api_bad(e, "model", "is missing")))
        return NULL;
    TAILQ_FOREACH(of, &m->front->models, link)
    {
        if (ollama_name(m->front->list, served_model_view(of), name, e))
            return of;
    }
    return NULL;
}

/* It is parsed on the loop, and needs no more than a name. */
static bool read_body(struct http_exchange *x, struct quire_doc **body, struct api_error *e)
{
    size_t n;
    const char *text = http_body(x, &n);
    *body = NULL;
    if (n > OLLAMA_SMALL_BODY)
        return api_fail(e, 413, NULL, "request_too_large", "the request's body has %zu bytes, and may have %d", n,
                        OLLAMA_SMALL_BODY);
    return request_body_parse(text, n, body, e);
}

void ollama_show_start(struct served_model *m, struct http_exchange *x)
{
    struct api_error e;
    struct buffer o = {0};
    struct quire_doc *body = NULL;
    const bool ok = read_body(x, &body, &e) && ollama_check_fields(m, x, &field_shape_ollama_show, body, &e);
    const struct served_model *of = ok ? asked_model(m, body, &e) : NULL;
    quire_doc_close(body);
    if (!of) {
        api_error_reply(x, &e);
        return;
    }
    json_out_raw(&o, "{\"license\":\"\",\"modelfile\":\"\",\"template\":\"\"");
    put_parameters(&o, of->config->sampling);
    put_details(&o, of->config);
    put_info(&o, of);
    put_capabilities(&o, of);
    put_time(&o, "modified_at", m->front->created);
    json_out_raw(&o, "}");
    ollama_reply(x, &o);
}
