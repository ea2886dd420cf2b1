#include "tools/hub/http.h"

#include "base/buffer.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONNECT_TIMEOUT_S 10L
#define MAX_WAIT_S 300 /* upper bound of a busy hub's Retry-After */
#define MAX_HOPS 5L
#define GIVE_TOKEN "HF_TOKEN, --token-file FILE or `hf auth login`"

struct origin {
    char *scheme, *host, *port;
};

struct hub {
    char *endpoint; /* without "/" at its end */
    char token[HUB_TOKEN_BYTES];
    struct origin origin;
    struct curl_slist *headers;
    uint32_t stall_s;
    bool may_send_token;
};

/* ---- addresses ---- */

static void origin_free(struct origin *o)
{
    curl_free(o->scheme);
    curl_free(o->host);
    curl_free(o->port);
    *o = (struct origin){NULL, NULL, NULL};
}

static bool origin_of(const char *url, struct origin *out)
{
    CURLU *u = curl_url();
    char *user = NULL;
    *out = (struct origin){NULL, NULL, NULL};
    bool ok = u && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
              curl_url_get(u, CURLUPART_SCHEME, &out->scheme, 0) == CURLUE_OK &&
              curl_url_get(u, CURLUPART_HOST, &out->host, 0) == CURLUE_OK &&
              curl_url_get(u, CURLUPART_PORT, &out->port, CURLU_DEFAULT_PORT) == CURLUE_OK &&
              curl_url_get(u, CURLUPART_USER, &user, 0) == CURLUE_NO_USER;
    curl_free(user);
    curl_url_cleanup(u);
    if (!ok)
        origin_free(out);
    return ok;
}

static bool is_loopback(const char *host)
{
    unsigned a, b, c, d;
    char rest;
    return strcmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0 ||
           (sscanf(host, "%3u.%3u.%3u.%3u%c", &a, &b, &c, &d, &rest) == 4 && a == 127);
}

bool hub_is_own(const struct hub *hub, const char *url)
{
    struct origin o;
    if (!origin_of(url, &o))
        return false;
    bool own = strcmp(o.scheme, hub->origin.scheme) == 0 && strcasecmp(o.host, hub->origin.host) == 0 &&
               strcmp(o.port, hub->origin.port) == 0;
    origin_free(&o);
    return own;
}

/* text, escaped except for the bytes in keep. NULL: out of memory. */
static char *escaped(const char *text, const char *keep)
{
    char *out = malloc(3 * strlen(text) + 1), *at = out;
    for (; out && *text; text++) {
        if (isalnum((unsigned char)*text) || strchr("-_.~", *text) || strchr(keep, *text))
            *at++ = *text;
        else
            at += sprintf(at, "%%%02X", (unsigned)(unsigned char)*text);
    }
    if (out)
        *at = 0;
    return out;
}

char *hub_file_url(const struct hub *hub, const char *name, const char *commit, const char *file)
{
    char *path = escaped(file, "/"), *url = NULL;
    if (path && asprintf(&url, "%s/%s/resolve/%s/%s", hub->endpoint, name, commit, path) < 0)
        url = NULL;
    free(path);
    return url;
}

/* ---- opening ---- */

