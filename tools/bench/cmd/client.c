#include "tools/bench/cmd/client.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/encoding/json.h"
#include "base/encoding/server_url.h"
#include "tools/bench/lib/event.h"
#include "tools/bench/lib/sse.h"

#include <curl/curl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define CONNECT_TIMEOUT_MS 10000L
#define LOOK_TIMEOUT_MS 30000L
#define MAX_URL_BYTES 1024
#define POLL_MS 100 /* maximum, so that the progress bar moves */
#define MAX_BODY_BYTES (1u << 20)
#define ID_BYTES 11u /* ",4294967295" */

struct bench_client {
    struct bench_client_options options;
    char *models_url, *metrics_url, *request_url, *model;
    struct curl_slist *headers;
    CURLM *multi;
    bool is_chat;
    uint32_t max_model_len;
};

struct transfer {
    CURL *easy;
    struct bench_result *result;
    struct bench_sse sse;
    struct buffer error; /* body of a reply that is not a stream */
    char *request;
    double started, now, last_token; /* quire_now_s() */
    uint32_t n_token_events;
    bool has_first, has_ended, has_usage;
    struct quire_error err;
    char curl_text[CURL_ERROR_SIZE];
};

/* ---- opening ---- */

/* NULL: out of memory. */
static char *join(const char *url, const char *path)
{
    char *out;
    return asprintf(&out, "%s%s", url, path) < 0 ? NULL : out;
}

static int add_header(struct bench_client *c, const char *line, struct quire_error *err)
{
    struct curl_slist *more = curl_slist_append(c->headers, line);
    if (!more)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    c->headers = more;
    return QUIRE_OK;
}

static int make_headers(struct bench_client *c, struct quire_error *err)
{
    const char *key = c->options.api_key;
    int status = add_header(c, "Content-Type: application/json", err);
    if (status == QUIRE_OK)
        status = add_header(c, "Expect:", err); /* no delay before a large body */
    if (status != QUIRE_OK || !key)
        return status;
    if (strpbrk(key, "\r\n"))
        return quire_fail(err, QUIRE_INVALID, "--api-key: contains a line break");
    size_t size = strlen(key) + sizeof "Authorization: Bearer ";
    char *line = malloc(size);
    if (!line)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    snprintf(line, size, "Authorization: Bearer %s", key);
    status = add_header(c, line, err);
    free(line);
    return status;
}

int bench_client_open(const struct bench_client_options *options, struct bench_client **out, struct quire_error *err)
{
    *out = NULL;
    char url[MAX_URL_BYTES];
    int status = quire_server_url(options->url, url, sizeof url, err);
    if (status != QUIRE_OK) {
        quire_error_prefix(err, "--url");
        return status;
    }
    if (options->endpoint[0] != '/')
        return quire_fail(err, QUIRE_INVALID, "--endpoint: \"%.100s\": must begin with /", options->endpoint);
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0)
        return quire_fail(err, QUIRE_INTERNAL, "libcurl cannot start");
    struct bench_client *c = calloc(1, sizeof *c);
    if (!c)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    c->options = *options;
    c->is_chat = strstr(options->endpoint, "chat/completions") != NULL;
    c->models_url = join(url, "/v1/models");
    c->metrics_url = join(url, "/metrics");
    c->request_url = join(url, options->endpoint);
    c->model = options->model ? strdup(options->model) : NULL;
    c->multi = curl_multi_init();
    status = c->models_url && c->metrics_url && c->request_url && c->multi && (c->model || !options->model)
                 ? make_headers(c, err)
                 : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if (status != QUIRE_OK) {
        bench_client_close(c);
        return status;
    }
    *out = c;
    return QUIRE_OK;
}

void bench_client_close(struct bench_client *c)
{
    if (!c)
        return;
    if (c->multi)
        curl_multi_cleanup(c->multi);
    curl_slist_free_all(c->headers);
    free(c->models_url);
    free(c->metrics_url);
    free(c->request_url);
    free(c->model);
    free(c);
    curl_global_cleanup();
}

const char *bench_client_model(const struct bench_client *c)
{
    return c->model;
}

uint32_t bench_client_max_model_len(const struct bench_client *c)
{
    return c->max_model_len;
}

