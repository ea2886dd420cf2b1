/* The routes of keys, budgets and usage, over HTTP. */
#include "base/clock.h"
#include "base/hash.h"
#include "server/gateway/account/account.h"
#include "server/gateway/account/ledger_internal.h"
#include "server/http/http.h"

#include <event2/buffer.h>
#include <event2/http.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sqlite3.h>
#include <time.h>

#include <cmocka.h>

#define DOLLAR UINT64_C(1000000000000)

static struct event_base *base;
static struct http_server *server;
static struct ledger *ledger;
static char folder[64], path[96];

/* ---- a server, and a client on the same loop ------------------------------------------------- */

/* "x-admin: 1" is an admin; "x-key: KEY" the caller. */
static void on_request(void *context, struct http_exchange *x)
{
    const char *key = http_header(x, "x-key");
    (void)context;
    struct ledger_account *account = key ? ledger_find(ledger, key, (int64_t)time(NULL))
                                         : ledger_tenant(ledger, "default");
    if (!account_route(ledger, x, http_header(x, "x-admin") != NULL, account))
        http_reply(x, 404, NULL, NULL, 0);
}

static void on_head(void *context, struct http_exchange *x)
{
    (void)context, (void)x;
}

static bool is_urgent(void *context, const struct http_exchange *x)
{
    (void)context, (void)x;
    return false;
}

static void on_bad(void *context, struct http_exchange *x, int status, const char *reason)
{
    (void)context, (void)x, (void)reason;
    fail_msg("%d", status);
}

struct answer {
    int status;
    char text[65536], type[64];
};
static struct answer last;

static void on_answer(struct evhttp_request *request, void *context)
{
    (void)context;
    assert_non_null(request);
    struct evbuffer *body = evhttp_request_get_input_buffer(request);
    const char *type = evhttp_find_header(evhttp_request_get_input_headers(request), "Content-Type");
    last.status = evhttp_request_get_response_code(request);
    const ssize_t n = evbuffer_copyout(body, last.text, sizeof last.text - 1);
    last.text[n > 0 ? n : 0] = '\0';
    snprintf(last.type, sizeof last.type, "%s", type ? type : "");
    event_base_loopbreak(base);
}

/* by: "admin", NULL or a key. */
static const char *ask(enum evhttp_cmd_type method, const char *url, const char *body, const char *by, int status)
{
    struct evhttp_connection *c = evhttp_connection_base_new(base, NULL, "127.0.0.1", http_server_port(server));
    struct evhttp_request *request = evhttp_request_new(on_answer, NULL);
    struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
    evhttp_add_header(headers, "Host", "x");
    if (by)
        evhttp_add_header(headers, strcmp(by, "admin") == 0 ? "x-admin" : "x-key", by);
    if (body)
        evbuffer_add(evhttp_request_get_output_buffer(request), body, strlen(body));
    last.status = 0;
    evhttp_make_request(c, request, method, url);
    event_base_dispatch(base);
    evhttp_connection_free(c);
    if (last.status != status)
        fail_msg("%s: %d instead of %d: %s", url, last.status, status, last.text);
    return last.text;
}

static json_t *ask_json(enum evhttp_cmd_type method, const char *url, const char *body, const char *by)
{
    json_error_t error;
    json_t *reply = json_loads(ask(method, url, body, by, 200), JSON_REJECT_DUPLICATES, &error);
    if (!reply)
        fail_msg("%s: %s", error.text, last.text);
    return reply;
}

static void says(const char *what)
{
    if (!strstr(last.text, what))
        fail_msg("\"%s\" is not in %s", what, last.text);
}

