#include "server/front/observe/otlp.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/front/output/json_out.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A span is about 1 KiB: this much may wait while a collector is slow. */
#define MAX_WAITING_BYTES ((size_t)4 << 20)
#define BATCH_EVERY_MS 1000
#define CONNECT_TIMEOUT_MS 2000L
#define POST_TIMEOUT_MS 5000L
#define LAST_POST_MS 2000
#define NS_PER_MS UINT64_C(1000000)

struct spans {
    struct buffer json; /* separated by commas */
    uint32_t n_spans;
};

struct otlp {
    char *url, *version;
    CURL *curl;                /* private to the thread */
    struct curl_slist *headers;
    bool failing;              /* likewise: a failure was already logged */
    pthread_t thread;
    bool has_thread;

    pthread_mutex_t mutex;     /* protects the following members */
    pthread_cond_t changed;
    struct spans waiting;
    bool closing;
    uint64_t give_up_ns;       /* when closing: on the clock of quire_now_ns() */
    struct otlp_counts counts;
};

/* ---- the thread ----------------------------------------------------------------------------- */

static size_t on_body(char *data, size_t size, size_t n, void *context)
{
    (void)data;
    (void)context;
    return size * n; /* the collector's reply is ignored */
}

/* A result other than 0 ends the transfer. */
static int on_progress(void *context, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    struct otlp *o = context;
    (void)a, (void)b, (void)c, (void)d;
    pthread_mutex_lock(&o->mutex);
    bool late = o->closing && quire_now_ns() > o->give_up_ns;
    pthread_mutex_unlock(&o->mutex);
    return late;
}

/* Returns true if the collector accepted them. */
static bool post(struct otlp *o, const struct spans *spans, char why[160])
{
    struct buffer body = {0};
    long code = 0;
    json_out_raw(&body, "{\"resourceSpans\":[{\"resource\":{\"attributes\":[{\"key\":\"service.name\",\"value\":"
                        "{\"stringValue\":\"quire\"}},{\"key\":\"service.version\",\"value\":{\"stringValue\":");
    json_out_text(&body, o->version);
    json_out_raw(&body, "}}]},\"scopeSpans\":[{\"scope\":{\"name\":\"quire\",\"version\":");
    json_out_text(&body, o->version);
    json_out_raw(&body, "},\"spans\":[");
    buffer_append(&body, spans->json.data, spans->json.n);
    json_out_raw(&body, "]}]}]}");
    if (body.failed) {
        buffer_free(&body);
        snprintf(why, 160, "out of memory");
        return false;
    }
    curl_easy_setopt(o->curl, CURLOPT_POSTFIELDS, body.data);
    curl_easy_setopt(o->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body.n);
    CURLcode result = curl_easy_perform(o->curl);
    curl_easy_getinfo(o->curl, CURLINFO_RESPONSE_CODE, &code);
    buffer_free(&body);
    if (result != CURLE_OK)
        snprintf(why, 160, "%s", curl_easy_strerror(result));
    else
        snprintf(why, 160, "HTTP status %ld", code);
    return result == CURLE_OK && code >= 200 && code < 300;
}

/* Logs an unavailable collector once, not with every batch. */
static void note_outcome(struct otlp *o, bool taken, const char *why, uint32_t n_spans)
{
    pthread_mutex_lock(&o->mutex);
    *(taken ? &o->counts.n_exported : &o->counts.n_dropped) += n_spans;
    pthread_mutex_unlock(&o->mutex);
    if (taken && o->failing)
        quire_log(QUIRE_LOG_INFO, "server", "--otlp-endpoint: the collector takes spans again");
    if (!taken && !o->failing)
        quire_log(QUIRE_LOG_WARN, "server", "--otlp-endpoint: spans are dropped: %s", why);
    o->failing = !taken;
}

static void *exporter(void *context)
{
    struct otlp *o = context;
    pthread_mutex_lock(&o->mutex);
    for (;;) {
        while (o->waiting.n_spans == 0 && !o->closing)
            pthread_cond_wait(&o->changed, &o->mutex);
        if (o->waiting.n_spans == 0)
            break;
        /* Spans that end soon after are sent in the same batch. */
        const struct timespec due = quire_until_ns(quire_now_ns() + BATCH_EVERY_MS * NS_PER_MS);
        while (!o->closing && o->waiting.json.n < MAX_WAITING_BYTES / 2 &&
               pthread_cond_timedwait(&o->changed, &o->mutex, &due) == 0) {
        }
        struct spans batch = o->waiting;
        o->waiting = (struct spans){0};
        pthread_mutex_unlock(&o->mutex);
        char why[160];
        bool taken = post(o, &batch, why);
        note_outcome(o, taken, why, batch.n_spans);
        buffer_free(&batch.json);
        pthread_mutex_lock(&o->mutex);
    }
    pthread_mutex_unlock(&o->mutex);
    return NULL;
}

