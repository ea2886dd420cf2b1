#include "server/front/front_internal.h"

#include "server/front/api/cors.h"
#include "server/front/api/foreign.h"
#include "server/front/ollama/ollama.h"
#include "server/http/more_routes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum route_flag {
    WATCHERS = 1,  /* also on the listener for metrics, which needs no key */
    LLAMA_CPP = 2, /* its errors have the form of llama.cpp's server */
};

struct route {
    const char *path;
    const char *method; /* GET also answers HEAD, without a body */
    void (*start)(struct served_model *m, struct http_exchange *x);
    unsigned flags; /* of enum route_flag */
};

static void reply_json(struct http_exchange *x, int status, struct buffer *o)
{
    http_reply(x, o->failed ? 503 : status, "application/json", o->data, o->failed ? 0 : o->n);
    buffer_free(o);
}

/* ---- small routes --------------------------------------------------------------------------- */

static void put_default(struct buffer *o, const char **comma, bool has, const char *name, double value)
{
    char text[64];
    if (!has)
        return;
    snprintf(text, sizeof text, "%s\"%s\":%.9g", *comma, name, value);
    json_out_raw(o, text);
    *comma = ",";
}

/* The default sampling values, as far as the model defines them. */
static void put_sampling(struct buffer *o, const struct sampling_defaults *s)
{
    const char *comma = "";
    json_out_raw(o, ",\"default_sampling_params\":{");
    put_default(o, &comma, s->has_temperature, "temperature", s->temperature);
    put_default(o, &comma, s->has_top_p, "top_p", s->top_p);
    put_default(o, &comma, s->has_top_k, "top_k", s->top_k);
    put_default(o, &comma, s->has_min_p, "min_p", s->min_p);
    put_default(o, &comma, s->has_repetition_penalty, "repetition_penalty", s->repetition_penalty);
    json_out_raw(o, "}");
}

static void put_model(struct buffer *o, const struct served_model *m, const char *name)
{
    json_out_raw(o, "{\"id\":");
    json_out_text(o, name);
    json_out_raw(o, ",\"object\":\"model\",\"created\":");
    json_out_i64(o, m->front->created);
    json_out_raw(o, ",\"owned_by\":\"quire\",\"root\":");
    json_out_text(o, m->config->root);
    json_out_raw(o, ",\"parent\":null,\"max_model_len\":");
    if (m->facts->max_model_len > 0)
        json_out_u64(o, m->facts->max_model_len);
    else
        json_out_raw(o, "null");
    json_out_raw(o, ",\"permission\":[]");
    put_sampling(o, m->config->sampling);
    json_out_raw(o, quire_text_has_chat(m->config->text) ? ",\"has_chat_template\":true}"
                                                         : ",\"has_chat_template\":false}");
}

static void start_models(struct served_model *m, struct http_exchange *x)
{
    struct buffer o = {0};
    json_out_raw(&o, "{\"object\":\"list\",\"data\":[");
    const struct served_model *of;
    TAILQ_FOREACH(of, &m->front->models, link)
    {
        for (size_t i = 0; i < of->config->n_names; i++) {
            if (i > 0 || of != m)
                json_out_raw(&o, ",");
            put_model(&o, of, of->config->names[i]);
        }
    }
    json_out_raw(&o, "]}");
    reply_json(x, 200, &o);
}

/* Decodes the escapes that a path still contains: "%2F" is "/". out holds strlen(text) + 1 bytes. */
static void decode_rest(const char *text, char *out)
{
    while (*text) {
        bool slash = strncasecmp(text, "%2f", 3) == 0, percent = strncmp(text, "%25", 3) == 0;
        *out++ = slash ? '/' : *text;
        text += slash || percent ? 3 : 1;
    }
    *out = '\0';
}

/* GET /v1/models/{id} */
static void start_model(struct served_model *m, struct http_exchange *x)
{
    const char *path = http_path(x) + strlen("/v1/models/");
    struct api_error e;
    struct buffer o = {0};
    char *id = malloc(strlen(path) + 1);
    if (!id) {
        api_fail(&e, 503, NULL, "out_of_memory", "out of memory");
        api_error_reply(x, &e);
        return;
    }
    decode_rest(path, id);
    struct served_model *of;
    TAILQ_FOREACH(of, &m->front->models, link)
    {
        if (model_has_name(of->config, id))
            m = of;
    }
    const char *name = model_name(m->front->list, served_model_view(m), id, &e);
    free(id);
    if (!name) {
        api_error_reply(x, &e);
        return;
    }
    put_model(&o, m, name);
    reply_json(x, 200, &o);
}