int hub_token_read(const char *token_file, char out[HUB_TOKEN_BYTES], struct quire_error *err)
{
    char path[HUB_PATH_BYTES] = "", text[HUB_TOKEN_BYTES + 64];
    const char *value = token_file ? NULL : getenv("HF_TOKEN"), *elsewhere = getenv("HF_TOKEN_PATH");
    FILE *file = NULL;
    out[0] = 0;
    if (value && *value) {
        if ((size_t)snprintf(text, sizeof text, "%s", value) >= sizeof text)
            return quire_fail(err, QUIRE_INVALID, "HF_TOKEN: too long for a token");
    } else {
        if (token_file || (elsewhere && *elsewhere))
            snprintf(path, sizeof path, "%s", token_file ? token_file : elsewhere);
        else if (hub_home_path("token", path, NULL) != QUIRE_OK)
            return QUIRE_OK;
        if (!(file = fopen(path, "re")))
            return !token_file ? QUIRE_OK
                               : quire_fail(err, QUIRE_NOT_FOUND, "--token-file: %.300s: cannot be opened: %m", path);
        size_t n = fread(text, 1, sizeof text - 1, file);
        text[n] = 0;
        fclose(file);
    }
    const char *begin = text + strspn(text, " \t\r\n");
    size_t n = strcspn(begin, " \t\r\n");
    bool ok = n < HUB_TOKEN_BYTES && begin[n + strspn(begin + n, " \t\r\n")] == 0;
    for (size_t i = 0; ok && i < n; i++)
        ok = begin[i] > 0x20 && begin[i] < 0x7f;
    if (!ok)
        return quire_fail(err, QUIRE_INVALID, "%.300s: contains an invalid token", file ? path : "HF_TOKEN");
    memcpy(out, begin, n);
    out[n] = 0;
    return QUIRE_OK;
}

int hub_open(const struct hub_options *options, struct hub **out, struct quire_error *err)
{
    struct hub *hub = calloc(1, sizeof *hub);
    *out = NULL;
    if (!hub || curl_global_init(CURL_GLOBAL_DEFAULT) != 0) {
        free(hub);
        return quire_fail(err, QUIRE_INTERNAL, "libcurl cannot start");
    }
    size_t n = strlen(options->endpoint);
    while (n > 0 && options->endpoint[n - 1] == '/')
        n--;
    hub->endpoint = strndup(options->endpoint, n);
    hub->headers = curl_slist_append(NULL, "Accept-Encoding: identity");
    hub->stall_s = options->stall_s;
    int status = hub->endpoint && hub->headers ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if (status == QUIRE_OK &&
        ((strncmp(hub->endpoint, "http://", 7) != 0 && strncmp(hub->endpoint, "https://", 8) != 0) ||
         strpbrk(hub->endpoint, "?#") || !origin_of(hub->endpoint, &hub->origin)))
        status = quire_fail(err, QUIRE_INVALID,
                            "HF_ENDPOINT: must be an address such as https://huggingface.co, without a password");
    if (status != QUIRE_OK) {
        hub_close(hub);
        return status;
    }
    snprintf(hub->token, sizeof hub->token, "%s", options->token ? options->token : "");
    hub->may_send_token = hub->token[0] && (strcmp(hub->origin.scheme, "https") == 0 || is_loopback(hub->origin.host));
    *out = hub;
    return QUIRE_OK;
}

void hub_close(struct hub *hub)
{
    if (!hub)
        return;
    origin_free(&hub->origin);
    curl_slist_free_all(hub->headers);
    free(hub->endpoint);
    explicit_bzero(hub->token, sizeof hub->token);
    free(hub);
}

/* ---- one request ---- */

static size_t ignore(char *bytes, size_t one, size_t n, void *context)
{
    (void)bytes, (void)one, (void)context;
    return n;
}

