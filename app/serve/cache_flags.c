#include "app/serve/cache_flags.h"

#include "base/encoding/number.h"
#include "base/log.h"
#include "server/cache/redis/url.h"

#include <stdio.h>
#include <string.h>

#define SQLITE "sqlite:"
#define REDIS "redis" /* and rediss */
#define DEFAULT_FILE_BYTES ((uint64_t)1 << 30)

static int parse_share(const char *text, void *target, struct quire_error *err)
{
    const bool all = strcmp(text, "all") == 0;
    if (!all && strcmp(text, "tenant") != 0)
        return quire_fail(err, QUIRE_INVALID, "must be tenant or all, got %s", text);
    *(bool *)target = all;
    return QUIRE_OK;
}

static int parse_price(const char *text, void *target, struct quire_error *err)
{
    struct cache_price *p = target, got;
    const char *at = text;
    if (!quire_take_number(&at, 1e11, &got.in) || *at++ != ',' || !quire_take_number(&at, 1e11, &got.cached) ||
        *at++ != ',' || !quire_take_number(&at, 1e11, &got.out) || *at)
        return quire_fail(err, QUIRE_INVALID,
                          "must be three prices of 1,000 tokens, for prompt, cached prompt and output, such as "
                          "0.5,0.05,1.5; got %s",
                          text);
    *p = got;
    return QUIRE_OK;
}

static int parse_mode(const char *text, void *target, struct quire_error *err)
{
    const bool answer = strcmp(text, "answer") == 0;
    if (!answer && strcmp(text, "draft") != 0)
        return quire_fail(err, QUIRE_INVALID, "must be draft or answer, got %s", text);
    *(enum similar_mode *)target = answer ? SIMILAR_ANSWER : SIMILAR_DRAFT;
    return QUIRE_OK;
}

size_t cache_flags(struct cache_flags *f, struct cli_option out[CACHE_FLAGS_MAX])
{
    struct response_cache_options *o = &f->options;
    f->price = (struct cache_price){-1, -1, -1};
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "Response cache (docs/guides/caching.md):", .kind = CLI_GROUP},
        {.names = "response-cache", .kind = CLI_STRING, .target = &f->where, .value = "memory|sqlite:PATH|redis://HOST",
         .common = true, .help = "Cache responses and serve exact repetitions of a request from the cache, bit for bit. memory: in "
                 "this process; sqlite:PATH: also in a SQLite file; redis[s]://[user:password@]host[:port][/db]: "
                 "also in Redis (rediss: with TLS). Off unless this or --response-cache-entries is set."},
        {.names = "response-cache-size", .kind = CLI_BYTES, .target = &f->file_bytes, .min = 1u << 20, .value = "SIZE",
         .help = "Maximum size of the SQLite file. Default 1G."},
        {.names = "response-cache-entries", .kind = CLI_U32, .target = &o->max_entries, .min = 1, .max = 65536, .value = "N",
         .help = "Maximum number of cached responses in memory; the least recently served are evicted first. Default "
                 "128."},
        {.names = "response-cache-memory", .kind = CLI_BYTES, .target = &o->max_bytes, .min = 65536, .value = "SIZE",
         .help = "Maximum memory for cached responses. Default 64M."},
        {.names = "response-cache-ttl", .kind = CLI_U32, .target = &o->ttl_s, .min = 1, .max = 2592000, .value = "SECONDS",
         .help = "Lifetime of a cached response. Default 3600."},
        {.names = "response-cache-share", .kind = CLI_PARSED, .parse = parse_share, .target = &f->share_all, .value = "tenant|all",
         .help = "Clients that share cached responses: tenant, those with the same API key; all, every client. "
                 "Default tenant."},
        {.names = "response-cache-unseeded", .kind = CLI_FLAG, .target = &o->unseeded,
         .help = "Also serve cached responses to sampled requests without a seed. Such replies are marked, because "
                 "another draw was equally likely."},
        {.names = "replay-pace", .kind = CLI_FLAG, .target = &o->replay_pace,
         .help = "Stream cached responses at their original pace, not at once."},
        {.names = "cache-verify", .kind = CLI_F64, .target = &o->verify, .min = 0, .max = 1, .value = "SHARE",
         .help = "Recompute this share of the responses served from memory in the background and compare every bit, "
                 "such as 0.01. Default 0."},
        {.names = "semantic-cache", .kind = CLI_STRING, .target = &f->semantic_model, .value = "MODEL",
         .common = true, .help = "Find similar earlier questions with this embedding model and use their answers as drafts. Drafts "
                 "never change an answer. The model also becomes the --embedding-model. Enables the response cache "
                 "in memory."},
        {.names = "semantic-threshold", .kind = CLI_F64, .target = &f->threshold, .min = 0.01, .max = 1, .value = "COSINE",
         .help = "Minimum cosine similarity of two questions. Default 0.92; quire cache calibrate measures it."},
        {.names = "semantic-mode", .kind = CLI_PARSED, .parse = parse_mode, .target = &f->similar.mode, .value = "draft|answer",
         .help = "draft, or answer: serve the answer to a similar question directly, unless numbers, names, units, "
                 "negation, opposites, directions or language differ. Such an answer can be wrong. Default draft."},
        {.names = "semantic-cache-entries", .kind = CLI_U32, .target = &f->similar.max_entries, .min = 1, .max = 100000000, .value = "N",
         .help = "Maximum number of stored questions. Default 100000."},
        {.names = "price-per-1k", .kind = CLI_PARSED, .parse = parse_price, .target = &f->price, .value = "IN,CACHED,OUT",
         .help = "Price of 1,000 prompt tokens, cached prompt tokens and generated tokens, in any currency. /metrics "
                 "and /cache/stats then report the savings."},
    };
    /* clang-format on */
    memcpy(out, rows, sizeof rows);
    const size_t n = sizeof rows / sizeof *rows;
    cli_note_given(out, n, f->given);
    return n;
}

