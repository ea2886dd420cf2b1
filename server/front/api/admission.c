/* Admission: finds the tenant of a request, and checks its limits and whether an engine can serve it. */
#include "server/front/front_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "server/front/tenant/inside.h"

#include <stdio.h>
#include <string.h>

#define BULK_DOMAIN "quire batch own." /* QUIRE_HASH_LABEL_BYTES */
#define LEAST_RETRY_MS 1000u
#define MOST_RETRY_MS 60000u

/* Returns the time until a restarting engine is expected, from LEAST_RETRY_MS to MOST_RETRY_MS. */
static uint32_t retry_ms(const struct served_model *m)
{
    const uint64_t now_ms = quire_now_ms(), until_ms = m->front->draining ? 0 : upstream_returns_ms(m->upstream);
    const uint64_t left_ms = until_ms > now_ms ? until_ms - now_ms : 0;
    return left_ms < LEAST_RETRY_MS ? LEAST_RETRY_MS : left_ms > MOST_RETRY_MS ? MOST_RETRY_MS : (uint32_t)left_ms;
}

bool front_can_serve(const struct served_model *m, struct api_error *e)
{
    const enum upstream_state state = upstream_state(m->upstream);
    if (m->front->draining || state == UPSTREAM_DRAINING)
        api_fail(e, 503, NULL, "server_draining", "the server is shutting down");
    else if (state != UPSTREAM_READY)
        api_fail(e, 503, NULL, "engine_unavailable",
                 state == UPSTREAM_RESTARTING ? "the engine is being started again" : "the engine is not there");
    else
        return true;
    e->retry_ms = retry_ms(m);
    return false;
}

void front_failed_with(const struct served_model *m, int status, struct api_error *e)
{
    if (status != QUIRE_IO || upstream_is_connected(m->upstream) || front_can_serve(m, e))
        api_fail_status(e, status, NULL);
}

const char *front_state(const struct served_model *m)
{
    static const char *const names[] = {
        [UPSTREAM_STARTING] = "starting",       [UPSTREAM_READY] = "ok",
        [UPSTREAM_DRAINING] = "draining",       [UPSTREAM_RESTARTING] = "restarting",
        [UPSTREAM_GONE] = "engine_unavailable", [UPSTREAM_FAILED] = "dead",
    };
    const enum upstream_state state = upstream_state(m->upstream);
    return names[m->front->draining && state != UPSTREAM_FAILED ? UPSTREAM_DRAINING : state];
}

/* Returns the key of "Authorization: Bearer KEY" or of "x-api-key: KEY"; NULL if both are missing or differ. */
static const char *key_of(const struct http_exchange *x)
{
    const char *value = http_header(x, "Authorization"), *other = http_header(x, "x-api-key");
    if (http_header_differs(x, "Authorization") || http_header_differs(x, "x-api-key"))
        return NULL;
    if (!value || strncasecmp(value, "Bearer ", 7) != 0)
        return other;
    const char *bearer = value + 7 + strspn(value + 7, " ");
    return other && strcmp(bearer, other) != 0 ? NULL : bearer;
}

struct tenant *front_tenant(const struct front *f, const struct http_exchange *x, struct api_error *e)
{
    const char *bulk = inside_tenant(x);
    if (bulk)
        return tenants_in_bulk(f->tenants, bulk);
    if (!tenants_ask_key(f->tenants))
        return tenants_at(f->tenants, 0);
    const char *key = key_of(x);
    struct tenant *tenant = key ? tenants_find(f->tenants, key) : NULL;
    if (!tenant && f->is_private) /* a key of the gateway's accounts */
        return tenants_at(f->tenants, 0);
    if (!tenant)
        api_fail(e, 401, NULL, "invalid_api_key",
                 "the API key is missing or wrong: send one key, as \"Authorization: Bearer KEY\" or "
                 "as \"x-api-key: KEY\"");
    return tenant;
}

bool front_is_admin(const struct front *f, const struct http_exchange *x)
{
    struct api_error e;
    /* Browsers send the page's origin: a page that is open in a browser on this machine is no admin. */
    if (!tenants_ask_key(f->tenants))
        return http_from_loopback(x) && !http_header(x, "origin");
    const struct tenant *tenant = front_tenant(f, x, &e);
    return tenant && tenant->admin;
}

struct key256 front_cache_domain(const struct front *f, const struct http_exchange *x)
{
    /* A batch has no key: its tenant's name stands for it. Without keys, everyone is tenant "default". */
    const char *bulk = inside_tenant(x);
    if (bulk && strcmp(bulk, "default") != 0)
        return quire_labelled_hash(BULK_DOMAIN, bulk, strlen(bulk));
    const char *key = tenants_ask_key(f->tenants) || f->is_private ? key_of(x) : NULL;
    return key ? quire_keyed_hash(NULL, key, strlen(key)) : (struct key256){{0}};
}

void front_log_refused(const struct front *f, const struct http_exchange *x, const struct tenant *tenant,
                       const struct api_error *e)
{
    char client[HTTP_ADDRESS_BYTES];
    http_client(x, client);
    const struct quire_log_field fields[] = {
        {.key = "request_id", .text = http_request_id(x)},
        {.key = "client", .text = client},
        {.key = "tenant", .text = tenant ? tenant->name : ""},
        {.key = "route", .text = http_path(x)},
        {.key = "status", .number = e->status},
        {.key = "finish", .text = "error"},
        {.key = "error", .text = e->code ? e->code : ""},
    };
    if (f->log_requests)
        quire_log_fields(QUIRE_LOG_INFO, "server", fields, sizeof fields / sizeof *fields, "request");
}

/* Returns whether the engine was ready before and is now being restarted or reconnected: cached responses can be
 * served. */
static bool has_answers(const struct served_model *m)
{
    const enum upstream_state state = upstream_state(m->upstream);
    return m->cache && upstream_was_ready(m->upstream) && (state == UPSTREAM_GONE || state == UPSTREAM_RESTARTING) &&
           upstream_source(m->upstream).self && !m->front->draining;
}

static struct tenant *begin(struct served_model *m, struct http_exchange *x, bool may_serve, struct api_error *refused)
{
    struct api_error e = *refused;
    uint64_t now_us = quire_now_us();
    struct tenant *tenant = may_serve ? front_tenant(m->front, x, &e) : NULL;
    if (tenant && limits_begin(tenant, now_us, &e))
        return tenant;
    m->counts->n_refused += e.status == 429;
    front_log_refused(m->front, x, tenant, &e);
    if (tenant)
        limits_headers(tenant, now_us, x);
    api_error_reply(x, &e);
    return NULL;
}

struct tenant *front_begin(struct served_model *m, struct http_exchange *x)
{
    struct api_error e = {0};
    bool may_serve = front_can_serve(m, &e);
    return begin(m, x, may_serve, &e);
}

struct tenant *front_begin_cached(struct served_model *m, struct http_exchange *x)
{
    struct api_error e = {0};
    bool may_serve = front_can_serve(m, &e) || has_answers(m);
    return begin(m, x, may_serve, &e);
}

void front_refuse(const struct front *f, struct http_exchange *x, struct tenant *tenant, const struct api_error *e)
{
    front_log_refused(f, x, tenant, e);
    limits_end(tenant);
    limits_headers(tenant, quire_now_us(), x);
    api_error_reply(x, e);
}

void front_bill(const struct tenant *tenant, struct request_spec *spec)
{
    spec->tenant = tenant->index;
    spec->class_index = tenant->class_index;
    spec->background |= tenant->in_bulk;
}
