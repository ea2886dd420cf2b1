/* The counters of this front end, as Prometheus text with vLLM's names (http-api.md lists them). Loop's thread. */
#ifndef QUIRE_FRONT_METRICS_H
#define QUIRE_FRONT_METRICS_H

#include "server/front/observe/cache_metrics.h"
#include "server/front/observe/histogram_rows.h"
#include "server/front/output/json_out.h"
#include "server/front/observe/otlp.h"
#include "server/front/tenant/tenants.h"
#include "server/wire/stats_frame.h"

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
    METRICS_ABORT, /* the client disconnected */
    METRICS_ERROR,
    METRICS_N_FINISHES,
};

/* Why a request's grammar was rejected. */
enum grammar_rejection {
    GRAMMAR_INVALID,
    GRAMMAR_UNSUPPORTED, /* it has a keyword that cannot be enforced */
    GRAMMAR_TIMED_OUT,
    GRAMMAR_BUSY, /* too many are being compiled */
    GRAMMAR_N_REJECTIONS,
};

/* Counts of requests with a grammar. */
struct grammar_counts {
    uint64_t n_hits, n_misses; /* of the results that the front end remembers */
    uint64_t rejected[GRAMMAR_N_REJECTIONS];
    struct histogram compile; /* seconds */
};

#define METRICS_HISTOGRAM_MEMBER(member, ...) struct histogram member;
struct metrics {
    uint64_t n_prompt_tokens, n_generation_tokens;
    uint64_t finished[METRICS_N_FINISHES]; /* choices */
    uint64_t n_refused;                    /* requests that got 429 */
    uint64_t n_vectors;                    /* texts or pairs in replies */
    uint64_t n_unknown_fields;             /* that bodies had */
    struct grammar_counts grammars;
    struct answer_counts answers;
    METRICS_HISTOGRAMS(METRICS_HISTOGRAM_MEMBER)
};

/* Other data for /metrics. */
struct metrics_about {
    const char *model; /* the label */
    const struct metrics *background; /* background requests, for which only sums are written */
    const struct metrics *companion; /* counters of the companion model; NULL: not configured */
    const char *companion_model;
    const struct wire_stats *companion_stats; /* statistics of its engine; NULL: no answer */
    const struct tenants *tenants; /* to be counted separately; NULL: not configured */
    uint32_t n_connections;
    uint32_t n_engine_restarts;
    uint64_t n_waiting; /* choices of prompts that were not yet submitted to the engine */
    const struct otlp_counts *otlp; /* NULL: no spans are exported */
    const char *arithmetic; /* identity of the engine's bits; empty: unknown */
    const struct cache_figures *cache; /* NULL: the response cache is off */
    uint64_t n_given_up, n_given_up_now; /* compilations of grammars, and those whose thread has not ended */
    uint32_t max_model_len; /* bounds of token counts end there, as in vLLM; 0: unknown */
};

void metrics_init(struct metrics *m);
void histogram_observe(struct histogram *h, double value);

/* A choice's time in the engine: in the queue, from there to its first token, from there to its last of n_tokens. */
void metrics_phases(struct metrics *m, double queue_s, double prefill_s, double decode_s, uint64_t n_tokens);

/* stats: the engine's; NULL without an answer. */
void metrics_text(struct buffer *o, const struct metrics *m, const struct wire_stats *stats,
                  const struct metrics_about *about);

#endif
