#include "app/bulk/place.h"

#include "app/bulk/interruption.h"
#include "app/gateway/serve_target.h"
#include "app/serving/descriptors.h"
#include "base/checksum.h"
#include "base/clock.h"
#include "base/encoding/json.h"
#include "base/encoding/server_url.h"
#include "engine/info.h"
#include "server/front/tenant/tenants.h"
#include "server/gateway/remote/remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_URL 1024
#define MAX_REPLY_BYTES ((uint64_t)72 << 20)
#define CONNECT_MS 10000
#define OF_A_SERVER 10 /* requests at a time: others use it, too */
#define MAX_DEPTH 64
#define OF_A_LINE 2 /* descriptors: both ends of its connection */

struct place {
    struct place_options options;
    struct event_base *base;
    struct remote *remote;
    struct tenants *tenants;
    struct serve_target *target; /* NULL: at a url */
    char url[MAX_URL + 1];
    char authorization[TENANT_MAX_KEY + 32];
    const char *headers[1];
};

/* ---- opening -------------------------------------------------------------------------------- */

static int set_url(struct place *p, struct quire_error *err)
{
    const int status = quire_server_url(p->options.url, p->url, sizeof p->url, err);
    if (status != QUIRE_OK) {
        quire_error_prefix(err, "--url");
        return status;
    }
    if (!p->options.api_key)
        return QUIRE_OK;
    if (strlen(p->options.api_key) > TENANT_MAX_KEY || strpbrk(p->options.api_key, "\r\n"))
        return quire_fail(err, QUIRE_INVALID, "--api-key: has more than %d bytes, or a line end", TENANT_MAX_KEY);
    snprintf(p->authorization, sizeof p->authorization, "authorization: Bearer %s", p->options.api_key);
    p->headers[0] = p->authorization;
    return QUIRE_OK;
}

static int open_target(struct place *p, struct quire_error *err)
{
    const struct place_options *o = &p->options;
    const struct serve_target_options target = {
        .name = "batch",
        .model = o->name,
        .dir = o->model,
        .options = o->options,
        .n_options = o->n_options,
        .tenants = p->tenants,
        .is_quiet = true,
    };
    return serve_target_open(p->base, &target, &p->target, err);
}

/* If connections took all descriptors, none could be accepted, and all would wait. */
static int check_descriptors(struct quire_error *err)
{
    return serving_descriptors() >= OF_A_LINE
               ? QUIRE_OK
               : quire_fail(err, QUIRE_INVALID, "the limit of open files is too low; raise it: ulimit -n 1024");
}

int place_open(const struct place_options *options, struct place **out, struct quire_error *err)
{
    struct place *p = *out = calloc(1, sizeof *p);
    if (!p)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    p->options = *options;
    interruption_says_so();
    p->base = event_base_new();
    int status = p->base ? remote_open(p->base, &p->remote, err)
                         : quire_fail(err, QUIRE_INTERNAL, "libevent cannot create an event loop");
    if (status == QUIRE_OK && options->url)
        status = set_url(p, err);
    if (status == QUIRE_OK && !options->url)
        status = tenants_from_keys(NULL, 0, quire_now_us(), &p->tenants, err);
    if (status == QUIRE_OK && !options->url) {
        serving_allow_descriptors(8192);
        status = check_descriptors(err);
    }
    if (status == QUIRE_OK && !options->url) {
        status = open_target(p, err);
    }
    if (status != QUIRE_OK) {
        place_close(p);
        *out = NULL;
    }
    return status;
}

void place_close(struct place *p)
{
    if (!p)
        return;
    remote_close(p->remote);
    serve_target_close(p->target);
    tenants_free(p->tenants);
    if (p->base)
        event_base_free(p->base);
    free(p);
}

/* ---- facts ---------------------------------------------------------------------------------- */

struct event_base *place_base(const struct place *p)
{
    return p->base;
}

struct remote *place_remote(const struct place *p)
{
    return p->remote;
}

const char *place_socket(const struct place *p)
{
    return p->target ? serve_target_socket(p->target) : NULL;
}

const char *place_url(const struct place *p)
{
    return p->target ? "http://localhost" : p->url;
}

