#include "server/front/observe/cache_metrics.h"

#include <stdio.h>
#include <string.h>

double cache_money_saved(const struct response_cache_stats *s, const struct cache_price *price)
{
    const double cached = (double)s->n_cached_tokens_saved, prompt = (double)s->n_prompt_tokens_saved - cached;
    return (prompt * price->in + cached * price->cached + (double)s->n_tokens_saved * price->out) / 1000;
}

struct cache_ratio cache_ratio(const struct response_cache_stats *s)
{
    struct cache_ratio r = {.n_hits = s->layers[CACHE_MEMORY].stats.n_hits + s->layers[CACHE_STORE].stats.n_hits +
                                      s->n_joined + s->n_guarded[GUARD_NONE],
                            .n_misses = s->n_computed};
    if (r.n_hits + r.n_misses > 0)
        r.rate = (double)r.n_hits / (double)(r.n_hits + r.n_misses);
    return r;
}

/* ---- text ----------------------------------------------------------------------------------- */

struct writer {
    struct buffer *o;
    const char *labels;
};

static void put_type(const struct writer *w, const char *name, const char *type, const char *help)
{
    const char *const parts[] = {"# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        json_out_raw(w->o, parts[i]);
}

static void put_sample(const struct writer *w, const char *name, const char *more, double value)
{
    char text[40];
    snprintf(text, sizeof text, "} %.15g\n", value);
    const char *const parts[] = {name, "{", w->labels, more, text};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        json_out_raw(w->o, parts[i]);
}

static void put_counter(const struct writer *w, const char *name, const char *help, double value)
{
    put_type(w, name, "counter", help);
    put_sample(w, name, "", value);
}

/* ,layer="memory" */
struct layer_label {
    char text[32];
};
static struct layer_label label_of(const struct cache_layer *layer)
{
    struct layer_label label;
    snprintf(label.text, sizeof label.text, ",layer=\"%s\"", layer->name);
    return label;
}

static void put_latency(const struct writer *w, const struct cache_layer *layer)
{
    static const char name[] = "quire:response_cache_lookup_seconds";
    const struct cache_latency *l = &layer->stats.latency;
    const struct layer_label of = label_of(layer);
    char label[192], full[64];
    uint64_t count = 0;
    snprintf(full, sizeof full, "%s_bucket", name);
    for (size_t i = 0; i < CACHE_LATENCY_BUCKETS; i++) {
        count += l->counts[i];
        snprintf(label, sizeof label, "%.31s,le=\"%.15g\"", of.text, cache_latency_bounds_s[i]);
        put_sample(w, full, label, (double)count);
    }
    count += l->counts[CACHE_LATENCY_BUCKETS];
    snprintf(label, sizeof label, "%.31s,le=\"+Inf\"", of.text);
    put_sample(w, full, label, (double)count);
    snprintf(full, sizeof full, "%s_sum", name);
    put_sample(w, full, of.text, l->sum_s);
    snprintf(full, sizeof full, "%s_count", name);
    put_sample(w, full, of.text, (double)count);
}

static void put_layers(const struct writer *w, const struct cache_layer *layers)
{
    static const struct {
        const char *name, *type, *help;
    } rows[] = {
        {"quire:response_cache_lookups_total", "counter", "Answers that were looked for, by layer."},
        {"quire:response_cache_hits_total", "counter", "Those that were found and given."},
        {"quire:response_cache_misses_total", "counter", "Those that were not."},
        {"quire:response_cache_entries", "gauge", "Answers that are kept, by layer."},
        {"quire:response_cache_bytes", "gauge", "What they take."},
        {"quire:response_cache_evictions_total", "counter", "Answers that gave way to others."},
    };
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        put_type(w, rows[row].name, rows[row].type, rows[row].help);
        for (const struct cache_layer *l = layers; l < layers + N_CACHE_LAYERS; l++) {
            const uint64_t values[] = {l->stats.n_lookups, l->stats.n_hits, l->stats.n_misses,
                                       l->n_entries,       l->n_bytes,      l->n_evicted};
            if (l->name)
                put_sample(w, rows[row].name, label_of(l).text, (double)values[row]);
        }
    }
    put_type(w, "quire:response_cache_lookup_seconds", "histogram", "How long looking took, by layer.");
    for (const struct cache_layer *l = layers; l < layers + N_CACHE_LAYERS; l++)
        if (l->name)
            put_latency(w, l);
}

