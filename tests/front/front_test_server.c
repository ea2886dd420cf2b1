/* The front end over the fake engine: HTTP without a model.
 *
 *     front_test_server TOKENIZER_DIRECTORY [--port N] [--mode echo|count] ...
 *
 * Prints "listening on http://127.0.0.1:PORT". SIGTERM drains; a second one ends the process. SIGUSR1 ends the
 * engine. SIGUSR2 ends it and starts another with one more token of context; the server then prints the line again.
 * With --late the new engine greets at the next SIGUSR2, and the server first prints "attached". */
#include "text/quire_chat.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "server/cache/response_cache.h"
#include "server/cache/store/store.h"
#include "server/daemon/daemon.h"
#include "server/front/front_model.h"
#include "server/http/address.h"
#include "server/http/tls.h"
#include "tests/daemon/fake_engine.h"
#include "tests/front/fake_source.h"
#include "text/quire_grammar.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct server {
    struct event_base *base;
    struct front *front;
    struct served_model *model;
    struct daemon *daemon;
    struct engine *engine;
    struct fake_engine_options fake;
    bool drained, has_shadow, restarts; /* restarts: another engine follows the one that ends */
    bool replaces_weights; /* the other engine is of another model */
    bool is_late; /* the other engine greets at a signal */
    uint32_t give_up_ms; /* 0: never */
    struct wire_stream *late; /* the engine's end of a connection, until then */
    struct fake_source *source; /* NULL: the engine answers */
    struct response_cache *cache;
};

static void on_idle(void *context)
{
    struct server *s = context;
    event_base_loopexit(s->base, NULL);
}

static void on_give_up(evutil_socket_t fd, short what, void *context)
{
    struct server *s = context;
    (void)fd;
    (void)what;
    front_cancel(s->front);
}

static void on_signal(evutil_socket_t number, short what, void *context)
{
    struct server *s = context;
    (void)number;
    (void)what;
    if (s->drained) {
        event_base_loopexit(s->base, NULL);
        return;
    }
    s->drained = true;
    if (s->give_up_ms > 0) {
        const struct timeval wait = {.tv_sec = s->give_up_ms / 1000, .tv_usec = s->give_up_ms % 1000 * 1000};
        event_base_once(s->base, -1, EV_TIMEOUT, on_give_up, s, &wait);
    }
    front_drain(s->front, on_idle, s);
}

static void end_engine(struct server *s)
{
    wire_stream_close(s->late);
    s->late = NULL;
    engine_close(s->engine);
    daemon_close(s->daemon);
    s->engine = NULL;
    s->daemon = NULL;
}

static void on_usr1(evutil_socket_t number, short what, void *context)
{
    (void)number;
    (void)what;
    end_engine(context);
}

static void on_usr2(evutil_socket_t number, short what, void *context)
{
    struct server *s = context;
    struct wire_stream *late = s->late;
    (void)number;
    (void)what;
    s->late = NULL;
    if (late) {
        if (daemon_add_connection(s->daemon, late, NULL) != QUIRE_OK)
            event_base_loopexit(s->base, NULL);
        return;
    }
    s->restarts = true;
    end_engine(s);
}

/* Prints the result on standard output: the test waits for it. */
static void on_hangup(evutil_socket_t number, short what, void *context)
{
    struct quire_error err;
    (void)number;
    (void)what;
    if (tenants_reload(context, quire_now_us(), &err) == QUIRE_OK)
        printf("reloaded\n");
    else
        printf("kept: %s\n", err.text);
    fflush(stdout);
}

static void on_ready(void *context, bool is_first)
{
    static const struct key256 identity = {{1}};
    struct server *s = context;
    (void)is_first;
    if (s->source && s->cache)
        response_cache_set_below(s->cache, fake_source_as_source(s->source), &identity, UINT32_MAX);
    else if (s->source)
        served_model_set_source(s->model, fake_source_as_source(s->source));
    printf("listening on http://127.0.0.1:%u\n", front_port(s->front));
    fflush(stdout);
}

/* Front end and engine at the two ends of an in-memory stream on one loop, as in `quire serve MODEL`. */
static int start_engine(struct server *s, bool is_late, struct quire_error *err)
{
    struct daemon_options options = {.model = "fake"};
    struct wire_stream *ends[2];
    int status = daemon_create(s->base, &options, &s->daemon, err);
    if (!status)
        status = fake_engine_open(&s->fake, daemon_sink, s->daemon, &s->engine, err);
    if (!status)
        status = wire_stream_pair(s->base, ends, err);
    if (status)
        return status;
    daemon_set_engine(s->daemon, s->engine);
    daemon_set_shadow(s->daemon, s->has_shadow ? fake_engine_shadow() : NULL);
    if (!is_late)
        status = daemon_add_connection(s->daemon, ends[0], err);
    int second = upstream_attach(served_model_upstream(s->model), ends[1], err);
    if (is_late) {
        s->late = ends[0];
        printf("attached\n");
        fflush(stdout);
    }
    return status ? status : second;
}