static void open_all(void)
{
    struct quire_error err = {.text = ""};
    if (ledger_open(base, path, &ledger, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
}

static int begin(void **state)
{
    static const struct http_handler handler = {on_head, is_urgent, on_request, on_bad};
    static const struct http_limits limits = {.max_head_bytes = 65536,
                                              .max_body_bytes = 1 << 20,
                                              .max_all_bodies_bytes = 1 << 24,
                                              .max_pending_bytes = 1 << 24,
                                              .max_connections = 16,
                                              .head_timeout_ms = 60000,
                                              .body_timeout_ms = 60000,
                                              .idle_timeout_ms = 60000,
                                              .write_timeout_ms = 60000};
    struct quire_error err;
    (void)state;
    strcpy(folder, "/tmp/quire-keys-XXXXXX");
    base = mkdtemp(folder) ? event_base_new() : NULL;
    snprintf(path, sizeof path, "%s/ledger", folder);
    open_all();
    return http_server_open(base, "127.0.0.1", 0, 16, &limits, &handler, NULL, &server, &err);
}

static int end(void **state)
{
    char command[128];
    (void)state;
    http_server_close(server);
    ledger_close(ledger);
    event_base_free(base);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/* Issues a key; its text and id are copied. */
static void issue(const char *body, char text[80], char id[32])
{
    json_t *key = ask_json(EVHTTP_REQ_POST, "/admin/keys", body, "admin");
    snprintf(text, 80, "%s", json_string_value(json_object_get(key, "key")));
    snprintf(id, 32, "%s", json_string_value(json_object_get(key, "id")));
    json_decref(key);
}

static bool is_valid(const char *text)
{
    return ledger_find(ledger, text, (int64_t)time(NULL)) != NULL;
}

/* ---- keys ----------------------------------------------------------------------------------- */

static void issued_rotated_revoked(void **state)
{
    char first[80], second[80], third[80], id[32], url[96], other[80], other_id[32];
    (void)state;
    assert_false(ledger_asks_key(ledger));
    issue("{\"name\":\"CI of acme\",\"organisation\":\"acme\",\"tenant\":\"ci\",\"budget\":2.5}", first, id);
    assert_true(ledger_asks_key(ledger));
    assert_int_equal(strlen(first), 57);
    assert_string_equal(ledger_tenant_name(ledger_find(ledger, first, 1)), "ci");
    assert_false(is_valid("sk-quire-000000000000000000000000000000000000000000000000"));
    assert_false(is_valid(""));

    snprintf(url, sizeof url, "/admin/keys/%s/rotate", id);
    const int64_t before_s = (int64_t)time(NULL);
    json_t *reply = ask_json(EVHTTP_REQ_POST, url, "{\"grace_seconds\":60}", "admin");
    snprintf(second, sizeof second, "%s", json_string_value(json_object_get(reply, "key")));
    json_decref(reply);
    const int64_t now_s = (int64_t)time(NULL);
    assert_true(is_valid(first) && is_valid(second) && strcmp(first, second) != 0);
    assert_non_null(ledger_find(ledger, first, before_s + 59));
    assert_null(ledger_find(ledger, first, now_s + 61));
    assert_non_null(ledger_find(ledger, second, now_s + 61));
    reply = ask_json(EVHTTP_REQ_POST, url, "{\"grace_seconds\":0}", "admin");
    snprintf(third, sizeof third, "%s", json_string_value(json_object_get(reply, "key")));
    json_decref(reply);
    assert_true(!is_valid(first) && !is_valid(second) && is_valid(third));

    /* All of it is in the file, and none of the texts. */
    issue("{\"name\":\"b\"}", other, other_id);
    ledger_close(ledger);
    char command[256];
    snprintf(command, sizeof command, "! grep -aqE 'sk-quire|%.16s' %s*", third + 9, path);
    assert_int_equal(system(command), 0);
    open_all();
    assert_true(!is_valid(first) && !is_valid(second) && is_valid(third) && is_valid(other));
    snprintf(url, sizeof url, "/admin/keys/%s", id);
    json_decref(ask_json(EVHTTP_REQ_DELETE, url, NULL, "admin"));
    assert_false(is_valid(third));
    ledger_close(ledger);
    open_all();
    assert_true(!is_valid(third) && is_valid(other));

    reply = ask_json(EVHTTP_REQ_GET, "/admin/keys", NULL, "admin");
    assert_null(strstr(last.text, "sk-quire"));
    const json_t *key = json_array_get(json_object_get(reply, "data"),
                                       strstr(last.text, "CI of acme") < strstr(last.text, other_id) ? 0 : 1);
    assert_string_equal(json_string_value(json_object_get(key, "organisation")), "acme");
    assert_true(json_real_value(json_object_get(key, "budget")) == 2.5);
    assert_true(json_integer_value(json_object_get(key, "revoked")) >= now_s);
    json_decref(reply);
    snprintf(url, sizeof url, "/admin/keys/%s/rotate", id);
    ask(EVHTTP_REQ_POST, url, NULL, "admin", 409);
    says("the key is revoked");
}

static void requests_that_are_wrong(void **state)
{
    static const struct {
        enum evhttp_cmd_type method;
        const char *url, *body, *by;
        int status;
        const char *says;
    } rows[] = {
        {EVHTTP_REQ_GET, "/admin/keys", NULL, NULL, 403, "needs the key of an admin"},
        {EVHTTP_REQ_POST, "/admin/keys", "{\"name\":\"x\"}", NULL, 403, "admin"},
        {EVHTTP_REQ_PUT, "/admin/budgets/tenant/x", "{\"budget\":1}", NULL, 403, "admin"},
        {EVHTTP_REQ_PUT, "/admin/keys", "{}", "admin", 405, "does not take PUT"},
        {EVHTTP_REQ_POST, "/admin/keys", NULL, "admin", 400, "name: must be a text"},
        {EVHTTP_REQ_POST, "/admin/keys", "[]", "admin", 400, "must be an object"},
        {EVHTTP_REQ_POST, "/admin/keys", "{", "admin", 400, "request body"},
        {EVHTTP_REQ_POST, "/admin/keys", "{\"name\":7}", "admin", 400, "name: must be a text"},
        {EVHTTP_REQ_POST, "/admin/keys", "{\"name\":\"\"}", "admin", 400, "name: must be a text"},
        {EVHTTP_REQ_POST, "/admin/keys", "{\"name\":\"a\\nb\"}", "admin", 400, "control characters"},
        {EVHTTP_REQ_POST, "/admin/keys", "{\"name\":\"x\",\"tenent\":\"y\"}", "admin", 400,
         "\\\"tenent\\\" is not a field"},
        {EVHTTP_REQ_POST, "/admin/keys", "{\"name\":\"x\",\"tenant\":\"a b\"}", "admin", 400,
         "tenant: must be 1 to 64"},
        {EVHTTP_REQ_POST, "/admin/keys", "{\"name\":\"x\",\"budget\":-1}", "admin", 400, "budget: must be dollars"},
        {EVHTTP_REQ_POST, "/admin/keys", "{\"name\":\"x\",\"budget\":\"1e3\"}", "admin", 400,
         "budget: must be dollars"},
        {EVHTTP_REQ_POST, "/admin/keys", "{\"name\":\"x\",\"budget\":1e300}", "admin", 400, "budget: must be dollars"},
        {EVHTTP_REQ_POST, "/admin/keys", "{\"name\":\"x\",\"budget\":true}", "admin", 400, "budget: must be dollars"},
        {EVHTTP_REQ_DELETE, "/admin/keys/key_0123456789abcdef", NULL, "admin", 404, "there is no key"},
        {EVHTTP_REQ_DELETE, "/admin/keys/../../x", NULL, "admin", 404, "no route"},
        {EVHTTP_REQ_GET, "/admin/keys/key_0123456789abcdef", NULL, "admin", 405, "does not take GET"},
        {EVHTTP_REQ_POST, "/admin/keys/key_0123456789abcdef/rotate", NULL, "admin", 404, "there is no key"},
        {EVHTTP_REQ_POST, "/admin/keys/key_0123456789abcdef/spin", NULL, "admin", 404, "no route"},
        {EVHTTP_REQ_PUT, "/admin/budgets/team/x", "{\"budget\":1}", "admin", 404, "organisation, tenant or key"},
        {EVHTTP_REQ_PUT, "/admin/budgets/tenant/a%20b", "{\"budget\":1}", "admin", 404, "is not a name"},
        {EVHTTP_REQ_PUT, "/admin/budgets/tenant/x", "{}", "admin", 400, "budget: is missing"},
        {EVHTTP_REQ_PUT, "/admin/budgets/tenant", "{}", "admin", 404, "no route"},
        {EVHTTP_REQ_PUT, "/admin/budgets/key/key_0123456789abcdef", "{\"budget\":1}", "admin", 404, "there is no key"},
        {EVHTTP_REQ_POST, "/usage", "{}", "admin", 405, "does not take POST"},
        {EVHTTP_REQ_GET, "/usage?day=1", NULL, "admin", 400, "unknown field"},
        {EVHTTP_REQ_GET, "/usage?from=2026-02-30", NULL, "admin", 400, "from: must be a day"},
        {EVHTTP_REQ_GET, "/usage?from=2026-1-30", NULL, "admin", 400, "from: must be a day"},
        {EVHTTP_REQ_GET, "/usage?to=x", NULL, "admin", 400, "to: must be a day"},
        {EVHTTP_REQ_GET, "/usage?from=2026-02-02&to=2026-02-01", NULL, "admin", 400, "from: must not be after to"},
        {EVHTTP_REQ_GET, "/usage?from=2020-01-01&to=2026-01-01", NULL, "admin", 400, "at most 365 days"},
        {EVHTTP_REQ_GET, "/usage?format=xml", NULL, "admin", 400, "format: must be json or csv"},
        {EVHTTP_REQ_GET, "/usage?key=%ff", NULL, "admin", 400, "key: is not a valid text"},
        {EVHTTP_REQ_GET, "/usage?tenant=x", NULL, NULL, 403, "key, tenant and organisation need the key"},
        {EVHTTP_REQ_GET, "/admin/keyss", NULL, "admin", 404, ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ask(rows[i].method, rows[i].url, rows[i].body, rows[i].by, rows[i].status);
        says(rows[i].says);
    }
    /* A tenant has one organisation. */
    ask(EVHTTP_REQ_POST, "/admin/keys", "{\"name\":\"x\",\"tenant\":\"t\",\"organisation\":\"o\"}", "admin", 200);
    ask(EVHTTP_REQ_POST, "/admin/keys", "{\"name\":\"y\",\"tenant\":\"t\",\"organisation\":\"p\"}", "admin", 400);
    says("organisation: tenant t belongs to organisation o");
}

/* ---- budgets and usage ---------------------------------------------------------------------- */

static void charge(const char *key, const char *model, uint64_t cost, uint64_t saved, const char *layer, int64_t at_s)
{
    const struct ledger_usage usage = {
        .input = 10, .cached_input = 4, .output = 5, .from_cache = layer != NULL, .cache_layer = layer};
    struct ledger_account *a = key ? ledger_find(ledger, key, at_s) : ledger_tenant(ledger, "default");
    ledger_charge(ledger, a, model, cost, saved, &usage, at_s);
}

static void budgets(void **state)
{
    char text[80], id[32];
    struct api_error e;
    const char *warning;
    const int64_t now_s = (int64_t)time(NULL);
    (void)state;
    issue("{\"name\":\"a\",\"tenant\":\"t\",\"organisation\":\"o\"}", text, id);
    struct ledger_account *a = ledger_find(ledger, text, now_s);
    charge(text, "m", 3 * DOLLAR, 0, NULL, now_s);
    ask(EVHTTP_REQ_PUT, "/admin/budgets/organisation/o", "{\"budget\":\"3.000000000001\"}", "admin", 200);
    says("{\"kind\":\"organisation\",\"name\":\"o\",\"budget\":3.000000000001,\"spent_today\":3}");
    assert_true(ledger_admit(ledger, a, now_s, &warning, &e) && strstr(warning, "organisation o has used 99 %"));
    charge(text, "m", 1, 0, NULL, now_s);
    assert_false(ledger_admit(ledger, a, now_s, &warning, &e));
    ledger_close(ledger);
    open_all();
    a = ledger_find(ledger, text, now_s);
    assert_false(ledger_admit(ledger, a, now_s, &warning, &e));
    assert_non_null(strstr(e.why.text, "the budget of organisation o for a day, 3.000000000001 dollars, is used up"));
    ask(EVHTTP_REQ_PUT, "/admin/budgets/organisation/o", "{\"budget\":null}", "admin", 200);
    assert_true(ledger_admit(ledger, a, now_s, &warning, &e));
    char url[96];
    snprintf(url, sizeof url, "/admin/budgets/key/%s", id);
    ask(EVHTTP_REQ_PUT, url, "{\"budget\":0.5}", "admin", 200);
    assert_false(ledger_admit(ledger, a, now_s, &warning, &e));
    ledger_close(ledger);
    open_all();
    assert_false(ledger_admit(ledger, ledger_find(ledger, text, now_s), now_s, &warning, &e));
    ask(EVHTTP_REQ_GET, "/admin/budgets", NULL, "admin", 200);
    says("{\"kind\":\"tenant\",\"name\":\"t\",\"budget\":null,\"spent_today\":3.000000000001}");
}

static void usage(void **state)
{
    char text[80], id[32], day[16], url[128], expected[512];
    const int64_t now_s = 20000 * 86400 + 5;
    (void)state;
    issue("{\"name\":\"a\",\"tenant\":\"t\",\"organisation\":\"o\"}", text, id);
    charge(text, "m", 1, 0, NULL, now_s);
    charge(text, "m", 2, 0, NULL, now_s + 1);
    charge(text, "m", 0, 7, "memory", now_s);
    charge(text, "@n", 5, 0, NULL, now_s + 86400);
    charge(NULL, "m", 100 * DOLLAR, 0, NULL, now_s);
    /* The list has all charges before it, although a thread writes them. */
    ask(EVHTTP_REQ_GET, "/usage?from=2024-10-04&to=2024-10-05&format=csv", NULL, text, 200);
    assert_string_equal(last.type, "text/csv; charset=utf-8");
    snprintf(
        expected, sizeof expected,
        "day,organisation,tenant,key,model,cache_layer,requests,input_tokens,cached_input_tokens,output_tokens,cost,saved\r\n"
        "2024-10-04,\"o\",\"t\",\"%s\",\"m\",\"\",2,20,8,10,0.000000000003,0\r\n"
        "2024-10-04,\"o\",\"t\",\"%s\",\"m\",\"memory\",1,10,4,5,0,0.000000000007\r\n"
        "2024-10-05,\"o\",\"t\",\"%s\",\"'@n\",\"\",1,10,4,5,0.000000000005,0\r\n",
        id, id, id);
    assert_string_equal(last.text, expected);
    json_t *all = ask_json(EVHTTP_REQ_GET, "/usage?from=2024-10-04&to=2024-10-04", NULL, "admin");
    assert_int_equal(json_array_size(json_object_get(all, "data")), 3);
    says("\"total\":{\"requests\":4,\"input_tokens\":40,\"cached_input_tokens\":16,\"output_tokens\":20,"
         "\"cost\":100.000000000003,\"saved\":0.000000000007,\"saved_by_layer\":{\"memory\":0.000000000007}}");
    json_decref(all);
    snprintf(url, sizeof url, "/usage?from=2024-10-04&to=2024-10-04&tenant=default");
    all = ask_json(EVHTTP_REQ_GET, url, NULL, "admin");
    says("\"key\":null");
    assert_int_equal(json_array_size(json_object_get(all, "data")), 1);
    json_decref(all);
    /* Today, by default. */
    const time_t now = time(NULL);
    strftime(day, sizeof day, "%Y-%m-%d", gmtime(&now));
    ask(EVHTTP_REQ_GET, "/usage", NULL, text, 200);
    says(day);
    says("\"data\":[]");
    /* The sums do not become floating-point numbers. */
    charge(text, "m", INT64_MAX, 0, NULL, now_s);
    charge(text, "m", UINT64_MAX, 0, NULL, now_s);
    ask(EVHTTP_REQ_GET, "/usage?from=2024-10-04&to=2024-10-04&format=csv", NULL, text, 200);
    says(",4,40,16,20,9223372.036854775807,0\r\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(issued_rotated_revoked, begin, end),
        cmocka_unit_test_setup_teardown(requests_that_are_wrong, begin, end),
        cmocka_unit_test_setup_teardown(budgets, begin, end),
        cmocka_unit_test_setup_teardown(usage, begin, end),
    };
    if (quire_hash_init() != QUIRE_OK)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