static void put_store(const struct writer *w, const struct store_stats *s)
{
    put_type(w, "quire:response_cache_store_up", "gauge", "1 when the store of answers can be asked.");
    put_sample(w, "quire:response_cache_store_up", "", s->connected);
    put_counter(w, "quire:response_cache_store_away_total", "Lookups that it did not answer, or not in time.",
                (double)s->n_away);
    put_counter(w, "quire:response_cache_store_puts_failed_total", "Answers that it did not keep.",
                (double)s->n_put_failed);
    put_counter(w, "quire:response_cache_store_reconnects_total", "Times that it came back.", (double)s->n_reconnects);
}

static void put_similar(const struct writer *w, const struct response_cache_stats *s,
                        const struct similar_stats *similar)
{
    static const char guarded[] = "quire:semantic_cache_guarded_total", drafts[] = "quire:semantic_cache_drafts_total",
                      tokens[] = "quire:semantic_cache_draft_tokens_total";
    char label[80];
    put_counter(w, "quire:semantic_cache_late_total", "Questions whose vector did not come in time.",
                (double)similar->n_late);
    put_counter(w, "quire:semantic_cache_embedding_seconds_total", "What was waited for vectors of questions.",
                similar->embedding.sum_s);
    put_counter(w, "quire:semantic_cache_given_total", "Answers to similar questions that were given as they are.",
                (double)s->n_guarded[GUARD_NONE]);
    put_type(w, guarded, "counter", "Answers to similar questions that were not given, by what differs.");
    for (int g = GUARD_NONE + 1; g < N_GUARDS; g++) {
        snprintf(label, sizeof label, ",guard=\"%s\"", guard_name((enum guard)g));
        put_sample(w, guarded, label, (double)s->n_guarded[g]);
    }
    put_type(w, drafts, "counter", "Choices that had the answer to a similar question as a draft, by similarity.");
    for (int b = 0; b < SIMILAR_BANDS; b++) {
        snprintf(label, sizeof label, ",similarity_below=\"%.2f\"",
                 b < SIMILAR_BANDS - 1 ? (double)similar_bands[b] : 1.01);
        put_sample(w, drafts, label, (double)similar->bands[b].n_drafts);
    }
    put_type(w, tokens, "counter", "Tokens of these drafts that were tried, and those that were right.");
    for (int b = 0; b < SIMILAR_BANDS; b++) {
        const double below = b < SIMILAR_BANDS - 1 ? (double)similar_bands[b] : 1.01;
        snprintf(label, sizeof label, ",similarity_below=\"%.2f\",result=\"tried\"", below);
        put_sample(w, tokens, label, (double)similar->bands[b].n_tried);
        snprintf(label, sizeof label, ",similarity_below=\"%.2f\",result=\"right\"", below);
        put_sample(w, tokens, label, (double)similar->bands[b].n_right);
    }
}

/* The rows of server/cache/stats_rows.h. */
static void put_rows(const struct writer *w, const struct response_cache_stats *s)
{
    const struct {
        const char *name, *label, *help;
        double value;
    } rows[] = {
#define ROW(member, type, group, name, label, help, key) {name, label, help, (double)s->member},
        CACHE_STATS_ROWS(ROW)
#undef ROW
    };
    const char *last = "";
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!rows[i].name)
            continue;
        if (strcmp(rows[i].name, last) != 0)
            put_type(w, rows[i].name, "counter", rows[i].help);
        put_sample(w, rows[i].name, rows[i].label, rows[i].value);
        last = rows[i].name;
    }
}

void cache_metrics_text(struct buffer *o, const char *labels, const struct cache_figures *figures)
{
    const struct writer w = {o, labels};
    put_layers(&w, figures->cache->layers);
    if (figures->similar)
        put_similar(&w, figures->cache, figures->similar);
    if (figures->store)
        put_store(&w, figures->store);
    put_rows(&w, figures->cache);
    if (figures->price)
        put_counter(&w, "quire:response_cache_money_saved_total", "What these tokens cost by --price-per-1k.",
                    cache_money_saved(figures->cache, figures->price));
}
