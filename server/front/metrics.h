/* What this front end counts, as Prometheus text with vLLM's names (docs/api.md lists them).
 * Loop's thread. */
#ifndef QUIRE_FRONT_METRICS_H
#define QUIRE_FRONT_METRICS_H

#include "server/front/json_out.h"
#include "server/front/tenants.h"
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
    struct histogram ttft, itl, e2e, prompt_tokens, generation_tokens;
};

void metrics_init(struct metrics *m);
void histogram_observe(struct histogram *h, double value);

/* CLOCK_MONOTONIC, in microseconds. */
uint64_t metrics_now_us(void);

/* stats: of the engine; NULL when there is none. model: the label. tenants: to be counted one by one;
 * NULL: not asked for. */
void metrics_text(struct json_out *o, const struct metrics *m, const struct wire_stats *stats,
                  const char *model, const struct tenants *tenants, uint32_t n_connections);

#endif
