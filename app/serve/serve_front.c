#include "app/serve/serve_front.h"

#include "app/companion/companion.h"
#include "app/serving/descriptors.h"
#include "base/log.h"
#include "server/bulk/bulk.h"
#include "server/cache/redis/url.h"
#include "server/cache/similar.h"
#include "server/front/front_model.h"

static void on_companion_gone(void *context)
{
    struct serve *s = context;
    if (s->draining)
        return;
    s->exit_code = 1;
    event_base_loopbreak(s->base);
}

/* --semantic-cache: uses vectors of the embedding model. */
static int compare_questions(struct serve *s, struct quire_error *err)
{
    struct similar_options options = s->flags->cache->similar;
    struct similar *similar;
    struct redis_url redis;
    char path[4096];
    options.threshold = (float)s->flags->cache->threshold;
    options.n_numbers = companion_vectors(s->companion, &options.identity);
    if (cache_flags_companion(s->flags->cache, ".vectors", path, sizeof path))
        options.path = path;
    if (cache_flags_redis(s->flags->cache, &redis))
        options.shared = &redis;
    int status = similar_open(s->base, &options, served_model_embedder(companion_model(s->companion)), &similar, err);
    if (status != QUIRE_OK)
        return status;
    response_cache_compare(s->cache, similar);
    if (options.mode == SIMILAR_ANSWER)
        quire_log(
            QUIRE_LOG_WARN, "server",
            "--semantic-mode answer: what was answered to a similar question is given as it is, and some of these "
            "answers are wrong (docs/guides/caching.md); with --semantic-mode draft none is");
    return status;
}

static struct quire_grammars *use_grammars(struct serve *s)
{
    struct quire_error why;
    struct quire_grammars *grammars = serving_grammars_use(s->grammars, s->text, &why);
    if (!grammars && !(s->engine && own_engine_has_vectors(s->engine)))
        quire_log(QUIRE_LOG_WARN, "server", "requests for structured output are rejected: %s", why.text);
    return grammars;
}

static void log_template(const struct serve *s)
{
    if (quire_text_has_chat(s->text) || (s->engine && own_engine_has_vectors(s->engine)))
        return;
    quire_log(QUIRE_LOG_INFO, "server", "%s has no chat template: /v1/completions continues text, chats are rejected",
              s->flags->says->names.items[0]);
}

static int add_models(struct serve *s, const struct sampling_defaults *sampling, struct quire_error *err)
{
    const struct served_model_options model = {
        .names = s->flags->says->names.items,
        .n_names = s->flags->says->names.n,
        .root = s->flags->says->given,
        .about = s->about,
        .text = s->text,
        .grammars = use_grammars(s),
        .specials_in_messages = s->flags->says->specials_in_messages,
        .keeps_billing_header = s->flags->says->keeps_billing_header,
        .flexible_whitespace = s->flags->says->flexible_whitespace,
        .tool_call_parser = s->flags->says->tool_call_parser,
        .reasoning_parser = s->flags->says->reasoning_parser,
        .sampling = *sampling,
        .cache = s->cache,
        .price = s->flags->cache->price.out >= 0 ? &s->flags->cache->price : NULL,
        .share_answers = s->flags->cache->share_all,
        .compares = s->flags->cache->semantic_model != NULL,
    };
    log_template(s);
    int status = front_add_model(s->front, &model, &s->served, err);
    if (status != QUIRE_OK || !s->flags->companion->model)
        return status;
    if (s->engine && own_engine_has_vectors(s->engine))
        return quire_fail(err, QUIRE_INVALID, "%s: %s is an embedding model, too: serve one of the two",
                          companion_option(s->flags->companion), s->model->name);
    status = companion_open(s->base, s->flags->companion, s->flags->options, s->front, &model, on_companion_gone, s,
                            &s->companion, err);
    if (status == QUIRE_OK)
        status = companion_connect(s->companion, err);
    return status == QUIRE_OK && s->flags->cache->semantic_model ? compare_questions(s, err) : status;
}

int serve_open_front(struct serve *s, const struct sampling_defaults *sampling, struct quire_error *err)
{
    const struct front_options options = {
        .is_private = s->within != NULL,
        .metrics = s->flags->http->metrics_listen ? &s->flags->http->metrics : NULL,
        .host = s->flags->http->host,
        .port = (uint16_t)s->flags->http->port,
        .tls = s->tls,
        .allowed_origins = s->flags->http->origins.items,
        .n_allowed_origins = s->flags->http->origins.n,
        .allowed_hosts = s->flags->http->hosts.items,
        .n_allowed_hosts = s->flags->http->hosts.n,
        .tenants = s->tenants,
        .tenant_metrics = s->flags->says->tenant_metrics,
        .log_requests = s->flags->says->log_requests,
        .strict_fields = s->flags->says->strict_fields,
        .otlp_endpoint = s->flags->says->otlp_endpoint,
        .version = QUIRE_VERSION,
        .max_body_bytes = s->flags->http->max_body_bytes,
        .max_choices = s->flags->http->max_choices,
        .max_connections = s->flags->http->max_connections,
        .max_connections_per_address = s->flags->http->max_connections_per_address,
        .trusted_proxies = s->flags->http->networks,
        .n_trusted_proxies = s->flags->http->n_networks,
        .head_timeout_ms = 1000 * s->flags->http->header_timeout_s,
        .body_timeout_ms = 1000 * s->flags->http->body_timeout_s,
        .idle_timeout_ms = 1000 * s->flags->http->idle_timeout_s,
        .write_timeout_ms = 1000 * s->flags->http->write_timeout_s,
        .responses = s->flags->says->responses,
        .more = s->bulk ? bulk_routes(s->bulk) : NULL,
        .max_streamed_bytes = s->bulk ? BULK_MAX_UPLOAD_BYTES : 0,
    };
    if (!s->within)
        serving_allow_descriptors(s->flags->http->max_connections);
    int status = front_create(s->base, &options, &s->front, err);
    return status == QUIRE_OK ? add_models(s, sampling, err) : status;
}
