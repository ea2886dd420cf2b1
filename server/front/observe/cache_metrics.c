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
    struct cache_ratio r = {.n_hits = s->memory.n_hits + s->store.n_hits + s->n_joined + s->n_guarded[GUARD_NONE],
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

struct layer {
    char label[32]; /* ,layer="memory" */
    const struct cache_layer_stats *stats;
    uint64_t n_entries, n_bytes, n_evicted;
};

static void put_latency(const struct writer *w, const struct layer *layer)
{
    static const char name[] = "quire:response_cache_lookup_seconds";
    const struct cache_latency *l = &layer->stats->latency;
    char label[192], full[64];
    uint64_t count = 0;
    snprintf(full, sizeof full, "%s_bucket", name);
    for (size_t i = 0; i < CACHE_LATENCY_BUCKETS; i++) {
        count += l->counts[i];
        snprintf(label, sizeof label, "%.31s,le=\"%.15g\"", layer->label, cache_latency_bounds_s[i]);
        put_sample(w, full, label, (double)count);
    }
    count += l->counts[CACHE_LATENCY_BUCKETS];
    snprintf(label, sizeof label, "%.31s,le=\"+Inf\"", layer->label);
    put_sample(w, full, label, (double)count);
    snprintf(full, sizeof full, "%s_sum", name);
    put_sample(w, full, layer->label, l->sum_s);
    snprintf(full, sizeof full, "%s_count", name);
    put_sample(w, full, layer->label, (double)count);
}

static void put_layers(const struct writer *w, const struct layer *layers, size_t n)
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
        for (size_t i = 0; i < n; i++) {
            const struct layer *l = &layers[i];
            const uint64_t values[] = {l->stats->n_lookups, l->stats->n_hits, l->stats->n_misses,
                                       l->n_entries,        l->n_bytes,       l->n_evicted};
            put_sample(w, rows[row].name, l->label, (double)values[row]);
        }
    }
    put_type(w, "quire:response_cache_lookup_seconds", "histogram", "How long looking took, by layer.");
    for (size_t i = 0; i < n; i++)
        put_latency(w, &layers[i]);
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

static void put_similar(const struct writer *w, const struct response_cache_stats *s)
{
    static const char guarded[] = "quire:semantic_cache_guarded_total", drafts[] = "quire:semantic_cache_drafts_total",
                      tokens[] = "quire:semantic_cache_draft_tokens_total";
    char label[80];
    put_counter(w, "quire:semantic_cache_late_total", "Questions whose vector did not come in time.",
                (double)s->similar.n_late);
    put_counter(w, "quire:semantic_cache_embedding_seconds_total", "What was waited for vectors of questions.",
                s->similar.embedding.sum_s);
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
        put_sample(w, drafts, label, (double)s->similar.bands[b].n_drafts);
    }
    put_type(w, tokens, "counter", "Tokens of these drafts that were tried, and those that were right.");
    for (int b = 0; b < SIMILAR_BANDS; b++) {
        const double below = b < SIMILAR_BANDS - 1 ? (double)similar_bands[b] : 1.01;
        snprintf(label, sizeof label, ",similarity_below=\"%.2f\",result=\"tried\"", below);
        put_sample(w, tokens, label, (double)s->similar.bands[b].n_tried);
        snprintf(label, sizeof label, ",similarity_below=\"%.2f\",result=\"right\"", below);
        put_sample(w, tokens, label, (double)s->similar.bands[b].n_right);
    }
}

void cache_metrics_text(struct buffer *o, const char *labels, const struct response_cache_stats *s,
                        const struct cache_price *price)
{
    const struct writer w = {o, labels};
    struct layer layers[3] = {{.label = ",layer=\"memory\"",
                               .stats = &s->memory,
                               .n_entries = s->n_entries,
                               .n_bytes = s->n_bytes,
                               .n_evicted = s->n_evicted},
                              {.stats = &s->store,
                               .n_entries = s->cached.n_entries,
                               .n_bytes = s->cached.n_bytes,
                               .n_evicted = s->cached.n_evicted}};
    snprintf(layers[1].label, sizeof layers[1].label, ",layer=\"%s\"", s->store_name ? s->store_name : "");
    size_t n_layers = s->store_name ? 2 : 1;
    if (s->compares)
        layers[n_layers++] = (struct layer){.label = ",layer=\"semantic\"",
                                            .stats = &s->similar.layer,
                                            .n_entries = s->similar.n_entries,
                                            .n_bytes = s->similar.n_bytes,
                                            .n_evicted = s->similar.n_evicted};
    put_layers(&w, layers, n_layers);
    if (s->compares)
        put_similar(&w, s);
    if (s->store_name)
        put_store(&w, &s->cached);
    put_counter(&w, "quire:response_cache_joined_total", "Requests that waited for an identical one in flight.",
                (double)s->n_joined);
    put_counter(&w, "quire:response_cache_computed_total", "Requests that were computed.", (double)s->n_computed);
    put_counter(&w, "quire:response_cache_resumed_total",
                "Of these, those that began as a shorter answer that was kept.", (double)s->n_resumed);
    put_counter(&w, "quire:response_cache_tokens_resumed_total", "Tokens that these did not compute.",
                (double)s->n_tokens_resumed);
    put_counter(&w, "quire:response_cache_stored_total", "Answers that were kept.", (double)s->n_stored);
    put_counter(&w, "quire:response_cache_unsound_total", "Answers of a store that were none, and thrown away.",
                (double)s->n_unsound);
    put_counter(&w, "quire:response_cache_verified_total", "Given answers that were computed again and are the same.",
                (double)s->n_verified);
    put_counter(&w, "quire:response_cache_differing_total", "Those that are not: 0, or a bug.", (double)s->n_differing);
    put_type(&w, "quire:response_cache_tokens_saved_total", "counter", "Tokens that were not computed.");
    put_sample(&w, "quire:response_cache_tokens_saved_total", ",kind=\"prompt\"", (double)s->n_prompt_tokens_saved);
    put_sample(&w, "quire:response_cache_tokens_saved_total", ",kind=\"generated\"", (double)s->n_tokens_saved);
    put_counter(&w, "quire:response_cache_seconds_saved_total", "What given answers took when they were computed.",
                s->seconds_saved);
    if (price)
        put_counter(&w, "quire:response_cache_money_saved_total", "What these tokens cost by --price-per-1k.",
                    cache_money_saved(s, price));
}