/* With several models, the reply includes the state of each. */
static void reply_health(const struct served_model *m, struct http_exchange *x, bool good, const char *status)
{
    struct buffer o = {0};
    struct api_error e = {.retry_ms = 0};
    char seconds[16] = "1";
    if (!good && !front_can_serve(m, &e))
        snprintf(seconds, sizeof seconds, "%u", (e.retry_ms + 999) / 1000);
    if (!good)
        http_add_header(x, "Retry-After", seconds);
    json_out_raw(&o, "{\"status\":");
    json_out_text(&o, status);
    const struct served_model *of;
    const bool several = m->front->list->n > 1;
    TAILQ_FOREACH(of, &m->front->models, link)
    {
        if (!several)
            break;
        json_out_raw(&o, of == m ? ",\"models\":{" : ",");
        json_out_text(&o, of->config->names[0]);
        json_out_raw(&o, ":");
        json_out_text(&o, front_state(of));
    }
    json_out_raw(&o, several ? "}}" : "}");
    reply_json(x, good ? 200 : 503, &o);
}

/* Replies whether requests are accepted. */
static void start_ready(struct served_model *m, struct http_exchange *x)
{
    struct api_error e;
    const struct served_model *of, *worst = m;
    TAILQ_FOREACH(of, &m->front->models, link)
    {
        if (front_can_serve(worst, &e))
            worst = of;
    }
    reply_health(m, x, front_can_serve(worst, &e), front_state(worst));
}

static bool is_dead(const struct served_model *m)
{
    return upstream_state(m->upstream) == UPSTREAM_FAILED;
}

/* Replies whether a restart would help. It would not help while requests are being finished, nor if the engine of
 * another process is away. */
static void start_live(struct served_model *m, struct http_exchange *x)
{
    const struct served_model *of, *worst = m;
    TAILQ_FOREACH(of, &m->front->models, link)
    {
        if (!is_dead(worst))
            worst = of;
    }
    reply_health(m, x, !is_dead(worst), is_dead(worst) ? front_state(worst) : "ok");
}

static void start_version(struct served_model *m, struct http_exchange *x)
{
    struct buffer o = {0};
    json_out_raw(&o, "{\"version\":");
    json_out_text(&o, m->front->version);
    json_out_raw(&o, "}");
    reply_json(x, 200, &o);
}

static void start_chat(struct served_model *m, struct http_exchange *x)
{
    generation_start(m, x, &api_chat);
}

static void start_completions(struct served_model *m, struct http_exchange *x)
{
    generation_start(m, x, &api_completions);
}

static void start_responses(struct served_model *m, struct http_exchange *x)
{
    generation_start(m, x, &api_responses);
}

static void start_messages(struct served_model *m, struct http_exchange *x)
{
    generation_start(m, x, &api_messages);
}

static void start_llama_cpp(struct served_model *m, struct http_exchange *x)
{
    generation_start(m, x, &api_llama_cpp);
}

/* ---- dispatch ------------------------------------------------------------------------------- */

#define N_OPEN_ROUTES 7 /* the first in the table: they need no key */
static const struct route routes[] = {
    {"/health", "GET", start_ready, WATCHERS},
    {"/health/ready", "GET", start_ready, WATCHERS},
    {"/health/live", "GET", start_live, WATCHERS},
    {"/ping", "GET", start_ready, WATCHERS},
    {"/", "GET", root_start, 0},
    {"/ui", "GET", ui_start, 0},
    {"/openapi.json", "GET", openapi_start, 0},
    {"/metrics", "GET", scrape_start, WATCHERS},
    {"/version", "GET", start_version, 0},
    {"/v1/models", "GET", start_models, 0},
    {"/models", "GET", start_models, 0},
    {"/v1/chat/completions", "POST", start_chat, 0},
    {"/v1/completions", "POST", start_completions, 0},
    {"/v1/responses", "POST", start_responses, 0},
    {"/v1/messages", "POST", start_messages, 0},
    {"/v1/embeddings", "POST", embeddings_start, 0},
    {"/v1/score", "POST", score_start, 0},
    {"/score", "POST", score_start, 0},
    {"/v1/rerank", "POST", rerank_start, 0},
    {"/v2/rerank", "POST", rerank_start, 0},
    {"/rerank", "POST", rerank_start, 0},
    {"/v1/messages/count_tokens", "POST", messages_count_start, 0},
    {"/tokenize", "POST", tokenize_start, 0},
    {"/detokenize", "POST", detokenize_start, 0},
    {"/tokenizer_info", "GET", tokenizer_info_start, 0},
    {"/completion", "POST", start_llama_cpp, LLAMA_CPP},
    {"/completions", "POST", start_llama_cpp, LLAMA_CPP},
    {"/apply-template", "POST", apply_template_start, LLAMA_CPP},
    {"/props", "GET", props_start, LLAMA_CPP},
    {"/props", "POST", props_set_start, LLAMA_CPP},
    {"/slots", "GET", slots_start, LLAMA_CPP},
    {"/slots/{id}", "POST", llama_cpp_missing_start, LLAMA_CPP},
    {"/infill", "POST", llama_cpp_missing_start, LLAMA_CPP},
    {"/embedding", "POST", llama_cpp_missing_start, LLAMA_CPP},
    {"/v1/cache/pins", "POST", pin_start, 0},
    {"/v1/cache/pins", "DELETE", unpin_start, 0},
    {"/cache/stats", "GET", cache_stats_start, 0},
    {"/cache/clear", "POST", cache_clear_start, 0},
    {"/cache/entries", "POST", cache_entries_start, 0},
    {"/cache/import", "POST", cache_import_start, 0},
    {"/v1/admin/scheduling-policy", "POST", policy_start, 0},
    {"/v1/responses/{id}", "GET", response_get_start, 0},
    {"/v1/responses/{id}", "DELETE", response_delete_start, 0},
    {"/v1/responses/{id}/input_items", "GET", response_get_start, 0},
    {"/api/version", "GET", start_version, 0},
    {"/api/tags", "GET", ollama_tags_start, 0},
    {"/api/ps", "GET", ollama_ps_start, 0},
    {"/api/show", "POST", ollama_show_start, 0},
    {"/api/chat", "POST", ollama_chat_start, 0},
    {"/api/generate", "POST", ollama_generate_start, 0},
    {"/api/embed", "POST", ollama_embed_start, 0},
    {"/api/embeddings", "POST", ollama_embeddings_start, 0},
    {"/v1/models/", "GET", start_model, 0}, /* longer paths: a name may have slashes */
};

