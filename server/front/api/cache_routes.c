/* GET /cache/stats and POST /cache/clear, for the response cache. */
#include "server/front/front_internal.h"

#include <stdio.h>
#include <stdlib.h>

/* A request to clear the cache, while the store does so. */
struct cache_clear {
    TAILQ_ENTRY(cache_clear) link;
    struct served_model *served;
    struct http_exchange *x; /* NULL: the client has disconnected */
};

static bool is_on(const struct served_model *m, struct http_exchange *x)
{
    struct api_error e;
    if (m->cache)
        return true;
    api_fail(&e, 404, NULL, "cache_off", "no answers are kept here: start the server with --response-cache");
    api_error_reply(x, &e);
    return false;
}

/* ---- stats ---------------------------------------------------------------------------------- */

static void put_number(struct buffer *o, const char *name, double value)
{
    char text[80];
    snprintf(text, sizeof text, "\"%s\":%.15g,", name, value);
    json_out_raw(o, text);
}

static void put_layer(struct buffer *o, const struct cache_layer *l)
{
    json_out_raw(o, "\"");
    json_out_raw(o, l->name);
    json_out_raw(o, "\":{");
    put_number(o, "lookups", (double)l->stats.n_lookups);
    put_number(o, "hits", (double)l->stats.n_hits);
    put_number(o, "misses", (double)l->stats.n_misses);
    put_number(o, "entries", (double)l->n_entries);
    put_number(o, "expired_entries", (double)l->n_expired);
    put_number(o, "evictions", (double)l->n_evicted);
    put_number(o, "lookup_seconds", l->stats.latency.sum_s);
    json_out_raw(o, "\"bytes\":");
    json_out_u64(o, l->n_bytes);
    json_out_raw(o, "}");
}

static void put_store(struct buffer *o, const struct store_stats *s)
{
    json_out_raw(o, ",\"store\":{");
    put_number(o, "away", (double)s->n_away);
    put_number(o, "puts", (double)s->n_puts);
    put_number(o, "puts_failed", (double)s->n_put_failed);
    put_number(o, "reconnects", (double)s->n_reconnects);
    json_out_raw(o, s->connected ? "\"connected\":true,\"trouble\":" : "\"connected\":false,\"trouble\":");
    json_out_text_or_null(o, s->trouble[0] ? s->trouble : NULL);
    json_out_raw(o, "}");
}

/* The part of the semantic cache that servers share through one Redis. */
static void put_shared(struct buffer *o, const struct similar_stats *s)
{
    if (!s->is_shared)
        return;
    json_out_raw(o, s->shared.connected ? "\"shared\":{\"connected\":true," : "\"shared\":{\"connected\":false,");
    put_number(o, "taken", (double)s->shared.n_taken);
    put_number(o, "refused", (double)s->shared.n_refused);
    put_number(o, "appended", (double)s->shared.n_appended);
    char text[40];
    snprintf(text, sizeof text, "\"dropped\":%llu},", (unsigned long long)s->shared.n_dropped);
    json_out_raw(o, text);
}

static void put_similar(struct buffer *o, const struct response_cache_stats *s, const struct similar_stats *similar)
{
    json_out_raw(o, similar->mode == SIMILAR_ANSWER ? ",\"semantic\":{\"mode\":\"answer\","
                                                    : ",\"semantic\":{\"mode\":\"draft\",");
    put_number(o, "late", (double)similar->n_late);
    put_number(o, "file_bytes", (double)similar->n_file_bytes);
    put_number(o, "dropped", (double)similar->n_dropped);
    put_shared(o, similar);
    put_number(o, "embedding_seconds", similar->embedding.sum_s);
    put_number(o, "given", (double)s->n_guarded[GUARD_NONE]);
    json_out_raw(o, "\"guarded\":{");
    for (int g = GUARD_NONE + 1; g < N_GUARDS; g++) {
        char text[80];
        snprintf(text, sizeof text, "%s\"%s\":%llu", g > GUARD_NONE + 1 ? "," : "", guard_name((enum guard)g),
                 (unsigned long long)s->n_guarded[g]);
        json_out_raw(o, text);
    }
    json_out_raw(o, "},\"drafts\":[");
    for (int b = 0; b < SIMILAR_BANDS; b++) {
        char text[160];
        snprintf(text, sizeof text,
                 "%s{\"similarity_below\":%.2f,\"drafts\":%llu,\"tokens_tried\":%llu,\"tokens_right\":%llu}",
                 b ? "," : "", b < SIMILAR_BANDS - 1 ? (double)similar_bands[b] : 1.01,
                 (unsigned long long)similar->bands[b].n_drafts, (unsigned long long)similar->bands[b].n_tried,
                 (unsigned long long)similar->bands[b].n_right);
        json_out_raw(o, text);
    }
    json_out_raw(o, "]}");
}