/* Settings of every transfer. Connects directly, because a proxy would be measured, too. */
static CURL *new_easy(const struct bench_client *c, const char *url, char *error_text)
{
    CURL *easy = curl_easy_init();
    if (!easy)
        return NULL;
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    const char *ca_file = getenv("SSL_CERT_FILE"); /* as in openssl, curl and Python */
    if (ca_file)
        curl_easy_setopt(easy, CURLOPT_CAINFO, ca_file);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, c->headers);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_TIMEOUT_MS);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, error_text);
    return easy;
}

/* ---- data about the server ---- */

static size_t on_body(char *bytes, size_t size, size_t n, void *context)
{
    struct buffer *b = context;
    n *= size;
    if (b->n + n > MAX_BODY_BYTES)
        return n; /* the rest of an endless reply is not needed */
    return buffer_append(b, bytes, n) ? CURL_WRITEFUNC_ERROR : n;
}

static int take_models(struct bench_client *c, const struct buffer *body, struct quire_error *err)
{
    json_t *object, *data = NULL;
    const char *where = "/v1/models", *id = NULL;
    int status = quire_json_parse(body->n ? body->data : "", body->n, 32, where, &object, err);
    if (status != QUIRE_OK)
        return status;
    status = quire_json_array(object, where, "data", &data, err);
    const json_t *first = json_array_get(data, 0);
    for (size_t i = 0; c->model && i < json_array_size(data); i++) {
        const char *name = json_string_value(json_object_get(json_array_get(data, i), "id"));
        if (name && strcmp(name, c->model) == 0)
            first = json_array_get(data, i);
    }
    if (status == QUIRE_OK && first)
        status = quire_json_string(first, where, "id", &id, err);
    if (status == QUIRE_OK && first)
        status = quire_json_u32(first, where, "max_model_len", 1, UINT32_MAX, &c->max_model_len, err);
    if (status == QUIRE_OK && !id)
        status = quire_fail(err, QUIRE_INVALID, "%s lists no model", where);
    if (status == QUIRE_OK && !c->model && !(c->model = strdup(id)))
        status = quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    json_decref(object);
    return status;
}

/* A GET. The caller frees *body, also after an error. */
static int look(const struct bench_client *c, const char *url, struct buffer *body, long *code, struct quire_error *err)
{
    char text[CURL_ERROR_SIZE] = "";
    CURL *easy = new_easy(c, url, text);
    if (!easy)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, body);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, LOOK_TIMEOUT_MS);
    CURLcode done = curl_easy_perform(easy);
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, code);
    curl_easy_cleanup(easy);
    return done == CURLE_OK ? QUIRE_OK
                            : quire_fail(err, QUIRE_IO, "%s: %s", url, text[0] ? text : curl_easy_strerror(done));
}

struct bench_drafts bench_client_drafts(const struct bench_client *c)
{
    struct bench_drafts drafts = {0};
    struct buffer body = {0};
    struct quire_error err;
    long code = 0;
    if (look(c, c->metrics_url, &body, &code, &err) == QUIRE_OK && code == 200)
        bench_drafts_read(body.data, body.n, &drafts);
    buffer_free(&body);
    return drafts;
}

int bench_client_find_model(struct bench_client *c, struct quire_error *err)
{
    char shown[256];
    struct buffer body = {0};
    long code = 0;
    int status = look(c, c->models_url, &body, &code, err);
    if (status == QUIRE_OK && code != 200) {
        bench_error_text(body.n ? body.data : "", body.n, shown, sizeof shown);
        if (!c->model || code == 401 || code == 403)
            status = quire_fail(err, QUIRE_INVALID, "%s: HTTP %ld: %s", c->models_url, code, shown);
    } else if (status == QUIRE_OK) {
        status = take_models(c, &body, err);
        if (status != QUIRE_OK && c->options.model)
            status = QUIRE_OK;
    }
    buffer_free(&body);
    return status;
}

/* ---- a request ---- */