int hub_prepare(const struct hub *hub, CURL *easy, const char *url, struct quire_error *err)
{
    bool own = hub_is_own(hub, url);
    curl_easy_reset(easy);
    /* An https hub must not redirect to plain http or to file:. */
    const char *schemes = strcmp(hub->origin.scheme, "https") == 0 ? "https" : "http,https";
    CURLcode bad = curl_easy_setopt(easy, CURLOPT_URL, url);
    if (bad == CURLE_OK)
        bad = curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, schemes);
    if (bad == CURLE_OK)
        bad = curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS_STR, schemes);
    if (bad == CURLE_OK && own && hub->may_send_token)
        bad = curl_easy_setopt(easy, CURLOPT_XOAUTH2_BEARER, hub->token);
    if (bad == CURLE_OK && own && hub->may_send_token)
        bad = curl_easy_setopt(easy, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
    if (bad != CURLE_OK)
        return quire_fail(err, QUIRE_INTERNAL, "libcurl rejects a request: %s", curl_easy_strerror(bad));
    /* A hub on this machine is contacted directly: a proxy for plain http would see the token. */
    if (own && strcmp(hub->origin.scheme, "http") == 0 && is_loopback(hub->origin.host))
        curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
    /* OpenSSL's own variable. A libcurl that was copied from another distribution looks where that one has its file. */
    const char *certificates = getenv("SSL_CERT_FILE");
    if (certificates && *certificates)
        curl_easy_setopt(easy, CURLOPT_CAINFO, certificates);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, hub->headers);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "quire/" QUIRE_VERSION);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, CONNECT_TIMEOUT_S);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, (long)hub->stall_s);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    /* With HTTP/2, parts over one connection would share one congestion window. */
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, ignore);
    return QUIRE_OK;
}

bool hub_may_retry(CURL *easy, CURLcode result, unsigned n_failures, double *wait_s)
{
    long code = 0;
    curl_off_t asked = 0;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &code);
    curl_easy_getinfo(easy, CURLINFO_RETRY_AFTER, &asked);
    if (result == CURLE_UNSUPPORTED_PROTOCOL || result == CURLE_PEER_FAILED_VERIFICATION ||
        result == CURLE_SSL_CACERT_BADFILE || result == CURLE_URL_MALFORMAT)
        return false;
    if (n_failures >= HUB_MAX_FAILURES || asked > MAX_WAIT_S ||
        (result == CURLE_OK && code >= 400 && code < 500 && code != 429 && code != 408))
        return false;
    *wait_s = fmin(ldexp(0.5, (int)n_failures - 1), 10.0);
    if (asked > *wait_s)
        *wait_s = (double)asked;
    return true;
}

void hub_tell(hub_note *note, void *context, const struct quire_error *why, double wait_s)
{
    char text[QUIRE_ERROR_BYTES + 64];
    if (!note)
        return;
    snprintf(text, sizeof text, "%s; retrying in %.1f s", why->text, wait_s);
    note(context, text);
}

static bool header_is(CURL *easy, const char *name, const char *value)
{
    struct curl_header *h;
    return curl_easy_header(easy, name, 0, CURLH_HEADER, -1, &h) == CURLHE_OK && strcmp(h->value, value) == 0;
}

int hub_fail(const struct hub *hub, CURL *easy, const struct hub_failure *f, struct quire_error *err)
{
    const char *name = f->name->text;
    long code = 0;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &code);
    if (f->result != CURLE_OK)
        return quire_fail(err, QUIRE_IO, "%.200s: %.200s", f->what,
                          *f->curl_text ? f->curl_text : curl_easy_strerror(f->result));
    if (header_is(easy, "X-Error-Code", "RevisionNotFound"))
        return quire_fail(err, QUIRE_NOT_FOUND, "%s has no revision %s", name, f->name->revision);
    if (header_is(easy, "X-Error-Code", "EntryNotFound"))
        return quire_fail(err, QUIRE_NOT_FOUND, "%s has no file %.200s", name, f->what);
    if ((code == 401 || code == 403) && hub->token[0] && !hub->may_send_token)
        return quire_fail(err, QUIRE_INVALID,
                          "%s needs a token, and tokens are sent over plain http to this machine only: use https in "
                          "HF_ENDPOINT",
                          name);
    if (code == 403 || header_is(easy, "X-Error-Code", "GatedRepo"))
        return quire_fail(err, QUIRE_INVALID, "%s is gated: accept its terms at %.150s/%s%s", name, hub->endpoint, name,
                          hub->token[0] ? " with the account of the token"
                                        : ", then set your account's token: " GIVE_TOKEN);
    if (code == 401 && hub->token[0])
        return quire_fail(err, QUIRE_INVALID, "%s: the hub rejects this token (HTTP 401): it may have expired", name);
    if (code == 401)
        return quire_fail(err, QUIRE_INVALID,
                          "%s: this model does not exist or is not public (HTTP 401): check the spelling, or set a "
                          "token: " GIVE_TOKEN,
                          name);
    if ((code == 404 || code == 401) && !strchr(name, '/'))
        return quire_fail(err, QUIRE_NOT_FOUND,
                          "%s does not exist at %.150s: names on the hub are ORG/NAME, such as "
                          "Qwen/Qwen2.5-1.5B-Instruct",
                          name, hub->endpoint);
    if (code == 404)
        return quire_fail(err, QUIRE_NOT_FOUND, "%.200s does not exist at %.150s (HTTP 404): check the spelling",
                          f->what, hub->endpoint);
    if (code == 429)
        return quire_fail(err, QUIRE_EXHAUSTED, "%.200s: too many requests to the hub (HTTP 429): retry later%s",
                          f->what, hub->token[0] ? "" : ", or set a token, which has a higher limit");
    return quire_fail(err, QUIRE_IO, "%.200s: the hub replied with HTTP %ld", f->what, code);
}

