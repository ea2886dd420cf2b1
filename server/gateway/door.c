#include "server/gateway/door.h"

#include "server/front/api/api_error.h"
#include "server/front/api/cors.h"
#include "server/front/api/foreign.h"
#include "server/front/api/ui_page.h"
#include "server/front/tenant/inside.h"
#include "server/front/tenant/tenants.h"
#include "server/gateway/account/account.h"
#include "server/gateway/complete/complete.h"
#include "server/gateway/lists.h"
#include "server/gateway/pass.h"
#include "server/gateway/relay/relay.h"
#include "server/gateway/trials.h"
#include "server/http/more_routes.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

extern const struct ui_page targets_page; /* of ui/targets.html */

/* A reply of the gateway's own. */
struct own_route {
    const char *path;
    void (*start)(struct gateway *g, struct http_exchange *x);
    bool is_open;   /* needs no key */
    bool is_urgent; /* is answered without a connection slot */
};

static void targets_ui(struct gateway *g, struct http_exchange *x)
{
    (void)g;
    ui_page_reply(x, &targets_page);
}

static const struct own_route own_routes[] = {
    {"/ui/targets", targets_ui, true, false},
    {"/health", list_health, true, true},
    {"/health/ready", list_health, true, true},
    {"/health/live", list_live, true, true},
    {"/ping", list_health, true, true},
    {"/version", list_version, false, false},
    {"/v1/models", list_models, false, false},
    {"/metrics", list_metrics, false, true},
    {"/gateway/targets", list_targets, false, false},
    {"/gateway/experiments", list_experiments, false, false},
    {"/gateway/experiments/report", report_experiments, false, false},
    {"/v1/models/", list_model, false, false}, /* longer paths: a name may have slashes */
};

/* ---- keys ----------------------------------------------------------------------------------- */

bool door_asks_key(const struct gateway *g)
{
    return tenants_ask_key(g->options.tenants) || ledger_asks_key(g->options.ledger);
}

/* The key of "Authorization: Bearer KEY" or of "x-api-key: KEY"; NULL if both are missing or differ. */
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

struct visitor {
    struct ledger_account *account;
    struct tenant *tenant; /* NULL: a key of the ledger */
};

static bool identify(struct gateway *g, const struct http_exchange *x, struct visitor *v, struct api_error *e)
{
    *v = (struct visitor){0};
    const char *bulk = inside_tenant(x);
    if (bulk) {
        const char *id = inside_account(x);
        v->tenant = tenants_in_bulk(g->options.tenants, bulk);
        v->account = id ? ledger_by_id(g->options.ledger, id) : ledger_tenant(g->options.ledger, bulk);
        if (!v->account && id)
            return api_fail(e, 401, NULL, "invalid_api_key", "the key of this batch was revoked");
        return v->account || api_no_memory(e);
    }
    if (!door_asks_key(g)) {
        v->tenant = tenants_at(g->options.tenants, 0);
        v->account = ledger_tenant(g->options.ledger, v->tenant->name);
        return v->account || api_no_memory(e);
    }
    const char *key = key_of(x);
    if (key && tenants_ask_key(g->options.tenants))
        v->tenant = tenants_find(g->options.tenants, key);
    if (v->tenant)
        v->account = ledger_tenant(g->options.ledger, v->tenant->name);
    else if (key)
        v->account = ledger_find(g->options.ledger, key, (int64_t)time(NULL));
    if (v->account)
        return true;
    if (v->tenant)
        return api_no_memory(e);
    return api_fail(e, 401, NULL, "invalid_api_key",
                    "the API key is missing or wrong: send one key, as \"Authorization: Bearer KEY\" or "
                    "as \"x-api-key: KEY\"");
}

static struct page_rules rules_of(const struct gateway *g)
{
    struct page_rules rules = g->options.pages;
    rules.asks_key = door_asks_key(g);
    rules.is_local = http_server_is_local(g->http);
    rules.has_tls = http_server_has_tls(g->http);
    return rules;
}