/* Whether path is before, an id without a slash, and behind. */
static bool has_id(const char *path, size_t n, const char *before, size_t n_before, const char *behind)
{
    const size_t n_behind = strlen(behind);
    return n > n_before + n_behind && memcmp(path, before, n_before) == 0 &&
           memcmp(path + n - n_behind, behind, n_behind) == 0 && !memchr(path + n_before, '/', n - n_before - n_behind);
}

/* Returns whether a route has this path. */
static bool is_path(const struct route *route, const char *path)
{
    size_t n = strlen(path), prefix = strlen(route->path);
    const char *id = strstr(route->path, "{id}");
    if (prefix > 1 && route->path[prefix - 1] == '/')
        return n > prefix && memcmp(path, route->path, prefix) == 0;
    /* A redirect would lose a POST's body, so a slash at the end is ignored. */
    if (n > 1 && path[n - 1] == '/')
        n--;
    if (id)
        return has_id(path, n, route->path, (size_t)(id - route->path), id + strlen("{id}"));
    return n == prefix && memcmp(path, route->path, n) == 0;
}

static bool is_method(const struct route *route, const char *method)
{
    return strcmp(method, route->method) == 0 || (strcmp(method, "HEAD") == 0 && strcmp(route->method, "GET") == 0);
}

static bool is_open(const char *path)
{
    for (size_t i = 0; i < N_OPEN_ROUTES; i++)
        if (is_path(&routes[i], path))
            return true;
    return false;
}

/* Returns NULL for an unknown route. Then allow, "" at first, lists the methods of the path. */
static const struct route *find_route(const char *path, const char *method, char allow[32])
{
    const size_t n_routes = sizeof routes / sizeof *routes;
    for (size_t i = 0; i < n_routes; i++) {
        const struct route *route = &routes[i];
        if (!is_path(route, path))
            continue;
        if (is_method(route, method))
            return route;
        size_t n = strlen(allow);
        snprintf(allow + n, 32 - n, "%s%s%s", n > 0 ? ", " : "", route->method,
                 strcmp(route->method, "GET") == 0 ? ", HEAD" : "");
    }
    return NULL;
}

/* Notes the form of the errors of this exchange, whatever its method is. */
static void note_form(struct http_exchange *x)
{
    const char *path = http_path(x); /* NULL: the head could not be parsed */
    for (size_t i = 0; path && i < sizeof routes / sizeof *routes; i++)
        if ((routes[i].flags & LLAMA_CPP) && is_path(&routes[i], path))
            http_set_note(x, API_NOTE_LLAMA_CPP);
}

static struct page_rules rules_of(const struct front *f)
{
    return (struct page_rules){.origins = f->allowed_origins,
                               .n_origins = f->n_allowed_origins,
                               .hosts = f->allowed_hosts,
                               .n_hosts = f->n_allowed_hosts,
                               .asks_key = tenants_ask_key(f->tenants),
                               .is_local = http_server_is_local(f->http),
                               .has_tls = http_server_has_tls(f->http)};
}

/* ---- routes of another module ---- */

static bool find_more(const struct front *f, const struct http_exchange *x, struct more_route *out)
{
    return f->more && f->more->find(f->more->context, http_path(x), out);
}