/* ---- the callers' side ---- */

void otlp_add(struct otlp *o, const char *json, size_t n_bytes, uint32_t n_spans)
{
    pthread_mutex_lock(&o->mutex);
    struct spans *w = &o->waiting;
    size_t n = w->json.n + (w->n_spans > 0) + n_bytes;
    if (n > MAX_WAITING_BYTES || !buffer_reserve(&w->json, 1 + n_bytes)) {
        o->counts.n_dropped += n_spans;
    } else {
        if (w->n_spans == 0 || n >= MAX_WAITING_BYTES / 2)
            pthread_cond_signal(&o->changed);
        if (w->n_spans > 0)
            buffer_append(&w->json, ",", 1);
        buffer_append(&w->json, json, n_bytes);
        w->n_spans += n_spans;
    }
    w->json.failed = false; /* the next span may fit */
    pthread_mutex_unlock(&o->mutex);
}

struct otlp_counts otlp_counts(struct otlp *o)
{
    pthread_mutex_lock(&o->mutex);
    struct otlp_counts counts = o->counts;
    pthread_mutex_unlock(&o->mutex);
    return counts;
}

/* "http://host:4318" → "http://host:4318/v1/traces". */
static int make_url(const char *url, char **out, struct quire_error *err)
{
    const char *host = strncmp(url, "http://", 7) == 0 ? url + 7 : strncmp(url, "https://", 8) == 0 ? url + 8 : "";
    size_t n_host = strcspn(host, "/");
    if (n_host == 0)
        return quire_fail(err, QUIRE_INVALID, "--otlp-endpoint %s: must be a URL: http://HOST:4318", url);
    bool bare = host[n_host] == '\0' || host[n_host + 1] == '\0';
    size_t size = strlen(url) + sizeof "/v1/traces";
    *out = malloc(size);
    if (!*out)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    snprintf(*out, size, "%.*s%s", bare ? (int)(host - url + (ptrdiff_t)n_host) : (int)strlen(url), url,
             bare ? "/v1/traces" : "");
    return QUIRE_OK;
}

static void set_up_curl(struct otlp *o)
{
    curl_easy_setopt(o->curl, CURLOPT_URL, o->url);
    curl_easy_setopt(o->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(o->curl, CURLOPT_HTTPHEADER, o->headers);
    curl_easy_setopt(o->curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_TIMEOUT_MS);
    curl_easy_setopt(o->curl, CURLOPT_TIMEOUT_MS, POST_TIMEOUT_MS);
    curl_easy_setopt(o->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(o->curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(o->curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(o->curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(o->curl, CURLOPT_XFERINFODATA, o);
}

int otlp_open(const char *url, const char *version, struct otlp **out, struct quire_error *err)
{
    *out = NULL;
    struct otlp *o = calloc(1, sizeof *o);
    if (!o)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&o->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&o->mutex, NULL);
    int status = make_url(url, &o->url, err);
    if (status == QUIRE_OK) {
        curl_global_init(CURL_GLOBAL_DEFAULT);
        o->version = strdup(version);
        o->curl = curl_easy_init();
        /* "Expect:" removes libcurl's pause before a body. */
        o->headers = curl_slist_append(NULL, "Content-Type: application/json");
        if (!o->version || !o->curl || !o->headers || !curl_slist_append(o->headers, "Expect:"))
            status = quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    }
    if (status == QUIRE_OK) {
        set_up_curl(o);
        o->has_thread = pthread_create(&o->thread, NULL, exporter, o) == 0;
        if (!o->has_thread)
            status = quire_fail(err, QUIRE_INTERNAL, "a thread cannot be started");
    }
    if (status != QUIRE_OK) {
        otlp_close(o);
        return status;
    }
    *out = o;
    return QUIRE_OK;
}

void otlp_close(struct otlp *o)
{
    if (!o)
        return;
    pthread_mutex_lock(&o->mutex);
    o->closing = true;
    o->give_up_ns = quire_now_ns() + LAST_POST_MS * NS_PER_MS;
    pthread_cond_signal(&o->changed);
    pthread_mutex_unlock(&o->mutex);
    if (o->has_thread)
        pthread_join(o->thread, NULL);
    if (o->curl)
        curl_easy_cleanup(o->curl);
    curl_slist_free_all(o->headers);
    pthread_cond_destroy(&o->changed);
    pthread_mutex_destroy(&o->mutex);
    buffer_free(&o->waiting.json);
    free(o->version);
    free(o->url);
    free(o);
}