/* Everything except the prompt, without the closing brace. NULL: out of memory. */
static char *request_head(const struct bench_client *c, const struct bench_input *item, const char *text)
{
    json_t *object = json_pack("{s:s, s:I, s:f, s:b, s:{s:b}}", "model", c->model, "max_tokens",
                               (json_int_t)item->n_output, "temperature", 0.0, "stream", 1, "stream_options",
                               "include_usage", 1);
    if (!object)
        return NULL;
    int bad = 0;
    if (c->options.ignore_eos)
        bad |= json_object_set_new(object, "ignore_eos", json_true());
    if (text && c->is_chat)
        bad |= json_object_set_new(object, "messages", json_pack("[{s:s, s:s}]", "role", "user", "content", text));
    else if (text)
        bad |= json_object_set_new(object, "prompt", json_string(text));
    char *out = bad ? NULL : json_dumps(object, JSON_COMPACT);
    json_decref(object);
    if (out && !text)
        out[strlen(out) - 1] = 0;
    return out;
}

/* Token ids for the completions route, text for the chat route and for text inputs. */
static char *make_request(const struct bench_client *c, const struct bench_inputs *in, size_t i)
{
    const struct bench_input *item = &in->items[i];
    if (c->is_chat || item->text) {
        char *text = bench_inputs_text(in, i), *whole = text ? request_head(c, item, text) : NULL;
        free(text);
        return whole;
    }
    char *head = request_head(c, item, NULL);
    uint32_t *ids = malloc(item->n_prompt * sizeof *ids);
    char *out = head && ids ? malloc(strlen(head) + (size_t)item->n_prompt * ID_BYTES + 32) : NULL;
    if (out) {
        char *at = out + sprintf(out, "%s,\"prompt\":[", head);
        bench_inputs_ids(in, i, ids);
        for (uint32_t k = 0; k < item->n_prompt; k++)
            at += sprintf(at, "%s%u", k ? "," : "", ids[k]);
        strcpy(at, "]}");
    }
    free(head);
    free(ids);
    return out;
}

static void on_event(void *context, const char *data, size_t n)
{
    struct transfer *t = context;
    struct bench_event e;
    if (t->result->error)
        return;
    if (bench_event_read(data, n, &e, &t->err) != QUIRE_OK) {
        bench_result_fail(t->result, t->err.text);
        return;
    }
    double since = t->now - t->started;
    if (e.has_token) {
        if (!t->has_first)
            t->result->ttft_s = since;
        else if (bench_result_add_itl(t->result, t->now - t->last_token, &t->err) != QUIRE_OK)
            bench_result_fail(t->result, t->err.text);
        t->has_first = true;
        t->last_token = t->now;
        t->n_token_events++;
    }
    if (e.has_choice)
        t->result->e2el_s = since;
    if (e.has_usage && e.n_output > 0) {
        t->has_usage = true;
        t->result->n_prompt = e.n_prompt ? e.n_prompt : t->result->n_prompt;
        t->result->n_output = e.n_output;
    }
    t->has_ended |= e.is_end || e.is_finish;
}

static size_t on_stream(char *bytes, size_t size, size_t n, void *context)
{
    struct transfer *t = context;
    long code = 0;
    n *= size;
    t->now = quire_now_s();
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &code);
    if (code != 200)
        return on_body(bytes, 1, n, &t->error);
    if (bench_sse_push(&t->sse, bytes, n, on_event, t, &t->err) != QUIRE_OK)
        bench_result_fail(t->result, t->err.text);
    return t->result->error ? CURL_WRITEFUNC_ERROR : n;
}

static void free_transfer(struct bench_client *c, struct transfer *t)
{
    if (t->easy) {
        curl_multi_remove_handle(c->multi, t->easy);
        curl_easy_cleanup(t->easy);
    }
    bench_sse_free(&t->sse);
    buffer_free(&t->error);
    free(t->request);
    free(t);
}