static void refuse_method(struct http_exchange *x, const char *allow)
{
    struct api_error e;
    http_add_header(x, "Allow", allow);
    api_fail(&e, 405, NULL, "method_not_allowed", "%.200s does not take %.10s", http_path(x), http_method(x));
    api_error_reply(x, &e);
}

static struct http_caller caller_of(const struct front *f, const struct http_exchange *x)
{
    struct api_error e;
    const struct tenant *tenant = front_tenant(f, x, &e);
    return (struct http_caller){.tenant = tenant ? tenant->name : "", .is_admin = front_is_admin(f, x)};
}

/* Its page and key were checked. */
static void begin_more(const struct front *f, struct http_exchange *x, const struct more_route *route)
{
    const struct http_caller caller = caller_of(f, x);
    if (!more_route_takes(route, http_method(x)))
        refuse_method(x, route->methods);
    else
        f->more->on_head(f->more->context, x, &caller);
}

/* Key, route and method are known before the body arrives: requests that fail these checks are rejected here. */
static void on_head(void *context, struct http_exchange *x)
{
    struct front *f = context;
    struct api_error e;
    char allow[32] = "";
    const char *method = http_method(x), *path = http_path(x);
    const struct route *route = find_route(path, method, allow);
    const struct page_rules rules = rules_of(f);
    struct more_route more = {.methods = NULL};
    const bool is_more = find_more(f, x, &more);
    note_form(x);
    if (cors_begin(&rules, x))
        return;
    /* For an unanswered preflight, the missing CORS headers are the answer; this check does not apply. */
    if (strcmp(method, "OPTIONS") != 0 && !foreign_may(&rules, x, &e)) {
        api_error_reply(x, &e);
        return;
    }
    if (api_is_anthropic(path)) /* under the name that Anthropic's clients look for */
        http_add_header(x, "request-id", http_request_id(x));
    if (!is_open(path) && !more.is_open && !front_tenant(f, x, &e)) {
        api_error_reply(x, &e);
        return;
    }
    if (is_more)
        begin_more(f, x, &more);
    if (is_more || route)
        return;
    if (allow[0]) {
        refuse_method(x, allow);
        return;
    }
    api_fail(&e, 404, NULL, "unknown_url", "there is no route %.10s %.200s%s", method, path,
             api_is_ollama(path) ? ": quire pull NAME downloads a model, and quire rm NAME removes one" : "");
    api_error_reply(x, &e);
}

/* Health and metrics are answered whatever the load. */
static bool is_urgent(void *context, const struct http_exchange *x)
{
    char allow[32] = "";
    (void)context;
    const struct route *route = find_route(http_path(x), http_method(x), allow);
    return route && (route->flags & WATCHERS) != 0;
}

/* The listener for metrics: no keys, and only the routes for watchers. */
static void on_watcher_head(void *context, struct http_exchange *x)
{
    struct api_error e;
    char allow[32] = "";
    (void)context;
    const char *method = http_method(x), *path = http_path(x);
    const struct route *route = find_route(path, method, allow);
    if (route && (route->flags & WATCHERS))
        return;
    api_fail(&e, 404, NULL, "unknown_url", "there is no %.10s %.200s on the listener for metrics", method, path);
    api_error_reply(x, &e);
}

static bool is_of_vectors(const struct route *route)
{
    return route->start == embeddings_start || route->start == score_start || route->start == rerank_start ||
           route->start == ollama_embed_start || route->start == ollama_embeddings_start;
}

static void on_request(void *context, struct http_exchange *x)
{
    char allow[32] = "";
    struct front *f = context;
    struct more_route more;
    if (find_more(f, x, &more)) {
        const struct http_caller caller = caller_of(f, x);
        f->more->on_request(f->more->context, x, &caller);
        return;
    }
    const struct route *route = find_route(http_path(x), http_method(x), allow);
    route->start(is_of_vectors(route) ? front_vectors_model(f) : front_first_model(f), x);
}

static void on_watcher_bad(void *context, struct http_exchange *x, int status, const char *reason)
{
    struct api_error e;
    (void)context;
    const char *code = status == 413 ? "request_too_large" : status == 429 ? "rate_limit_exceeded" : "invalid_request";
    api_fail(&e, status, NULL, code, "%s", reason);
    if (status == 503 || status == 429)
        e.retry_ms = 1000;
    api_error_reply(x, &e);
}

static void on_bad(void *context, struct http_exchange *x, int status, const char *reason)
{
    const struct page_rules rules = rules_of(context);
    note_form(x);
    cors_headers(&rules, x);
    on_watcher_bad(context, x, status, reason);
}

const struct http_handler front_handler = {on_head, is_urgent, on_request, on_bad};
const struct http_handler front_watcher_handler = {on_watcher_head, is_urgent, on_request, on_watcher_bad};
