#include "app/serve/serve_check.h"

#include "app/serving/listen.h"
#include "server/front/api/cors.h"
#include "server/front/api/foreign.h"

#include <string.h>

/* Combinations that contradict each other. */
static int check_together(const struct serve_flags *f, const char *of_engine, struct quire_error *err)
{
    const char *wrong = NULL;
    if (!f->says->given)
        wrong = "MODEL is missing; usage: quire serve MODEL [options]";
    else if (f->says->remote && f->says->listen.n > 0)
        wrong = "--listen needs an engine in this process; leave out --listen or --engine";
    else if (f->says->remote && strncmp(f->says->remote, "tcp:", 4) == 0 && !f->says->key_file)
        wrong = "--engine tcp:HOST:PORT needs --engine-key-file, the file with the secret shared with the engine";
    else if (f->says->remote && of_engine)
        return quire_fail(err, QUIRE_INVALID,
                          "--%.*s is for an engine in this process; with --engine, give it to quire engine",
                          (int)strcspn(of_engine, ","), of_engine);
    else if (f->says->remote && f->says->restarts)
        wrong = "--restart is for an engine of this server; with --engine, the server always waits for the engine";
    else if (f->says->warm_file && !f->options->prefix_caching)
        wrong = "--warm fills the prefix cache, which is off: leave out --no-enable-prefix-caching";
    else if (f->says->warm_file && f->says->tenants_file)
        wrong = "--warm fills the cache of one key; with --tenants, use quire cache warm --api-key KEY";
    return wrong ? quire_fail(err, QUIRE_INVALID, "%s", wrong) : (int)QUIRE_OK;
}

/* Addresses, origins, hosts and networks. */
static int parse_lists(struct serve_flags *f, struct quire_error *err)
{
    if (f->http->metrics_listen &&
        serve_metrics_listen(f->http->metrics_listen, f->http->metrics_host, &f->http->metrics, err) != QUIRE_OK)
        return QUIRE_INVALID;
    for (size_t i = 0; i < f->http->origins.n; i++)
        if (cors_check(f->http->origins.items[i], err) != QUIRE_OK) {
            quire_error_prefix(err, "--allowed-origins");
            return QUIRE_INVALID;
        }
    for (size_t i = 0; i < f->http->hosts.n; i++)
        if (foreign_check_host(f->http->hosts.items[i], err) != QUIRE_OK) {
            quire_error_prefix(err, "--allowed-hosts");
            return QUIRE_INVALID;
        }
    for (size_t i = 0; i < f->http->proxies.n; i++)
        if (http_networks_parse(f->http->proxies.items[i], f->http->networks, CLI_MAX_LIST, &f->http->n_networks,
                                err) != QUIRE_OK) {
            quire_error_prefix(err, "--trusted-proxies");
            return QUIRE_INVALID;
        }
    return QUIRE_OK;
}

int serve_check_http(struct serve_flags *f, struct quire_error *err)
{
    if (f->bulk && bulk_flags_check(f->bulk, err) != QUIRE_OK)
        return QUIRE_INVALID;
    if (f->says->tenants_file && f->says->api_keys.n > 0)
        return quire_fail(err, QUIRE_INVALID, "--api-key cannot be used with --tenants, which lists all keys");
    if (f->http->tls_key_file && !f->http->cert_file)
        return quire_fail(err, QUIRE_INVALID, "--ssl-keyfile needs --ssl-certfile, the certificate of the key");
    return parse_lists(f, err);
}

int serve_check(struct serve_flags *f, const char *of_engine, struct quire_error *err)
{
    int status = check_together(f, of_engine, err);
    if (status == QUIRE_OK)
        status = serve_check_http(f, err);
    if (status != QUIRE_OK)
        return status;
    const char *semantic = f->cache->semantic_model;
    if (semantic && f->companion->model && strcmp(semantic, f->companion->model) != 0)
        return quire_fail(err, QUIRE_INVALID,
                          "--semantic-cache %s: --embedding-model is %s; both options must name the same model",
                          semantic, f->companion->model);
    if (semantic && !f->companion->model)
        f->companion->option = "--semantic-cache";
    if (semantic)
        f->companion->model = semantic;
    if (companion_check(f->companion, err) != QUIRE_OK)
        return QUIRE_INVALID;
    if (cache_flags_check(f->cache, err) != QUIRE_OK)
        return QUIRE_INVALID;
    return serving_check_listen(f->says->listen.items, f->says->listen.n, f->says->key_file, err);
}