static void on_restart(evutil_socket_t fd, short what, void *context)
{
    struct server *s = context;
    struct quire_error err;
    (void)fd;
    (void)what;
    s->fake.max_model_len++;
    s->fake.has_other_weights = s->replaces_weights;
    if (start_engine(s, s->is_late, &err) == QUIRE_OK)
        return;
    fprintf(stderr, "front_test_server: %s\n", err.text);
    event_base_loopexit(s->base, NULL);
}

static void on_lost(void *context, const char *what, const char *why)
{
    struct server *s = context;
    const struct timeval now = {0};
    fprintf(stderr, "%s: %s\n", what, why);
    if (!s->restarts)
        return;
    s->restarts = false;
    event_base_once(s->base, -1, EV_TIMEOUT, on_restart, s, &now);
}

static const struct option names[] = {
    {"port", required_argument, NULL, 'p'},
    {"mode", required_argument, NULL, 'o'},
    {"max-model-len", required_argument, NULL, 'x'},
    {"interval-us", required_argument, NULL, 'i'},
    {"tokens-per-step", required_argument, NULL, 's'},
    {"max-live", required_argument, NULL, 'L'},
    {"fail-token", required_argument, NULL, 'f'},
    {"api-key", required_argument, NULL, 'k'},
    {"max-body-bytes", required_argument, NULL, 'b'},
    {"max-connections", required_argument, NULL, 'c'},
    {"max-choices", required_argument, NULL, 'm'},
    {"head-timeout-ms", required_argument, NULL, 'h'},
    {"body-timeout-ms", required_argument, NULL, 'B'},
    {"idle-timeout-ms", required_argument, NULL, 'I'},
    {"write-timeout-ms", required_argument, NULL, 'w'},
    {"ping-ms", required_argument, NULL, 'P'},
    {"name", required_argument, NULL, 'n'},
    {"tenants", required_argument, NULL, 't'},
    {"allowed-origins", required_argument, NULL, 'O'},
    {"allowed-hosts", required_argument, NULL, 'A'},
    {"host", required_argument, NULL, 'H'},
    {"max-connections-per-address", required_argument, NULL, 'd'},
    {"trusted-proxies", required_argument, NULL, 'Y'},
    {"special-tokens-in-messages", required_argument, NULL, 'Z'},
    {"keep-billing-header", no_argument, NULL, 'J'},
    {"certificate", required_argument, NULL, 'C'},
    {"tool-call-parser", required_argument, NULL, 'u'},
    {"reasoning-parser", required_argument, NULL, '1'},
    {"tenant-metrics", no_argument, NULL, 'T'},
    {"source", required_argument, NULL, 'q'},
    {"shadow", no_argument, NULL, 'S'},
    {"refuse-below-ms", required_argument, NULL, 'r'},
    {"give-up-ms", required_argument, NULL, 'g'},
    {"late", no_argument, NULL, 'a'},
    {"replaces-weights", no_argument, NULL, 'W'},
    {"cache-entries", required_argument, NULL, 'E'},
    {"cache-ttl", required_argument, NULL, 'l'},
    {"cache-file", required_argument, NULL, 'F'},
    {"cache-unseeded", no_argument, NULL, 'U'},
    {"cache-share", no_argument, NULL, 'G'},
    {"replay-pace", no_argument, NULL, 'R'},
    {"cache-verify", required_argument, NULL, 'V'},
    {"invariance-off", no_argument, NULL, '0'},
    {"response-store", required_argument, NULL, '2'},
    {"response-store-size", required_argument, NULL, '3'},
    {"response-store-ttl", required_argument, NULL, '4'},
    {"vectors", required_argument, NULL, 'v'},
    {"scores", required_argument, NULL, 'X'},
    {"strict-fields", no_argument, NULL, '5'},
    {NULL, 0, NULL, 0},
};

#define MAX_NAMES 20
struct words {
    const char *keys[MAX_NAMES], *names[MAX_NAMES], *origins[MAX_NAMES], *hosts[MAX_NAMES];
    size_t n_keys, n_names, n_origins, n_hosts, n_networks;
    struct http_network networks[MAX_NAMES];
    const char *tenants, *certificate, *source, *cache_file;
    bool has_shadow;
    bool replaces_weights;
    uint32_t give_up_ms;
    bool is_late;
    struct response_cache_options cache; /* max_entries 0: no cache */
};