bool cache_flags_on(const struct cache_flags *f)
{
    return f->where || f->options.max_entries > 0 || f->semantic_model;
}

static bool is_file(const struct cache_flags *f)
{
    return f->where && strncmp(f->where, SQLITE, strlen(SQLITE)) == 0;
}

static bool is_redis(const struct cache_flags *f)
{
    return f->where && strncmp(f->where, REDIS, strlen(REDIS)) == 0;
}

int cache_flags_check(const struct cache_flags *f, struct quire_error *err)
{
    bool any = false;
    for (size_t i = 0; i < CACHE_FLAGS_MAX; i++)
        any |= f->given[i];
    if (!f->semantic_model && (f->threshold > 0 || f->similar.mode != SIMILAR_DRAFT || f->similar.max_entries > 0))
        return quire_fail(err, QUIRE_INVALID, "%s needs --semantic-cache MODEL",
                          f->threshold > 0             ? "--semantic-threshold"
                          : f->similar.max_entries > 0 ? "--semantic-cache-entries"
                                                       : "--semantic-mode");
    if (any && !cache_flags_on(f))
        return quire_fail(
            err, QUIRE_INVALID,
            "the response cache is off; switch it on with --response-cache memory, --response-cache-entries N or --semantic-cache MODEL");
    const bool file = is_file(f) && f->where[strlen(SQLITE)];
    if (f->where && !file && !is_redis(f) && strcmp(f->where, "memory") != 0)
        return quire_fail(err, QUIRE_INVALID, "--response-cache %.*s: must be memory, sqlite:PATH or redis://HOST",
                          (int)strcspn(f->where, ":@"), f->where); /* a password may follow */
    struct redis_url url;
    if (is_redis(f) && redis_url_parse(f->where, &url, err) != QUIRE_OK) {
        quire_error_prefix(err, "--response-cache"); /* without the URL, which may contain a password */
        return QUIRE_INVALID;
    }
    if (f->file_bytes && !file)
        return quire_fail(err, QUIRE_INVALID, "--response-cache-size needs --response-cache sqlite:PATH");
    return QUIRE_OK;
}

static struct answer_store *open_store(void *context, const struct key256 *identity)
{
    const struct cache_flags *f = context;
    struct answer_store *store = NULL;
    struct redis_url url;
    struct quire_error err;
    int status = is_redis(f) ? redis_url_parse(f->where, &url, &err) : (int)QUIRE_OK;
    if (status == QUIRE_OK && is_redis(f))
        status = store_open_redis(f->base, &url, *identity, &store, &err);
    else if (status == QUIRE_OK)
        status = store_open_sqlite(f->base, f->where + strlen(SQLITE), *identity,
                                   f->file_bytes ? f->file_bytes : DEFAULT_FILE_BYTES, &store, &err);
    if (status != QUIRE_OK)
        quire_log(QUIRE_LOG_ERROR, "server", "responses are cached in memory only: %s", err.text);
    return store;
}

bool cache_flags_companion(const struct cache_flags *f, const char *suffix, char *out, size_t n)
{
    const int length = is_file(f) ? snprintf(out, n, "%s%s", f->where + strlen(SQLITE), suffix) : -1;
    return length >= 0 && (size_t)length < n;
}

bool cache_flags_redis(const struct cache_flags *f, struct redis_url *out)
{
    return is_redis(f) && redis_url_parse(f->where, out, NULL) == QUIRE_OK;
}

int cache_flags_begin(struct cache_flags *f, struct event_base *base, struct quire_error *err)
{
    f->base = base;
    if (!is_file(f) && !is_redis(f))
        return QUIRE_OK;
    f->options.open_store = open_store;
    f->options.context = f;
    return is_file(f) ? store_probe_sqlite(f->where + strlen(SQLITE), err) : (int)QUIRE_OK;
}
