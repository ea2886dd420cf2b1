#include "app/warm/client.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/encoding/server_url.h"
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CONNECT_TIMEOUT_MS 10000L
#define MAX_REPLY_BYTES ((size_t)256 << 20) /* /tokenize returns every id */
#define MAX_URL_BYTES 1024
#define NAP_MS 50
#define MAX_BUSY 30 /* replies 503 before giving up */

struct cache_client {
    struct cache_client_options options;
    CURL *easy;
    struct curl_slist *headers;
    char base[MAX_URL_BYTES];
    struct buffer reply; /* in progress */
    char curl_text[CURL_ERROR_SIZE];
    double deadline_s; /* 0: none */
};

static bool stopped(const struct cache_client *c)
{
    return (c->options.stop && atomic_load(c->options.stop)) || (c->deadline_s > 0 && quire_now_s() >= c->deadline_s);
}

/* ---- opening ---- */

static int add_header(struct cache_client *c, const char *line, struct quire_error *err)
{
    struct curl_slist *more = curl_slist_append(c->headers, line);
    if (!more)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    c->headers = more;
    return QUIRE_OK;
}

static int add_headers(struct cache_client *c, struct quire_error *err)
{
    char line[1024];
    const char *key = c->options.api_key;
    int status = add_header(c, "Content-Type: application/json", err);
    if (status == QUIRE_OK)
        status = add_header(c, "Expect:", err); /* no delay before a large body */
    if (status != QUIRE_OK || !key)
        return status;
    if (strpbrk(key, "\r\n") || (size_t)snprintf(line, sizeof line, "Authorization: Bearer %s", key) >= sizeof line)
        return quire_fail(err, QUIRE_INVALID, "the API key is too long or contains a line break");
    return add_header(c, line, err);
}

static size_t on_bytes(char *bytes, size_t size, size_t n, void *context)
{
    struct cache_client *c = context;
    n *= size;
    if (n > MAX_REPLY_BYTES - c->reply.n || buffer_append(&c->reply, bytes, n))
        return 0;
    return n;
}

static int on_progress(void *context, curl_off_t a, curl_off_t b, curl_off_t d, curl_off_t e)
{
    (void)a, (void)b, (void)d, (void)e;
    return stopped(context);
}

int cache_client_open(const struct cache_client_options *options, struct cache_client **out, struct quire_error *err)
{
    *out = NULL;
    struct cache_client *c = curl_global_init(CURL_GLOBAL_DEFAULT) == 0 ? calloc(1, sizeof *c) : NULL;
    if (!c)
        return quire_fail(err, QUIRE_INTERNAL, "libcurl cannot start");
    c->options = *options;
    c->easy = curl_easy_init();
    int status = c->easy ? quire_server_url(options->url, c->base, sizeof c->base, err)
                         : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if (status == QUIRE_OK)
        status = add_headers(c, err);
    if (status != QUIRE_OK) {
        cache_client_close(c);
        return status;
    }
    *out = c;
    return QUIRE_OK;
}

void cache_client_close(struct cache_client *c)
{
    if (!c)
        return;
    curl_easy_cleanup(c->easy);
    curl_slist_free_all(c->headers);
    buffer_free(&c->reply);
    free(c);
}

void cache_client_set_deadline(struct cache_client *c, double at_s)
{
    c->deadline_s = at_s;
}

bool cache_client_was_kept(const struct cache_client *c)
{
    struct curl_header *h;
    return curl_easy_header(c->easy, "x-quire-cache", 0, CURLH_HEADER, -1, &h) == CURLHE_OK &&
           (strcmp(h->value, "exact") == 0 || strcmp(h->value, "semantic") == 0);
}

/* ---- a call ---- */