/* ---- the list ---- */

struct body {
    struct buffer text;
    bool too_large;
};

static size_t gather(char *bytes, size_t one, size_t n, void *context)
{
    struct body *body = context;
    (void)one;
    body->too_large = body->text.n + n > HUB_MAX_LIST_BYTES;
    return body->too_large || buffer_append(&body->text, bytes, n) ? 0 : n;
}

static int list_once(const struct hub *hub, CURL *easy, const char *url, struct hub_failure *f, struct body *body,
                     struct quire_error *err)
{
    int status = hub_prepare(hub, easy, url, err);
    if (status != QUIRE_OK)
        return status;
    /* The list of a renamed model is behind a redirect. libcurl sends the token to no other host or port. */
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(easy, CURLOPT_MAXREDIRS, MAX_HOPS);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, gather);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, body);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, f->curl_text);
    buffer_clear(&body->text);
    f->curl_text[0] = 0;
    f->result = curl_easy_perform(easy);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, NULL);
    return QUIRE_OK;
}

int hub_get_list(const struct hub *hub, const struct hub_name *name, hub_note *note, void *context,
                 struct hub_list *out, struct quire_error *err)
{
    struct hub_failure f = {.what = name->text, .name = name};
    struct body body = {.too_large = false};
    CURL *easy = curl_easy_init();
    char *revision = escaped(name->revision, ""), *url = NULL;
    long code = 0;
    *out = (struct hub_list){.n = 0};
    if (!revision || asprintf(&url, "%s/api/models/%s/revision/%s", hub->endpoint, name->text, revision) < 0)
        url = NULL;
    int status = url && easy ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    for (unsigned n = 1; status == QUIRE_OK; n++) {
        double wait_s;
        if ((status = list_once(hub, easy, url, &f, &body, err)) != QUIRE_OK)
            break;
        curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &code);
        if (f.result == CURLE_OK && code == 200) {
            status = hub_list_parse(body.text.n ? body.text.data : "", body.text.n, out, err);
            break;
        }
        if (body.too_large)
            status = quire_fail(err, QUIRE_INVALID, "the hub's list of files: larger than %u MiB",
                                HUB_MAX_LIST_BYTES >> 20);
        else if (!hub_may_retry(easy, f.result, n, &wait_s))
            status = hub_fail(hub, easy, &f, err);
        else {
            struct quire_error why;
            hub_fail(hub, easy, &f, &why);
            hub_tell(note, context, &why, wait_s);
            usleep((useconds_t)(wait_s * 1e6));
        }
    }
    curl_easy_cleanup(easy);
    buffer_free(&body.text);
    free(revision);
    free(url);
    return status;
}