static int start(struct bench_client *c, const struct bench_inputs *in, size_t i, double began,
                 struct bench_result *result, struct quire_error *err)
{
    struct transfer *t = calloc(1, sizeof *t);
    if (!t)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    t->result = result;
    t->request = make_request(c, in, i);
    t->easy = new_easy(c, c->request_url, t->curl_text);
    if (!t->request || !t->easy) {
        free_transfer(c, t);
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory for request %zu", i);
    }
    curl_easy_setopt(t->easy, CURLOPT_POSTFIELDS, t->request);
    curl_easy_setopt(t->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(t->request));
    curl_easy_setopt(t->easy, CURLOPT_WRITEFUNCTION, on_stream);
    curl_easy_setopt(t->easy, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(t->easy, CURLOPT_PRIVATE, t);
    result->n_prompt = in->items[i].n_prompt;
    t->started = quire_now_s();
    result->start_s = t->started - began;
    if (curl_multi_add_handle(c->multi, t->easy) != CURLM_OK) {
        free_transfer(c, t);
        return quire_fail(err, QUIRE_INTERNAL, "libcurl rejects a request");
    }
    return QUIRE_OK;
}

static void finish(struct bench_client *c, struct transfer *t, CURLcode done)
{
    struct bench_result *r = t->result;
    char text[320], shown[256];
    long code = 0;
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &code);
    if (done != CURLE_OK) {
        bench_result_fail(r, t->curl_text[0] ? t->curl_text : curl_easy_strerror(done));
    } else if (code != 200) {
        bench_error_text(t->error.n ? t->error.data : "", t->error.n, shown, sizeof shown);
        snprintf(text, sizeof text, "HTTP %ld: %s", code, shown);
        bench_result_fail(r, text);
    } else if (!t->has_first) {
        bench_result_fail(r, "no token arrived; check that the server streams");
    } else if (!t->has_ended) {
        bench_result_fail(r, "the stream broke off");
    }
    r->ok = !r->error;
    if (!t->has_usage)
        r->n_output = t->n_token_events;
    free_transfer(c, t);
}

/* ---- all requests ---- */

struct load {
    struct bench_client *c;
    const struct bench_inputs *in;
    const double *arrivals;
    struct bench_result *results;
    double began;
    size_t next, n_active, n_over;
    uint32_t max_concurrency;
};

static bool has_space(const struct load *l)
{
    return l->next < l->in->n && (l->max_concurrency == 0 || l->n_active < l->max_concurrency);
}

static int start_due(struct load *l, struct quire_error *err)
{
    int status = QUIRE_OK;
    while (status == QUIRE_OK && has_space(l) && l->arrivals[l->next] <= quire_now_s() - l->began) {
        status = start(l->c, l->in, l->next, l->began, &l->results[l->next], err);
        l->next++;
        l->n_active++;
    }
    return status;
}

static void finish_done(struct load *l)
{
    int left;
    for (CURLMsg *m; (m = curl_multi_info_read(l->c->multi, &left));) {
        char *transfer;
        if (m->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &transfer);
        finish(l->c, (struct transfer *)(void *)transfer, m->data.result);
        l->n_active--;
        l->n_over++;
    }
}

static int poll_ms(const struct load *l)
{
    double wait = has_space(l) ? (l->arrivals[l->next] - (quire_now_s() - l->began)) * 1e3 : POLL_MS;
    return wait <= 0 ? 0 : wait < POLL_MS ? (int)ceil(wait) : POLL_MS;
}

/* As many sockets as the system allows: each request in flight has one. */
static void raise_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int bench_client_run(struct bench_client *c, const struct bench_inputs *in, const double *arrivals,
                     uint32_t max_concurrency, struct bench_progress *progress, struct bench_result *results,
                     double *duration_s, struct quire_error *err)
{
    struct load l = {.c = c, .in = in, .arrivals = arrivals, .results = results, .max_concurrency = max_concurrency};
    int status = QUIRE_OK, running;
    raise_descriptors();
    l.began = quire_now_s();
    while (status == QUIRE_OK && l.n_over < in->n) {
        status = start_due(&l, err);
        if (status == QUIRE_OK && curl_multi_perform(c->multi, &running) != CURLM_OK)
            status = quire_fail(err, QUIRE_INTERNAL, "libcurl failed");
        finish_done(&l);
        if (progress)
            bench_progress_set(progress, l.n_over);
        if (status == QUIRE_OK && l.n_over < in->n)
            curl_multi_poll(c->multi, NULL, 0, poll_ms(&l), NULL);
    }
    *duration_s = quire_now_s() - l.began;
    return status;
}
