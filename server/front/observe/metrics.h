/* What this front end counts, as Prometheus text with vLLM's names (http-api.md lists them).
 * Loop's thread. */
#ifndef QUIRE_FRONT_METRICS_H
#define QUIRE_FRONT_METRICS_H

#include "server/front/observe/cache_metrics.h"
#include "server/front/output/json_out.h"
#include "server/front/observe/otlp.h"
#include "server/front/tenant/tenants.h"
#include "server/wire/wire.h"

#include <stdint.h>

#define METRICS_BUCKETS 24

struct histogram {
    const double *bounds;
    uint32_t n_bounds;
    uint64_t counts[METRICS_BUCKETS + 1]; /* not cumulative; the last is +Inf */
    double sum;
};

enum metrics_finish {
    METRICS_STOP,
    METRICS_LENGTH,
    METRICS_ABORT, /* the client left */
    METRICS_ERROR,
    METRICS_N_FINISHES,
};

struct metrics {
    uint64_t n_prompt_tokens, n_generation_tokens;
    uint64_t finished[METRICS_N_FINISHES]; /* choices */
    uint64_t n_refused;                    /* requests that got 429 */
    uint64_t n_vectors;                    /* texts, or pairs, of replies */
    struct histogram ttft, itl, e2e, prompt_tokens, generation_tokens;
    struct histogram queue, prefill, decode, inference, tpot; /* of choices */
    struct histogram n, max_tokens, most_tokens;              /* of requests */
    struct histogram prefix_differs_at; /* of prompts that differ from those before: the token */
};

/* What /metrics says besides. */
struct metrics_about {
    const char *model; /* the label */
    const struct metrics *background; /* of requests in the background, of which only sums are said */
    const struct metrics *beside; /* of the model for vectors beside it; NULL: there is none */
    const char *beside_model;
    const struct wire_stats *beside_stats; /* of its engine; NULL: it does not answer */
    const struct tenants *tenants; /* to be counted one by one; NULL: not asked for */
    uint32_t n_connections;
    uint32_t n_engine_restarts;
    uint64_t n_waiting; /* choices, of prompts that the engine has not been given yet */
    const struct otlp_counts *otlp; /* NULL: no spans are exported */
    const char *arithmetic; /* identity of what the engine's bits depend on; empty: not known */
    const struct response_cache_stats *cache; /* NULL: no answers are kept */
    const struct cache_price *price; /* NULL: not said */
    uint32_t max_model_len; /* bounds of tokens end there, as vLLM's do; 0 = unknown */
};

void metrics_init(struct metrics *m);
void histogram_observe(struct histogram *h, double value);

/* A choice's stay in the engine: what it waited in the queue, from there to its first token, from there to its last
 * of n_tokens. */
void metrics_phases(struct metrics *m, double queue_s, double prefill_s, double decode_s, uint64_t n_tokens);

/* stats: of the engine; NULL when there is none. */
void metrics_text(struct buffer *o, const struct metrics *m, const struct wire_stats *stats,
                  const struct metrics_about *about);

#endif