static bool parse(int argc, char **argv, struct front_options *o, struct served_model_options *m,
                  struct fake_engine_options *f, struct words *words)
{
    int letter;
    while ((letter = getopt_long(argc, argv, "", names, NULL)) != -1) {
        uint32_t number = optarg ? (uint32_t)strtoul(optarg, NULL, 10) : 0;
        switch (letter) {
        case 'u': m->tool_call_parser = optarg; break;
        case '1': m->reasoning_parser = optarg; break;
        case '2': o->responses.path = optarg; break;
        case '3': o->responses.max_bytes = number; break;
        case '4': o->responses.ttl_s = number; break;
        case 'p': o->port = (uint16_t)number; break;
        case 'o': f->mode = strcmp(optarg, "count") == 0 ? FAKE_ENGINE_COUNT : FAKE_ENGINE_ECHO; break;
        case 'x': f->max_model_len = number; break;
        case 'i': f->interval_us = number; break;
        case 's': f->tokens_per_step = number; break;
        case 'L': f->max_live = number; break;
        case 'f': f->fail_token = number; break;
        case 'k':
            if (words->n_keys < MAX_NAMES)
                words->keys[words->n_keys++] = optarg;
            break;
        case 'O':
            if (words->n_origins < MAX_NAMES)
                words->origins[words->n_origins++] = optarg;
            break;
        case 'A':
            if (words->n_hosts < MAX_NAMES)
                words->hosts[words->n_hosts++] = optarg;
            break;
        case 'Y':
            if (http_networks_parse(optarg, words->networks, MAX_NAMES, &words->n_networks, NULL) != QUIRE_OK)
                return false;
            break;
        case 'H': o->host = optarg; break;
        case 'Z':
            m->specials_in_messages = strcmp(optarg, "text") == 0     ? QUIRE_SPECIALS_TEXT
                                      : strcmp(optarg, "refuse") == 0 ? QUIRE_SPECIALS_REFUSE
                                                                      : QUIRE_SPECIALS_ENCODE;
            break;
        case 'J': m->keeps_billing_header = true; break;
        case 'd': o->max_connections_per_address = number; break;
        case 'n':
            if (words->n_names < MAX_NAMES)
                words->names[words->n_names++] = optarg;
            break;
        case 'q': words->source = optarg; break;
        case 't': words->tenants = optarg; break;
        case 'C': words->certificate = optarg; break;
        case 'S': words->has_shadow = true; break;
        case 'g': words->give_up_ms = number; break;
        case 'a': words->is_late = true; break;
        case 'W': words->replaces_weights = true; break;
        case 'E': words->cache.max_entries = number; break;
        case 'l': words->cache.ttl_s = number; break;
        case 'F': words->cache_file = optarg; break;
        case 'U': words->cache.unseeded = true; break;
        case 'G': m->share_answers = true; break;
        case 'R': words->cache.replay_pace = true; break;
        case '0': f->not_invariant = true; break;
        case 'V': words->cache.verify = strtod(optarg, NULL); break;
        case 'v': f->vector_size = number; break;
        case 'X':
            f->vector_size = number;
            f->vector_is_scores = true;
            break;
        case 'T': o->tenant_metrics = true; break;
        case '5': o->strict_fields = true; break;
        case 'r': f->refuse_below_us = UINT64_C(1000) * number; break;
        case 'b': o->max_body_bytes = number; break;
        case 'c': o->max_connections = number; break;
        case 'm': o->max_choices = number; break;
        case 'h': o->head_timeout_ms = number; break;
        case 'B': o->body_timeout_ms = number; break;
        case 'I': o->idle_timeout_ms = number; break;
        case 'w': o->write_timeout_ms = number; break;
        case 'P': o->ping_ms = number; break;
        default: return false;
        }
    }
    return optind == argc - 1;
}

static int serve(struct server *s, struct quire_text *text, const struct front_options *options,
                 struct served_model_options *model, struct quire_error *err)
{
    const struct upstream_identity identity = {.model = "fake"};
    const struct upstream_owner owner = {.ready = on_ready, .lost = on_lost, .context = s};
    model->text = text;
    int status = front_create(s->base, options, &s->front, err);
    if (!status)
        status = front_add_model(s->front, model, &s->model, err);
    if (!status) {
        upstream_set_identity(served_model_upstream(s->model), &identity, &owner);
        status = start_engine(s, false, err);
    }
    if (!status)
        event_base_dispatch(s->base);
    front_destroy(s->front);
    response_cache_close(s->cache);
    end_engine(s);
    return status;
}

struct cache_file {
    struct event_base *base;
    const char *path;
};

static struct answer_store *open_file(void *context, const struct key256 *identity)
{
    const struct cache_file *f = context;
    struct answer_store *store;
    store_open_sqlite(f->base, f->path, *identity, 64u << 20, &store, NULL);
    return store;
}