/* Whether the client itself is on this machine: not a web page, whose name may resolve to it, and not a client of a proxy
 * here. */
static bool is_here(const struct gateway *g, const struct http_exchange *x)
{
    static const char *const of_proxies[] = {"origin", "forwarded", "x-forwarded-for", "x-real-ip", "via"};
    struct page_rules rules = g->options.pages;
    struct api_error e;
    for (size_t i = 0; i < sizeof of_proxies / sizeof *of_proxies; i++)
        if (http_header(x, of_proxies[i]))
            return false;
    rules.is_local = true;
    return http_from_loopback(x) && foreign_may(&rules, x, &e);
}

/* Whether an admin: a key that the tenants' file marks so; without such keys, a client on this machine that shows no key. */
static bool is_admin(const struct gateway *g, const struct http_exchange *x, const struct visitor *v)
{
    if (tenants_ask_key(g->options.tenants))
        return v->tenant && v->tenant->admin;
    return !key_of(x) && is_here(g, x);
}

/* ---- dispatch ------------------------------------------------------------------------------- */

static const struct own_route *own_route(const char *path)
{
    size_t n = strlen(path);
    for (size_t i = 0; i < sizeof own_routes / sizeof *own_routes; i++) {
        const size_t prefix = strlen(own_routes[i].path);
        const bool is_prefix = own_routes[i].path[prefix - 1] == '/';
        if (is_prefix ? n > prefix && memcmp(path, own_routes[i].path, prefix) == 0
                      : (n == prefix || (n == prefix + 1 && path[prefix] == '/')) &&
                            memcmp(path, own_routes[i].path, prefix) == 0)
            return &own_routes[i];
    }
    return NULL;
}

static bool is_get(const struct http_exchange *x)
{
    return strcmp(http_method(x), "GET") == 0 || strcmp(http_method(x), "HEAD") == 0;
}

static bool check_route(const struct http_exchange *x, const char **allow, struct api_error *e)
{
    const char *method = http_method(x), *path = http_path(x);
    const bool is_own = own_route(path) != NULL, is_relayed = relay_has_path(path);
    const char *service = complete_method(path);
    *allow = NULL;
    if (account_has_path(path) || pass_access(method, path) != PASS_NONE) /* accounts check the method themselves */
        return true;
    if ((service && strcmp(method, service) == 0) || (is_own && is_get(x)) ||
        (is_relayed && strcmp(method, "POST") == 0))
        return true;
    if (!is_own && !is_relayed && !service)
        return api_fail(e, 404, NULL, "unknown_url",
                        "there is no route %.10s %.200s: this is a gateway, with the "
                        "routes of OpenAI's and Anthropic's APIs; quire serve MODEL has those of other tools, too",
                        method, path);
    *allow = is_own ? "GET, HEAD" : service ? service : "POST";
    return api_fail(e, 405, NULL, "method_not_allowed", "%.200s does not take %.10s", path, method);
}

/* Routes of accounts are open to an admin on this machine even if all keys are the ledger's. */
static bool may_enter(struct gateway *g, const struct http_exchange *x, struct visitor *v, struct api_error *e)
{
    const enum pass_access access = pass_access(http_method(x), http_path(x));
    const bool is_known = access == PASS_OPEN || identify(g, x, v, e);
    if (access == PASS_ADMIN && is_known && !is_admin(g, x, v))
        return api_fail(
            e, 403, NULL, "permission_denied",
            "this route is for admins: a key that the tenants' file marks with \"admin\", or without keys a "
            "client on this machine");
    return is_known || (account_has_path(http_path(x)) && is_admin(g, x, v));
}

/* ---- routes of another module ---- */

static bool find_more(const struct gateway *g, const struct http_exchange *x, struct more_route *out)
{
    const struct more_routes *more = g->options.more;
    return more && more->find(more->context, http_path(x), out);
}

static struct http_caller caller_of(const struct gateway *g, const struct http_exchange *x, const struct visitor *v)
{
    return (struct http_caller){.tenant = v->account ? ledger_tenant_name(v->account) : "",
                                .account = v->account ? ledger_account_id(v->account) : NULL,
                                .is_admin = is_admin(g, x, v)};
}