enum rows { ROWS_FIRST, ROWS_LAST };
static void put_rows(struct buffer *o, const struct response_cache_stats *s, enum rows which)
{
    const struct {
        enum rows group;
        const char *key;
        double value;
    } rows[] = {
#define ROW(member, type, group, name, label, help, key) {ROWS_##group, key, (double)s->member},
        CACHE_STATS_ROWS(ROW)
#undef ROW
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].key && rows[i].group == which)
            put_number(o, rows[i].key, rows[i].value);
}

/* The totals count one layer only: every entry in memory is also in the store. */
static void put_totals(struct buffer *o, const struct cache_layer *of)
{
    put_number(o, "total_entries", (double)of->n_entries);
    put_number(o, "valid_entries", (double)(of->n_entries - of->n_expired));
    put_number(o, "expired_entries", (double)of->n_expired);
    put_number(o, "bytes", (double)of->n_bytes);
}

static void answer_stats(struct served_model *m, struct http_exchange *x, const struct wire_stats *stats)
{
    struct response_cache_stats s;
    struct similar_stats similar;
    struct store_stats store;
    struct buffer o = {0};
    response_cache_stats(m->cache, &s);
    const bool is_compared = response_cache_similar_stats(m->cache, &similar);
    const bool is_stored = response_cache_store_stats(m->cache, &store);
    const struct cache_ratio ratio = cache_ratio(&s);
    json_out_raw(&o, "{\"object\":\"cache.stats\",");
    put_totals(
        &o, &s.layers[is_stored && store.n_entries >= s.layers[CACHE_MEMORY].n_entries ? CACHE_STORE : CACHE_MEMORY]);
    put_number(&o, "hits", (double)ratio.n_hits);
    put_number(&o, "misses", (double)ratio.n_misses);
    put_number(&o, "hit_rate", ratio.rate);
    put_rows(&o, &s, ROWS_FIRST);
    if (stats) {
        put_number(&o, "pinned_answers", stats->n_kept);
        put_number(&o, "pinned_blocks", stats->n_kept_blocks);
        put_number(&o, "pinned_bytes", (double)stats->kept_bytes);
    }
    put_rows(&o, &s, ROWS_LAST);
    if (m->price)
        put_number(&o, "money_saved", cache_money_saved(&s, m->price));
    put_number(&o, "live_requests", (double)generation_n_live(m));
    json_out_raw(&o, "\"layers\":{");
    for (const struct cache_layer *l = s.layers; l < s.layers + N_CACHE_LAYERS; l++) {
        if (l->name && l > s.layers)
            json_out_raw(&o, ",");
        if (l->name)
            put_layer(&o, l);
    }
    json_out_raw(&o, "}");
    if (is_compared)
        put_similar(&o, &s, &similar);
    if (is_stored)
        put_store(&o, &store);
    json_out_raw(&o, "}");
    http_reply(x, o.failed ? 503 : 200, "application/json", o.data, o.failed ? 0 : o.n);
    buffer_free(&o);
}

void cache_stats_start(struct served_model *m, struct http_exchange *x)
{
    if (is_on(m, x))
        scrape_ask(m, x, answer_stats);
}

/* ---- clear ---------------------------------------------------------------------------------- */

static void on_gone(void *context)
{
    ((struct cache_clear *)context)->x = NULL;
}

static void clear_free(struct cache_clear *clear)
{
    TAILQ_REMOVE(&clear->served->front->clears, clear, link);
    free(clear);
}

static void on_cleared(void *context, bool ok, uint64_t n_removed)
{
    struct cache_clear *clear = context;
    struct http_exchange *x = clear->x;
    char text[80];
    struct api_error e;
    clear_free(clear);
    if (!x)
        return;
    if (ok) {
        const int n = snprintf(text, sizeof text, "{\"cleared\":true,\"removed\":%llu}", (unsigned long long)n_removed);
        http_reply(x, 200, "application/json", text, (size_t)n);
        return;
    }
    api_fail(&e, 503, NULL, "cache_unavailable", "this process' memory is cleared, but the store could not be asked");
    api_error_reply(x, &e);
}

void cache_clears_end(struct front *f)
{
    struct cache_clear *clear;
    while ((clear = TAILQ_FIRST(&f->clears)))
        clear_free(clear);
}

bool cache_may(const struct served_model *m, struct http_exchange *x)
{
    struct api_error e;
    if (front_is_admin(m->front, x))
        return is_on(m, x);
    api_fail(&e, 403, NULL, "permission_denied",
             tenants_ask_key(m->front->tenants) ? "this needs the key of an admin"
                                                : "this is answered on the loopback address only, and to no web page");
    api_error_reply(x, &e);
    return false;
}

void cache_clear_start(struct served_model *m, struct http_exchange *x)
{
    struct api_error e;
    if (!cache_may(m, x))
        return;
    struct cache_clear *clear = malloc(sizeof *clear);
    if (!clear) {
        api_fail(&e, 503, NULL, "out_of_memory", "out of memory");
        api_error_reply(x, &e);
        return;
    }
    *clear = (struct cache_clear){.served = m, .x = x};
    TAILQ_INSERT_TAIL(&m->front->clears, clear, link);
    http_on_gone(x, on_gone, clear);
    response_cache_clear(m->cache, on_cleared, clear);
}
