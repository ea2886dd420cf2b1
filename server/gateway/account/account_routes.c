#include "server/gateway/account/account.h"

#include "server/gateway/account/account_job.h"

#include <string.h>

#define KEYS "/admin/keys"
#define BUDGETS "/admin/budgets"
#define USAGE "/usage"

/* The path behind a route's name, "" or "/..."; NULL if the path is another one. */
static const char *rest_of(const char *path, const char *route)
{
    const size_t n = strlen(route);
    return strncmp(path, route, n) == 0 && (path[n] == '\0' || path[n] == '/') ? path + n : NULL;
}

bool account_has_path(const char *path)
{
    return rest_of(path, KEYS) || rest_of(path, BUDGETS) || strcmp(path, USAGE) == 0;
}

static void refuse(struct http_exchange *x, const char *allow)
{
    struct api_error e;
    if (allow) {
        http_add_header(x, "Allow", allow);
        api_fail(&e, 405, NULL, "method_not_allowed", "%.100s does not take %.10s", http_path(x), http_method(x));
    } else {
        api_fail(&e, 404, NULL, "unknown_url", "there is no route %.10s %.200s", http_method(x), http_path(x));
    }
    api_error_reply(x, &e);
}

static bool is_method(const struct http_exchange *x, const char *method)
{
    return strcmp(http_method(x), method) == 0;
}

/* rest: "/ID" or "/ID/rotate". */
static void route_key(struct ledger *l, struct http_exchange *x, const char *rest)
{
    char id[LEDGER_ID_BYTES];
    struct api_error e;
    const size_t n = strcspn(rest + 1, "/");
    const char *action = rest + 1 + n;
    struct ledger_key *key = NULL;
    const bool is_rotate = strcmp(action, "/rotate") == 0;
    if (!is_rotate && action[0]) {
        refuse(x, NULL);
        return;
    }
    if (n < sizeof id) {
        memcpy(id, rest + 1, n);
        id[n] = '\0';
        key = accounts_key(&l->accounts, id);
    }
    if (!is_method(x, is_rotate ? "POST" : "DELETE")) {
        refuse(x, is_rotate ? "POST" : "DELETE");
    } else if (!key) {
        api_fail(&e, 404, NULL, "not_found", "there is no key %.40s; GET /admin/keys lists all", rest + 1);
        api_error_reply(x, &e);
    } else if (is_rotate) {
        account_rotate_key(l, x, key);
    } else {
        account_revoke_key(l, x, key);
    }
}

static void route_keys(struct ledger *l, struct http_exchange *x, const char *rest)
{
    if (rest[0] && rest[1])
        route_key(l, x, rest);
    else if (is_method(x, "GET"))
        account_list_keys(l, x);
    else if (is_method(x, "POST"))
        account_issue_key(l, x);
    else
        refuse(x, "GET, POST");
}

/* rest: "" or "/KIND/NAME". */
static void route_budgets(struct ledger *l, struct http_exchange *x, const char *rest)
{
    char kind[PAYER_MAX_NAME];
    const size_t n = rest[0] ? strcspn(rest + 1, "/") : 0;
    if (!rest[0] || !rest[1]) {
        if (is_method(x, "GET"))
            account_list_budgets(l, x);
        else
            refuse(x, "GET");
    } else if (n >= sizeof kind || rest[1 + n] != '/') {
        refuse(x, NULL);
    } else if (!is_method(x, "PUT")) {
        refuse(x, "PUT");
    } else {
        memcpy(kind, rest + 1, n);
        kind[n] = '\0';
        account_set_budget(l, x, kind, rest + 2 + n);
    }
}

bool account_route(struct ledger *l, struct http_exchange *x, bool is_admin, struct ledger_account *account)
{
    const char *path = http_path(x), *keys = rest_of(path, KEYS), *budgets = rest_of(path, BUDGETS);
    struct api_error e;
    if (!account_has_path(path))
        return false;
    if (!is_admin && (keys || budgets || !account)) {
        api_fail(&e, 403, NULL, "admin_required", "%.100s needs the key of an admin", path);
        api_error_reply(x, &e);
    } else if (keys) {
        route_keys(l, x, keys);
    } else if (budgets) {
        route_budgets(l, x, budgets);
    } else if (is_method(x, "GET")) {
        account_usage(l, x, is_admin ? NULL : account);
    } else {
        refuse(x, "GET");
    }
    return true;
}