/* One attempt: *http is 0 if there was no reply. */
static int try_once(struct cache_client *c, const char *method, const char *path, const char *body, long *http,
                    struct quire_error *err)
{
    char url[2048];
    *http = 0;
    if ((size_t)snprintf(url, sizeof url, "%s%s", c->base, path) >= sizeof url)
        return quire_fail(err, QUIRE_INVALID, "the server's URL is too long");
    buffer_clear(&c->reply);
    c->curl_text[0] = '\0';
    curl_easy_reset(c->easy);
    curl_easy_setopt(c->easy, CURLOPT_URL, url);
    curl_easy_setopt(c->easy, CURLOPT_CUSTOMREQUEST, method);
    const char *ca_file = getenv("SSL_CERT_FILE"); /* as in openssl, curl and Python */
    if (ca_file)
        curl_easy_setopt(c->easy, CURLOPT_CAINFO, ca_file);
    if (c->options.any_certificate) {
        curl_easy_setopt(c->easy, CURLOPT_SSL_VERIFYPEER, 0L);
        curl_easy_setopt(c->easy, CURLOPT_SSL_VERIFYHOST, 0L);
    }
    curl_easy_setopt(c->easy, CURLOPT_HTTPHEADER, c->headers);
    curl_easy_setopt(c->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c->easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_TIMEOUT_MS);
    curl_easy_setopt(c->easy, CURLOPT_ERRORBUFFER, c->curl_text);
    curl_easy_setopt(c->easy, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(c->easy, CURLOPT_WRITEDATA, c);
    curl_easy_setopt(c->easy, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(c->easy, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(c->easy, CURLOPT_XFERINFODATA, c);
    if (body) {
        curl_easy_setopt(c->easy, CURLOPT_POSTFIELDS, body);
        curl_easy_setopt(c->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(body));
    }
    CURLcode code = curl_easy_perform(c->easy);
    if (code == CURLE_ABORTED_BY_CALLBACK)
        return quire_fail(err, QUIRE_EXHAUSTED, "stopped");
    if (code != CURLE_OK)
        return quire_fail(err, QUIRE_IO, "%s: %s", url, c->curl_text[0] ? c->curl_text : curl_easy_strerror(code));
    curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, http);
    return QUIRE_OK;
}

/* Waits as long as the reply requests; false: stopped meanwhile. */
static bool wait_to_retry(struct cache_client *c)
{
    curl_off_t seconds = 0;
    const struct timespec nap = {.tv_nsec = NAP_MS * 1000000L};
    curl_easy_getinfo(c->easy, CURLINFO_RETRY_AFTER, &seconds);
    for (curl_off_t ms = (seconds > 0 ? seconds : 1) * 1000; ms > 0 && !stopped(c); ms -= NAP_MS)
        nanosleep(&nap, NULL);
    return !stopped(c);
}

static int read_reply(const struct cache_client *c, const char *path, long http, json_t **reply,
                      struct quire_error *err)
{
    int status = quire_json_parse(c->reply.n ? c->reply.data : "", c->reply.n, 64, "the server's reply", reply, err);
    if (http == 200)
        return status == QUIRE_OK ? QUIRE_OK : QUIRE_IO;
    const char *message = json_string_value(json_object_get(json_object_get(*reply, "error"), "message"));
    int code = http >= 400 && http < 500 ? QUIRE_INVALID : QUIRE_IO;
    quire_fail(err, (enum quire_status)code, "%s: HTTP %ld: %.400s", path, http, message ? message : "no reason");
    json_decref(*reply);
    *reply = NULL;
    return code;
}

static int call(struct cache_client *c, const char *method, const char *path, const char *body, json_t **reply,
                struct quire_error *err)
{
    long http;
    for (int n_busy = 0;;) {
        int status = try_once(c, method, path, body, &http, err);
        if (status != QUIRE_OK)
            return status;
        n_busy += http == 503;
        if ((http != 429 && http != 503) || n_busy > MAX_BUSY)
            return read_reply(c, path, http, reply, err);
        if (!wait_to_retry(c))
            return quire_fail(err, QUIRE_EXHAUSTED, "stopped");
    }
}

int cache_client_call(struct cache_client *c, const char *method, const char *path, const json_t *body, json_t **reply,
                      struct quire_error *err)
{
    *reply = NULL;
    if (!body)
        return call(c, method, path, NULL, reply, err);
    json_t *whole = json_copy((json_t *)body);
    if (whole && c->options.model)
        json_object_set_new(whole, "model", json_string(c->options.model));
    char *text = whole ? json_dumps(whole, JSON_COMPACT) : NULL;
    int status = text ? call(c, method, path, text, reply, err) : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    free(text);
    json_decref(whole);
    return status;
}