/* The fake engine restricts nothing: the front end compiles. */
static struct quire_grammars *open_grammars(const struct quire_text *text, struct quire_error *err)
{
    const int64_t end = quire_text_token_id(text, "<|im_end|>");
    const uint32_t eos = end >= 0 ? (uint32_t)end : 0;
    const struct quire_grammars_options options = {
        .n_vocab = quire_text_n_ids(text), .eos = &eos, .n_eos = 1, .limits = {.deadline_ms = 5000}};
    struct quire_grammars *grammars = NULL;
    quire_grammars_open(text, &options, &grammars, err);
    return grammars;
}

int main(int argc, char **argv)
{
    struct words words = {.n_names = 0};
    struct front_options options = {.host = "127.0.0.1",
                                    .version = "test",
                                    .responses = {.max_bytes = FRONT_RESPONSES_BYTES, .ttl_s = FRONT_RESPONSES_TTL_S}};
    struct served_model_options model = {.root = "fake-root"};
    struct fake_engine_options fake;
    struct quire_text *text;
    struct quire_error err;
    fake_engine_options_default(&fake);
    fake.mode = FAKE_ENGINE_ECHO;
    if (!parse(argc, argv, &options, &model, &fake, &words)) {
        fprintf(stderr, "usage: front_test_server TOKENIZER_DIRECTORY [options]\n");
        return 2;
    }
    if (quire_hash_init() || quire_text_open(argv[optind], &text, &err)) {
        fprintf(stderr, "front_test_server: %s\n", err.text);
        return 1;
    }
    int status = words.tenants ? tenants_from_file(words.tenants, quire_now_us(), &options.tenants, &err)
                               : tenants_from_keys(words.keys, words.n_keys, quire_now_us(), &options.tenants, &err);
    struct tls *tls = NULL;
    if (!status && words.certificate)
        status = tls_open(words.certificate, NULL, &tls, &err);
    if (status) {
        fprintf(stderr, "front_test_server: %s\n", err.text);
        return 1;
    }
    options.tls = tls;
    options.allowed_origins = words.origins;
    options.n_allowed_origins = words.n_origins;
    options.allowed_hosts = words.hosts;
    options.n_allowed_hosts = words.n_hosts;
    options.trusted_proxies = words.networks;
    options.n_trusted_proxies = words.n_networks;
    if (words.n_names == 0)
        words.names[words.n_names++] = "fake";
    model.names = words.names;
    model.n_names = words.n_names;
    struct quire_grammars *grammars = open_grammars(text, &err); /* NULL: its decoder cannot be used with grammars */
    model.grammars = grammars;
    fake.vocab_size = quire_text_n_ids(text);
    int64_t eos = quire_text_token_id(text, "<|im_end|>");
    fake.eos = eos >= 0 ? (uint32_t)eos : 0;

    struct server s = {.base = event_base_new(),
                       .fake = fake,
                       .has_shadow = words.has_shadow,
                       .replaces_weights = words.replaces_weights,
                       .give_up_ms = words.give_up_ms,
                       .is_late = words.is_late};
    struct event *terminate = evsignal_new(s.base, SIGTERM, on_signal, &s);
    struct event *interrupt = evsignal_new(s.base, SIGINT, on_signal, &s);
    struct event *usr1 = evsignal_new(s.base, SIGUSR1, on_usr1, &s);
    event_add(terminate, NULL);
    event_add(interrupt, NULL);
    event_add(usr1, NULL);
    struct event *usr2 = evsignal_new(s.base, SIGUSR2, on_usr2, &s);
    event_add(usr2, NULL);
    struct event *hangup = evsignal_new(s.base, SIGHUP, on_hangup, options.tenants);
    event_add(hangup, NULL);
    if (words.source)
        s.source = fake_source_open(s.base, strcmp(words.source, "later") == 0, fake.eos);
    words.cache.context = &(struct cache_file){s.base, words.cache_file};
    words.cache.open_store = words.cache_file ? open_file : NULL;
    if (words.cache.max_entries > 0)
        status = response_cache_open(s.base, &words.cache, &s.cache, &err);
    model.cache = s.cache;
    if (!status)
        status = serve(&s, text, &options, &model, &err);
    if (status)
        fprintf(stderr, "front_test_server: %s\n", err.text);
    fake_source_close(s.source);
    event_free(terminate);
    event_free(interrupt);
    event_free(usr1);
    event_free(usr2);
    event_free(hangup);
    event_base_free(s.base);
    quire_grammars_release(grammars);
    quire_text_close(text);
    tenants_free(options.tenants);
    tls_free(tls);
    libevent_global_shutdown();
    return status ? 1 : 0;
}