const char *const *place_headers(const struct place *p, size_t *n)
{
    *n = p->headers[0] != NULL;
    return p->headers;
}

uint64_t place_identity(const struct place *p)
{
    const struct engine_info *info = p->target ? serve_target_info(p->target) : NULL;
    const char *model = p->options.model ? p->options.model : "", *name = p->options.name ? p->options.name : "";
    uint64_t sum = quire_checksum(info ? info->max_model_len : 0, name, strlen(name));
    if (!info || !p->options.name)
        sum = quire_checksum(sum, model, strlen(model));
    return info ? quire_checksum(sum, &info->identity.digest, sizeof info->identity.digest)
                : quire_checksum(sum, p->url, strlen(p->url));
}

/* A model of this process serves nobody else, so as many lines run as fit into a step, and some wait so that the next one
 * is there when one ends. */
uint32_t place_concurrency(const struct place *p, uint32_t wanted)
{
    const struct engine_info *info = p->target ? serve_target_info(p->target) : NULL;
    const uint32_t most = p->target ? serving_descriptors() / OF_A_LINE : UINT32_MAX;
    if (wanted == 0)
        wanted = info ? info->max_num_seqs + info->max_num_seqs / 4 + 1 : OF_A_SERVER;
    return wanted < most ? wanted : most;
}

bool place_died(const struct place *p)
{
    return p->target && serve_target_died(p->target);
}

/* ---- one call ------------------------------------------------------------------------------- */

struct waiting {
    struct place *place;
    struct buffer *reply;
    int status;
    bool is_over;
    enum remote_end end;
    char why[200];
};

static void on_head(void *context, int status)
{
    ((struct waiting *)context)->status = status;
}

static void on_body(void *context, const char *bytes, size_t n)
{
    buffer_append(((struct waiting *)context)->reply, bytes, n);
}

static void on_end(void *context, enum remote_end end, const char *why)
{
    struct waiting *w = context;
    w->end = end;
    snprintf(w->why, sizeof w->why, "%s", why);
    w->is_over = true;
    event_base_loopbreak(w->place->base);
}

static int judge(const struct waiting *w, const char *path, struct quire_error *err)
{
    json_t *body;
    if (w->end != REMOTE_WHOLE || w->reply->failed)
        return quire_fail(err, QUIRE_IO, "%s: %s", path,
                          w->why[0] ? w->why : "the connection ended, or memory is short");
    if (w->status == 200)
        return QUIRE_OK;
    if (quire_json_parse(w->reply->data ? w->reply->data : "", w->reply->n, MAX_DEPTH, path, &body, NULL) != QUIRE_OK)
        body = NULL;
    const char *message = json_string_value(json_object_get(json_object_get(body, "error"), "message"));
    const int status = quire_fail(err, w->status / 100 == 4 ? QUIRE_INVALID : QUIRE_IO, "%s: %s (status %d)", path,
                                  message ? message : "refused", w->status);
    json_decref(body);
    return status;
}

int place_call(struct place *p, const char *method, const char *path, const char *body, size_t n_body,
               struct buffer *reply, struct quire_error *err)
{
    static const struct remote_events events = {on_head, on_body, on_end};
    struct waiting w = {.place = p, .reply = reply};
    struct remote_call *call;
    char url[MAX_URL + 256];
    const char *headers[2] = {"content-type: application/json", p->headers[0]};
    snprintf(url, sizeof url, "%s%s", place_url(p), path);
    const struct remote_request request = {.method = method,
                                           .url = url,
                                           .headers = headers,
                                           .n_headers = p->headers[0] ? 2 : 1,
                                           .body = body,
                                           .n_body = n_body,
                                           .connect_ms = CONNECT_MS,
                                           .max_reply_bytes = MAX_REPLY_BYTES,
                                           .socket = place_socket(p)};
    buffer_clear(reply);
    int status = remote_begin(p->remote, &request, &events, &w, &call, err);
    if (status != QUIRE_OK)
        return status;
    while (!w.is_over && !event_base_got_exit(p->base)) {
        event_base_dispatch(p->base);
        if (!w.is_over && place_died(p)) {
            remote_cancel(call);
            return quire_fail(err, QUIRE_UNAVAILABLE, "the engine has failed");
        }
    }
    return judge(&w, path, err);
}