static void begin_more(const struct gateway *g, struct http_exchange *x, const struct more_route *route,
                       const struct visitor *v)
{
    struct api_error e;
    const struct http_caller caller = caller_of(g, x, v);
    if (more_route_takes(route, http_method(x))) {
        g->options.more->on_head(g->options.more->context, x, &caller);
        return;
    }
    http_add_header(x, "Allow", route->methods);
    api_fail(&e, 405, NULL, "method_not_allowed", "%.200s does not take %.10s", http_path(x), http_method(x));
    api_error_reply(x, &e);
}

/* Key, route and method are known before the body arrives: requests that fail these checks are rejected here. */
static void on_head(void *context, struct http_exchange *x)
{
    struct gateway *g = context;
    struct api_error e;
    struct visitor visitor = {0};
    const char *allow;
    struct more_route more = {.methods = NULL};
    const bool is_more = find_more(g, x, &more);
    const struct own_route *own = own_route(http_path(x));
    const struct page_rules rules = rules_of(g);
    if (cors_begin(&rules, x))
        return;
    /* For an unanswered preflight, the missing CORS headers are the answer; this check does not apply. */
    if ((strcmp(http_method(x), "OPTIONS") != 0 && !foreign_may(&rules, x, &e)) ||
        (!(own && own->is_open) && !more.is_open && !may_enter(g, x, &visitor, &e))) {
        api_error_reply(x, &e);
        return;
    }
    if (is_more) {
        begin_more(g, x, &more, &visitor);
        return;
    }
    if (check_route(x, &allow, &e))
        return;
    if (allow)
        http_add_header(x, "Allow", allow);
    api_error_reply(x, &e);
}

/* Health and metrics are answered whatever the load. */
static bool is_urgent(void *context, const struct http_exchange *x)
{
    (void)context;
    const struct own_route *own = own_route(http_path(x));
    return own && own->is_urgent && is_get(x);
}

static void dispatch(struct gateway *g, struct http_exchange *x, const struct visitor *v)
{
    if (complete_method(http_path(x)))
        complete_start(g->complete, x, v->account, is_admin(g, x, v));
    else if (pass_access(http_method(x), http_path(x)) != PASS_NONE)
        pass_begin(g, x);
    else if (!account_route(g->options.ledger, x, is_admin(g, x, v), v->account))
        relay_begin(g, x, v->account, v->tenant);
}

static void on_request(void *context, struct http_exchange *x)
{
    struct gateway *g = context;
    struct api_error e;
    struct visitor visitor = {0};
    const struct own_route *own = own_route(http_path(x));
    struct more_route more = {.methods = NULL};
    if (own) {
        own->start(g, x);
        return;
    }
    if (find_more(g, x, &more) && (more.is_open || may_enter(g, x, &visitor, &e))) {
        const struct http_caller caller = caller_of(g, x, &visitor);
        g->options.more->on_request(g->options.more->context, x, &caller);
        return;
    }
    if (more.methods) { /* the key was revoked since the head */
        api_error_reply(x, &e);
        return;
    }
    if (g->draining) {
        api_fail(&e, 503, NULL, "server_draining", "the server is shutting down");
        e.retry_ms = 1000;
    } else if (may_enter(g, x, &visitor, &e)) { /* the key may have been revoked since the head */
        dispatch(g, x, &visitor);
        return;
    }
    api_error_reply(x, &e);
}

static void on_bad(void *context, struct http_exchange *x, int status, const char *reason)
{
    struct api_error e;
    const struct page_rules rules = rules_of(context);
    cors_headers(&rules, x);
    const char *code = status == 413 ? "request_too_large" : status == 429 ? "rate_limit_exceeded" : "invalid_request";
    api_fail(&e, status, NULL, code, "%s", reason);
    if (status == 503 || status == 429)
        e.retry_ms = 1000;
    api_error_reply(x, &e);
}

const struct http_handler gateway_handler = {on_head, is_urgent, on_request, on_bad};
