#include "tools/cache/cache_flags.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

#define SQLITE "sqlite:"
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
    int end = -1;
    if (sscanf(text, "%lf,%lf,%lf%n", &got.in, &got.cached, &got.out, &end) != 3 || end < 0 || text[end] != '\0' ||
        !(got.in >= 0 && got.cached >= 0 && got.out >= 0) || !(got.in + got.cached + got.out < 1e12))
        return quire_fail(err, QUIRE_INVALID,
                          "must be three prices, of 1,000 tokens in, cached and out: 0.5,0.05,1.5; got %s", text);
    *p = got;
    return QUIRE_OK;
}

size_t cache_flags(struct cache_flags *f, struct cli_option out[CACHE_FLAGS_MAX])
{
    struct response_cache_options *o = &f->options;
    f->price = (struct cache_price){-1, -1, -1};
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "Answers that were given before (docs/caching.md):", .kind = CLI_GROUP},
        {.names = "response-cache", .kind = CLI_STRING, .target = &f->where, .value = "memory|sqlite:PATH",
         .help = "Keep answers, and give them again to the same request, bit for bit: in memory, or in a SQLite file as "
                 "well. Off unless this or --response-cache-entries is given."},
        {.names = "response-cache-size", .kind = CLI_BYTES, .target = &f->file_bytes, .min = 1u << 20, .value = "SIZE",
         .help = "How large that file may become. Default 1G."},
        {.names = "response-cache-entries", .kind = CLI_U32, .target = &o->max_entries, .min = 1, .max = 65536, .value = "N",
         .help = "Answers in this process' memory; those given least recently go first. Default 128."},
        {.names = "response-cache-memory", .kind = CLI_BYTES, .target = &o->max_bytes, .min = 65536, .value = "SIZE",
         .help = "What they may take there. Default 64M."},
        {.names = "response-cache-ttl", .kind = CLI_U32, .target = &o->ttl_s, .min = 1, .max = 2592000, .value = "SECONDS",
         .help = "How long an answer is kept. Default 3600."},
        {.names = "response-cache-share", .kind = CLI_PARSED, .parse = parse_share, .target = &f->share_all, .value = "tenant|all",
         .help = "Who is given an answer: who sends the same API key, or everybody. Default tenant."},
        {.names = "response-cache-unseeded", .kind = CLI_FLAG, .target = &o->unseeded,
         .help = "Give answers again that were drawn without a seed, too. Replies say so: another draw was as likely."},
        {.names = "replay-pace", .kind = CLI_FLAG, .target = &o->replay_pace,
         .help = "Streams of kept answers come at the pace that the answer had, not at once."},
        {.names = "cache-verify", .kind = CLI_F64, .target = &o->verify, .min = 0, .max = 1, .value = "SHARE",
         .help = "Compute this share of the answers given from memory again, in the background, and compare every bit: 0.01. "
                 "Default 0."},
        {.names = "price-per-1k", .kind = CLI_PARSED, .parse = parse_price, .target = &f->price, .value = "IN,CACHED,OUT",
         .help = "What 1,000 tokens cost, of a prompt, of a prompt's cached part and generated, in any money: /metrics and "
                 "/cache/stats then say what was saved."},
    };
    /* clang-format on */
    memcpy(out, rows, sizeof rows);
    const size_t n = sizeof rows / sizeof *rows;
    cli_note_given(out, n, f->given);
    return n;
}

bool cache_flags_on(const struct cache_flags *f)
{
    return f->where || f->options.max_entries > 0;
}

int cache_flags_check(const struct cache_flags *f, struct quire_error *err)
{
    bool any = false;
    for (size_t i = 0; i < CACHE_FLAGS_MAX; i++)
        any |= f->given[i];
    if (any && !cache_flags_on(f))
        return quire_fail(err, QUIRE_INVALID,
                          "answers are kept with --response-cache memory or --response-cache-entries N only: give one");
    const bool file = f->where && strncmp(f->where, SQLITE, strlen(SQLITE)) == 0 && f->where[strlen(SQLITE)];
    if (f->where && !file && strcmp(f->where, "memory") != 0)
        return quire_fail(err, QUIRE_INVALID, "--response-cache %s: must be memory or sqlite:PATH", f->where);
    if (f->file_bytes && !file)
        return quire_fail(err, QUIRE_INVALID, "--response-cache-size is of a file: give --response-cache sqlite:PATH");
    return QUIRE_OK;
}

static struct answer_store *open_store(void *context, const struct key256 *identity)
{
    const struct cache_flags *f = context;
    struct answer_store *store = NULL;
    struct quire_error err;
    char note[256];
    if (store_open_sqlite(f->base, f->where + strlen(SQLITE), *identity,
                          f->file_bytes ? f->file_bytes : DEFAULT_FILE_BYTES, &store, note, &err) != QUIRE_OK)
        quire_log(QUIRE_LOG_ERROR, "server", "answers are kept in memory alone: %s", err.text);
    else if (note[0])
        quire_log(QUIRE_LOG_WARN, "server", "--response-cache %s: %s", f->where, note);
    return store;
}

void cache_flags_begin(struct cache_flags *f, struct event_base *base)
{
    f->base = base;
    if (!f->where || strncmp(f->where, SQLITE, strlen(SQLITE)) != 0)
        return;
    f->options.open_store = open_store;
    f->options.context = f;
}
